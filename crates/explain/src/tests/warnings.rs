//! What makes an answer less trustworthy.

use dnsconfig::Rejection;

use super::cluster::Cluster;
use crate::document::{DnsmasqAsks, Outcome, Route};
use cluster::index::Progress;
use cluster::objects::{Change, Event, ObjectKey};
use testkit::objects::mk_cluster_ip;

fn codes(cluster: &Cluster) -> Vec<String> {
    let explanation = cluster.explain("web.apps.svc.cluster.local. A");
    explanation.warnings.into_iter().map(|warning| warning.code).collect()
}

#[test]
fn before_the_first_lists_are_in() {
    let cluster = Cluster::new();
    assert_eq!(codes(&cluster), ["not_synced"]);
    let explanation = cluster.explain("web.apps.svc.cluster.local. A");
    assert_eq!(explanation.verdict.outcome, Outcome::Refused);
    assert_eq!(explanation.detail.reasons[0].code, "not_synced");
    assert!(!explanation.server.synced);
    // The outside is not affected, an address may be one of the cluster's.
    assert_eq!(cluster.explain("www.example.com. A").verdict.outcome, Outcome::Forwarded);
    assert_eq!(cluster.explain("192.0.2.1").verdict.outcome, Outcome::Refused);
}

#[test]
fn the_state_of_the_server_is_told() {
    let mut cluster = Cluster::with_everything();
    assert_eq!(codes(&cluster), [""; 0]);
    cluster.server.lost = vec!["services", "endpoints"];
    cluster.server.draining = true;
    assert_eq!(codes(&cluster), ["api_server_lost", "draining"]);
    cluster.server.progress = Progress::Stale;
    assert_eq!(codes(&cluster), ["stale", "draining"]);
    assert_eq!(cluster.explain("web").server.records_from, "snapshot_file");
}

#[test]
fn a_rejected_configuration_is_told_with_the_one_in_force() {
    let mut cluster = Cluster::with_everything();
    cluster.server.config.error = Some(Rejection {
        text: "stubDomains: not JSON".to_owned(),
        key: None,
        value: None,
        at: std::time::UNIX_EPOCH,
    });
    let explanation = cluster.explain("web.apps");
    let version = cluster.server.config.version;
    let expected = format!(
        "the newest configuration is rejected: stubDomains: not JSON; version {version} stays in force, loaded 60 \
         minutes ago"
    );
    assert_eq!(explanation.warnings[0].text, expected);
    assert_eq!(explanation.server.config_rejected.as_deref(), Some("stubDomains: not JSON"));
    assert!(cluster.text("web.apps").contains(&format!("\nWARNING    {expected}\n")));
}

#[test]
fn stub_domains_that_dnsmasq_sees_otherwise_are_told() {
    let mut cluster = Cluster::with_everything();
    cluster.stub_domains(&[("apps.svc.cluster.local", "192.0.2.9"), ("corp.test", "ns.corp.test")]);
    let codes = |words: &str| {
        let detail = cluster.explain(words).detail;
        (detail.route, detail.reasons.into_iter().map(|reason| reason.code).collect::<Vec<_>>())
    };
    let (route, reasons) = codes("web.apps A");
    assert!(matches!(route, Route::ClusterDomain { .. }));
    assert_eq!(reasons, ["stub_domain_shadows_cluster"]);
    let (route, reasons) = codes("www.corp.test. A");
    assert!(matches!(route, Route::Upstreams { .. }));
    assert_eq!(reasons, ["stub_servers_by_name"]);
}

#[test]
fn a_stub_domain_that_is_one_of_ours_stands_beside_kubedns() {
    let mut cluster = Cluster::with_everything();
    let domains = ["cluster.local", "in-addr.arpa", "ip6.arpa"];
    cluster.stub_domains(&domains.map(|domain| (domain, "192.0.2.9")));
    for (words, domain) in [
        ("web.apps.svc.cluster.local. A", "cluster.local"),
        ("wbe.apps.svc.cluster.local. A", "cluster.local"),
        ("10.96.0.10", "in-addr.arpa"),
        ("192.0.2.1", "in-addr.arpa"),
        ("fd00:10::a", "ip6.arpa"),
    ] {
        let detail = cluster.explain(words).detail;
        assert_eq!(detail.dnsmasq.asks, DnsmasqAsks::KubednsAndStubDomain, "{words}");
        assert_eq!(detail.dnsmasq.keeps_seconds, None, "{words}");
        assert_eq!(detail.reasons.last().unwrap().code, "stub_domain_beside_kubedns", "{words}");
        let way = format!(
            "way        dnsmasq asks kubedns or 192.0.2.9:53 of the stub domain {domain}, and takes the answer of either"
        );
        let text = cluster.text(words);
        assert!(text.lines().any(|line| line == way), "{text}");
    }
    // A stub domain above the cluster domain does not take its names.
    let mut cluster = Cluster::with_everything();
    cluster.stub_domains(&[("local", "192.0.2.9")]);
    let detail = cluster.explain("web.apps.svc.cluster.local. A").detail;
    assert_eq!((detail.dnsmasq.asks, detail.reasons), (DnsmasqAsks::Kubedns, Vec::new()));
}

#[test]
fn a_deleted_service_is_told_with_its_time() {
    let mut cluster = Cluster::with_everything();
    let key = |name: &str| ObjectKey::new("prod", name);
    for name in ["web", "redis-master"] {
        cluster.index.apply(Event::Service(Change::Deleted(key(name))));
    }
    cluster.index.publish();
    for (words, name) in [("web.prod", "web"), ("redis-master.prod.svc.cluster.local", "redis-master")] {
        let reason = &cluster.explain(words).detail.reasons[0];
        let text = format!("there is no Service {name:?} in namespace prod any more: it was seen deleted 20");
        assert_eq!(reason.code, "service_deleted");
        assert!(reason.text.starts_with(&text), "{}", reason.text);
    }
    // The memory is bounded, and one that is there again is not gone.
    for number in 0..300 {
        let name = format!("web-{number}");
        cluster.service(&mk_cluster_ip("prod", &name, &["10.96.3.1"], &["http:80"]));
        cluster.index.apply(Event::Service(Change::Deleted(key(&name))));
    }
    cluster.service(&mk_cluster_ip("prod", "web-299", &["10.96.3.1"], &["http:80"]));
    cluster.index.publish();
    let reasons = |words| cluster.explain(words).detail.reasons.into_iter().map(|reason| reason.code);
    assert!(reasons("web-298.prod").eq(["service_deleted"]));
    assert!(reasons("redis-master.prod").eq(["no_such_service"]));
    assert!(!reasons("web-299.prod").any(|code| code == "service_deleted"));
}

#[test]
fn with_kubedns_in_front_the_way_is_not_through_dnsmasq() {
    let mut cluster = Cluster::with_everything();
    cluster.in_front = true;
    for (words, way) in [
        ("web.apps.svc.cluster.local. A", "pods ask kubedns itself (port 53)"),
        ("www.example.com. A", "pods ask kubedns itself (port 53), which asks 192.0.2.53:53"),
        ("www.acme.test. A", "pods ask kubedns itself (port 53), which asks 192.0.2.7:53"),
        (
            "10.244.1.20",
            "pods ask kubedns itself (port 53), which asks 192.0.2.53:53 for addresses it does not know",
        ),
    ] {
        let text = cluster.text(words);
        let said = text.lines().find_map(|line| line.strip_prefix("way        "));
        assert_eq!(said, Some(way), "{words}");
    }
}
