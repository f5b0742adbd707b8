//! The zone of the cluster set: `ServiceImport`s and slices at the API server become answers.

use apiserver::{Action, Resource, Rule};
use testkit::objects::{mk_cluster_ip, mk_imported_slice, mk_service_import};

use super::cluster::{Cluster, PATIENCE};
use super::process::Kubedns;

const FLAGS: [&str; 2] = ["--clusterset-domain=clusterset.local", "--ttl=5s"];

fn web(ip: &str) -> serde_json::Value {
    mk_service_import("apps", "web", "ClusterSetIP", &[ip], &["http:80"])
}

#[tokio::test]
async fn service_imports_are_followed() {
    let cluster = Cluster::start();
    cluster.set(web("10.112.0.1"));
    cluster.set(mk_service_import(
        "apps",
        "db",
        "Headless",
        &[],
        &["sql:5432"],
    ));
    cluster.set(mk_imported_slice(
        "apps",
        "db",
        "east",
        &["10.1.0.1 db-0", "10.1.0.2 db-1"],
        &["sql:5432"],
    ));
    // A Service of the same name in this cluster, which must not change the cluster set.
    cluster.set(mk_cluster_ip("apps", "web", &["10.96.0.1"], &["http:80"]));
    let kubedns = Kubedns::start(&cluster, &FLAGS).await;
    let east = "db-0.east.db.apps.svc.clusterset.local.";
    for (name, rtype, expected) in [
        ("web.apps.svc.clusterset.local.", "A", "10.112.0.1"),
        (
            "web.apps.svc.clusterset.local.",
            "SRV",
            "10 100 80 web.apps.svc.clusterset.local.",
        ),
        ("db.apps.svc.clusterset.local.", "A", "10.1.0.1 10.1.0.2"),
        (east, "A", "10.1.0.1"),
        ("web.apps.svc.cluster.local.", "A", "10.96.0.1"),
        ("db.apps.svc.cluster.local.", "A", "NXDOMAIN"),
    ] {
        kubedns.until_answered(name, rtype, expected).await;
    }
    cluster.set(web("10.112.0.2"));
    cluster.set(mk_imported_slice(
        "apps",
        "db",
        "west",
        &["10.2.0.1 db-0"],
        &["sql:5432"],
    ));
    cluster.delete(Resource::EndpointSlices, "apps", "db-east");
    kubedns
        .until_answered("web.apps.svc.clusterset.local.", "A", "10.112.0.2")
        .await;
    kubedns
        .until_answered("db.apps.svc.clusterset.local.", "A", "10.2.0.1")
        .await;
    kubedns.until_answered(east, "A", "NXDOMAIN").await;
    cluster.delete(Resource::ServiceImports, "apps", "web");
    kubedns
        .until_answered("web.apps.svc.clusterset.local.", "A", "NXDOMAIN")
        .await;
    kubedns
        .until_metric("kubedns_objects{kind=\"serviceimports\"}", 1.0)
        .await;
    kubedns
        .until_metric(
            "kubedns_watch_connected{kind=\"imported_endpointslices\"}",
            1.0,
        )
        .await;
    kubedns.stop().await;
}

/// A missing CRD or permission affects the zone of the cluster set alone.
#[tokio::test]
async fn missing_import_types_leave_other_zones() {
    for (code, resource) in [
        (404, Resource::ServiceImports),
        (403, Resource::ServiceImports),
    ] {
        let cluster = Cluster::start();
        cluster.set(web("10.112.0.1"));
        cluster.set(mk_cluster_ip("apps", "web", &["10.96.0.1"], &["http:80"]));
        let rule = cluster
            .faults
            .add(Rule::new(Action::Refuse { code }).on([resource]));
        let mut kubedns = Kubedns::start(&cluster, &FLAGS).await;
        kubedns.until_ready().await;
        assert_eq!(
            kubedns.answers("web.apps.svc.cluster.local.", "A").await,
            "10.96.0.1"
        );
        assert_eq!(
            kubedns.answers("web.apps.svc.clusterset.local.", "A").await,
            "SERVFAIL",
            "{code}"
        );
        let line = kubedns
            .process
            .line_with("a permission or the kind itself is missing", PATIENCE)
            .await;
        let fields =
            "kind=\"serviceimports\" verbs=\"list and watch\" needed_for=\"--clusterset-domain\"";
        assert!(line.starts_with('W') && line.contains(fields), "{line}");
        cluster.faults.remove(rule);
        kubedns
            .until_answered("web.apps.svc.clusterset.local.", "A", "10.112.0.1")
            .await;
        assert_eq!(
            kubedns.logged("a permission or the kind itself is missing"),
            1
        );
        kubedns.stop().await;
    }
}

#[tokio::test]
async fn imports_are_unwatched_without_flag() {
    let cluster = Cluster::start();
    cluster.set(web("10.112.0.1"));
    let kubedns = Kubedns::start(&cluster, &[]).await;
    kubedns.until_ready().await;
    let asked = cluster.faults.requests();
    assert!(
        asked
            .iter()
            .all(|request| request.resource != Resource::ServiceImports)
    );
    assert_ne!(
        kubedns.answers("web.apps.svc.clusterset.local.", "A").await,
        "10.112.0.1"
    );
    kubedns.stop().await;
}
