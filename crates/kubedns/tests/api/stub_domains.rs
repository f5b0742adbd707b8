//! Stub domains that overlap the cluster domain. With `--topology=drop-in`, dnsmasq is in front of
//! kubedns; with `--topology=direct`, dnsmasq is behind kubedns.

use testkit::upstream::Upstream;

use super::cluster::with_web;
use super::process::Kubedns;

#[tokio::test]
async fn stub_domain_of_cluster_is_warned_of() {
    let (cluster, config) = (with_web(), tempfile::tempdir().unwrap());
    let dnsmasq = Upstream::answering("198.51.100.1").await;
    let stub = Upstream::answering("198.51.100.2").await;
    let (dnsmasq, stub) = (format!("--nameservers={}", dnsmasq.addr()), stub.addr());
    let stubs = format!(r#"{{"cluster.local":["{stub}"],"corp.cluster.local":["{stub}"]}}"#);
    std::fs::write(config.path().join("stubDomains"), stubs).unwrap();
    let config = format!("--config-dir={}", config.path().display());
    let either = "dnsmasq asks kubedns, the stub domain's servers or both";
    let none = "the stub domain's servers are not asked";
    for (topology, below, effect) in [
        ("--topology=drop-in", "198.51.100.2", either),
        ("--topology=direct", "198.51.100.1", none),
    ] {
        let mut kubedns = Kubedns::ready(&cluster, &[&config, topology, &dnsmasq]).await;
        for (name, expected) in [
            ("web.apps.svc.cluster.local.", "10.96.0.7"),
            ("www.corp.cluster.local.", below),
        ] {
            let answer = kubedns.answers(name, "A").await;
            assert_eq!(answer, expected, "{topology} {name}");
        }
        let warning = "stub domain equals the cluster domain";
        let line = kubedns.logs(warning).await;
        assert!(line.starts_with('W') && line.contains(effect), "{line}");
        assert_eq!(kubedns.logged(warning), 1, "{topology}");
        kubedns.stop().await;
    }
}
