//! Stub domains that overlap the cluster domain, with dnsmasq behind kubedns and in front of it.

use testkit::objects::mk_cluster_ip;
use testkit::upstream::Upstream;

use super::cluster::Cluster;
use super::process::Kubedns;

#[tokio::test]
async fn stub_domain_of_cluster_is_warned_of() {
    let (cluster, config) = (Cluster::start(), tempfile::tempdir().unwrap());
    cluster.set(mk_cluster_ip("apps", "web", &["10.96.0.7"], &["http:80"]));
    let (dnsmasq, stub) = (
        Upstream::answering("198.51.100.1").await,
        Upstream::answering("198.51.100.2").await,
    );
    let (dnsmasq, stub) = (format!("--nameservers={}", dnsmasq.addr()), stub.addr());
    let stubs = format!(r#"{{"cluster.local":["{stub}"],"corp.cluster.local":["{stub}"]}}"#);
    std::fs::write(config.path().join("stubDomains"), stubs).unwrap();
    let config = format!("--config-dir={}", config.path().display());
    for (topology, below, effect) in [
        (
            "--topology=drop-in",
            "198.51.100.2",
            "dnsmasq asks kubedns or its servers",
        ),
        (
            "--topology=direct",
            "198.51.100.1",
            "its servers are not asked",
        ),
    ] {
        let kubedns = Kubedns::start(&cluster, &[&config, topology, &dnsmasq]).await;
        kubedns.until_ready().await;
        for (name, expected) in [
            ("web.apps.svc.cluster.local.", "10.96.0.7"),
            ("www.corp.cluster.local.", below),
        ] {
            assert_eq!(
                kubedns.answers(name, "A").await,
                expected,
                "{topology} {name}"
            );
        }
        let log = kubedns.process.stderr();
        let told: Vec<&String> = log
            .iter()
            .filter(|line| line.contains("stub domain equals the cluster domain"))
            .collect();
        assert_eq!(told.len(), 1, "{topology}: {log:#?}");
        assert!(
            told[0].starts_with('W') && told[0].contains(effect),
            "{}",
            told[0]
        );
        kubedns.stop().await;
    }
}
