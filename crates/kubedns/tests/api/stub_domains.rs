//! Stub domains that overlap the cluster domain, and stub domains whose servers have names in the
//! cluster domain. With `--topology=drop-in`, dnsmasq is in front of kubedns; with
//! `--topology=direct`, dnsmasq is behind kubedns.

use testkit::objects::{mk_endpoint_slice, mk_headless};
use testkit::ports::free_port;
use testkit::upstream::Upstream;

use super::cluster::with_web;
use super::process::Kubedns;

#[tokio::test]
async fn stub_domain_equal_to_cluster_domain_causes_one_warning() {
    let (cluster, config) = (with_web(), tempfile::tempdir().unwrap());
    let dnsmasq = Upstream::answering("198.51.100.1").await;
    let stub = Upstream::answering("198.51.100.2").await;
    let (dnsmasq, stub) = (format!("--nameservers={}", dnsmasq.addr()), stub.addr());
    let stubs = format!(r#"{{"cluster.local":["{stub}"],"corp.cluster.local":["{stub}"]}}"#);
    std::fs::write(config.path().join("stubDomains"), stubs).unwrap();
    let config = format!("--config-dir={}", config.path().display());
    let either = "dnsmasq asks kubedns, the stub domain's servers or both";
    let none = "the stub domain's servers are asked only with --fallthrough";
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

/// While the cluster domain is being renamed, names of stub servers may be in any of the cluster
/// domains.
#[tokio::test]
async fn stub_server_name_may_be_in_any_cluster_domain() {
    let (cluster, config) = (with_web(), tempfile::tempdir().unwrap());
    let stub = Upstream::answering("198.51.100.2").await;
    cluster.set(mk_headless("apps", "ns", &["dns:53"]));
    let addresses = ["127.0.0.1"];
    cluster.set(mk_endpoint_slice(
        "apps",
        "ns",
        "1",
        &addresses,
        &["dns:53"],
    ));
    let port = stub.addr().port();
    let of_domain = |domain: &str| format!(r#"["ns.apps.svc.{domain}:{port}"]"#);
    let (new, old) = (of_domain("k8s.test"), of_domain("cluster.local"));
    let stubs = format!(r#"{{"new.example":{new},"old.example":{old}}}"#);
    std::fs::write(config.path().join("stubDomains"), stubs).unwrap();

    let config = format!("--config-dir={}", config.path().display());
    let domains = "--domain=k8s.test,cluster.local";
    // kubedns sends the queries for the names of the stub servers to its own port.
    let dns_port = format!("--dns-port={}", free_port());
    let flags = [&config, domains, &dns_port, "--topology=alone"];
    let kubedns = Kubedns::ready(&cluster, &flags).await;
    for name in ["www.new.example.", "www.old.example."] {
        kubedns.until_answered(name, "A", "198.51.100.2").await;
    }
    kubedns.stop().await;
}
