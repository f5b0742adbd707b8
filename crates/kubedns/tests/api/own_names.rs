//! Hosts and aliases of the configuration. The answers follow valid edits of the hosts, and changes
//! of the Service of an alias.

use apiserver::RunningApiServer;
use serde_json::json;
use testkit::objects::{mk_cluster_ip, mk_external_name};
use testkit::upstream::Upstream;

use super::process::Kubedns;

const DB: &str = "db.acme.example.";
const REGISTRY: &str = "registry.acme.example.";

#[tokio::test]
async fn hosts_follow_valid_edits_and_aliases_follow_services() {
    let (cluster, config) = (RunningApiServer::empty(), tempfile::tempdir().unwrap());
    let registry = mk_cluster_ip("infra", "registry", &["10.96.0.7"], &["http:80"]);
    cluster.set(registry);
    let upstream = Upstream::answering("198.51.100.1").await;
    let write = |key: &str, text: &str| std::fs::write(config.path().join(key), text).unwrap();
    let hosts = "192.0.2.20 db.acme.example db\n2001:db8::20 db.acme.example\n";
    write("hosts", hosts);
    write("aliases", r#"{"registry.acme.example": "registry.infra"}"#);
    let directory = format!("--config-dir={}", config.path().display());
    let servers = format!("--nameservers={}", upstream.addr());
    let kubedns = Kubedns::ready(&cluster, &[&directory, &servers]).await;
    for (name, rtype, expected) in [
        (DB, "A", "192.0.2.20"),
        ("DB.acme.example.", "AAAA", "2001:db8::20"),
        ("20.2.0.192.in-addr.arpa.", "PTR", "db. db.acme.example."),
        ("below.db.acme.example.", "A", "198.51.100.1"),
        (REGISTRY, "A", "10.96.0.7"),
        (
            "_http._tcp.registry.acme.example.",
            "SRV",
            "10 100 80 registry.infra.svc.cluster.local.",
        ),
    ] {
        assert_eq!(
            kubedns.answers(name, rtype).await,
            expected,
            "{name} {rtype}"
        );
    }
    // The Service becomes an ExternalName, so the alias has the address of an external name.
    cluster.set(mk_external_name("infra", "registry", "www.example.com"));
    kubedns.until_answered(REGISTRY, "A", "198.51.100.1").await;
    write("hosts", "192.0.2.21 db.acme.example\n");
    kubedns.until_answered(DB, "A", "192.0.2.21").await;

    // If a name is rejected, the previous configuration stays in force, and the log has the reason.
    let invalid = "192.0.2.22 db.acme.example\n192.0.2.23 web.apps.svc.cluster.local\n";
    write("hosts", invalid);
    kubedns.until_metric("kubedns_config_current", 0.0).await;
    assert_eq!(kubedns.answers(DB, "A").await, "192.0.2.21");
    let reason = "is in the cluster domain, which is reserved for Services";
    assert_eq!(kubedns.logged(reason), 1);
    let (_, explained) = kubedns.get("/explain?name=registry.acme.example.").await;
    let route = serde_json::from_str::<serde_json::Value>(&explained)
        .map(|it| it["detail"]["route"].clone());
    assert_eq!(route.ok(), Some(json!({"kind": "own_name"})), "{explained}");
    kubedns.stop().await;
}
