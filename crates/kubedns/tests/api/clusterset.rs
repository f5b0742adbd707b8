//! The zone of the cluster set: `ServiceImport`s and slices at the API server become answers.

use apiserver::{Action, Resource, Rule, RunningApiServer};
use testkit::objects::{mk_cluster_ip, mk_imported_slice, mk_service_import};

use super::process::Kubedns;

const FLAGS: [&str; 2] = ["--clusterset-domain=clusterset.local", "--ttl=5s"];
const WEB: &str = "web.apps.svc.clusterset.local.";
const DB: &str = "db.apps.svc.clusterset.local.";
/// A Service of the cluster itself. The cluster set has a Service with the same namespace and name.
const OWN_WEB: &str = "web.apps.svc.cluster.local.";

fn set_own_web(cluster: &RunningApiServer) {
    cluster.set(mk_cluster_ip("apps", "web", &["10.96.0.1"], &["http:80"]));
}

/// A slice of `db.apps` that was imported from `cluster`.
fn db_slice(cluster: &str, members: &[&str]) -> serde_json::Value {
    mk_imported_slice("apps", "db", cluster, members, &["sql:5432"])
}

fn web(ip: &str) -> serde_json::Value {
    mk_service_import("apps", "web", "ClusterSetIP", &[ip], &["http:80"])
}

#[tokio::test]
async fn service_imports_are_followed() {
    let cluster = RunningApiServer::empty();
    cluster.set(web("10.112.0.1"));
    cluster.set(mk_service_import(
        "apps",
        "db",
        "Headless",
        &[],
        &["sql:5432"],
    ));
    cluster.set(db_slice("east", &["10.1.0.1 db-0", "10.1.0.2 db-1"]));
    // The Service of the cluster itself must not change the answers for the cluster set.
    set_own_web(&cluster);
    let kubedns = Kubedns::start(&cluster, &FLAGS).await;
    let east = "db-0.east.db.apps.svc.clusterset.local.";
    for (name, rtype, expected) in [
        (WEB, "A", "10.112.0.1"),
        (WEB, "SRV", "10 100 80 web.apps.svc.clusterset.local."),
        (DB, "A", "10.1.0.1 10.1.0.2"),
        (east, "A", "10.1.0.1"),
        (OWN_WEB, "A", "10.96.0.1"),
        ("db.apps.svc.cluster.local.", "A", "NXDOMAIN"),
    ] {
        kubedns.until_answered(name, rtype, expected).await;
    }
    cluster.set(web("10.112.0.2"));
    cluster.set(db_slice("west", &["10.2.0.1 db-0"]));
    cluster.delete(Resource::EndpointSlices, "apps", "db-east");
    kubedns.until_answered(WEB, "A", "10.112.0.2").await;
    kubedns.until_answered(DB, "A", "10.2.0.1").await;
    kubedns.until_answered(east, "A", "NXDOMAIN").await;
    cluster.delete(Resource::ServiceImports, "apps", "web");
    kubedns.until_answered(WEB, "A", "NXDOMAIN").await;
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

#[tokio::test]
async fn missing_crd_or_permission_affects_only_clusterset_zone() {
    for code in [404, 403] {
        let cluster = RunningApiServer::empty();
        cluster.set(web("10.112.0.1"));
        set_own_web(&cluster);
        let refused = Rule::new(Action::Refuse { code }).on([Resource::ServiceImports]);
        let rule = cluster.faults.add(refused);
        let mut kubedns = Kubedns::ready(&cluster, &FLAGS).await;
        assert_eq!(kubedns.answers(OWN_WEB, "A").await, "10.96.0.1", "{code}");
        assert_eq!(kubedns.answers(WEB, "A").await, "SERVFAIL", "{code}");
        let line = kubedns
            .logs("a permission or the kind itself is missing")
            .await;
        let fields =
            "kind=\"serviceimports\" verbs=\"list and watch\" needed_for=\"--clusterset-domain\"";
        assert!(line.starts_with('W') && line.contains(fields), "{line}");
        cluster.faults.remove(rule);
        kubedns.until_answered(WEB, "A", "10.112.0.1").await;
        let logged = kubedns.logged("a permission or the kind itself is missing");
        assert_eq!(logged, 1);
        kubedns.stop().await;
    }
}

#[tokio::test]
async fn imports_are_unwatched_without_flag() {
    let cluster = RunningApiServer::empty();
    cluster.set(web("10.112.0.1"));
    let kubedns = Kubedns::ready(&cluster, &[]).await;
    let asked = cluster.faults.requests();
    assert!(
        asked
            .iter()
            .all(|request| request.resource != Resource::ServiceImports)
    );
    assert_ne!(kubedns.answers(WEB, "A").await, "10.112.0.1");
    kubedns.stop().await;
}
