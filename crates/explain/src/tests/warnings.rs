//! Warnings, and the reasons and paths that depend on stub domains, the topology, deleted Services,
//! or missing ports and endpoints.

use cluster::index::SyncProgress;
use cluster::objects::{Change, Event, ObjectKey};
use dnsconfig::ConfigRejection;
use reports::kubedns::{NodeReport, NodeServers};
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_headless};
use wire::Name;

use super::cluster::{Cluster, mk_unready};
use crate::document::{DnsmasqAsks, LookupOutcome, NameRoute};
use crate::{DnsmasqTopology, FailingCause, FailingUpstream};

const WEB: &str = "web.apps.svc.cluster.local. A";

fn warning_codes(cluster: &Cluster) -> Vec<String> {
    cluster
        .explain(WEB)
        .warnings
        .into_iter()
        .map(|warning| warning.code)
        .collect()
}

fn rejection() -> ConfigRejection {
    ConfigRejection {
        text: "stubDomains: not JSON".to_owned(),
        key: None,
        value: None,
        at: std::time::UNIX_EPOCH,
    }
}

#[test]
fn cluster_names_before_first_lists_are_refused() {
    let cluster = Cluster::new();
    assert_eq!(warning_codes(&cluster), ["not_synced"]);
    assert_eq!(cluster.reasons(WEB), ["not_synced"]);
    assert!(!cluster.explain(WEB).server.synced);
    // External names resolve before the first lists. Reverse names do not: the address may be in
    // the cluster.
    for (words, outcome) in [
        (WEB, LookupOutcome::Refused),
        ("www.example.com. A", LookupOutcome::Forwarded),
        ("192.0.2.1", LookupOutcome::Refused),
    ] {
        assert_eq!(cluster.explain(words).verdict.outcome, outcome, "{words}");
    }
}

#[test]
fn server_state_causes_warnings() {
    let mut cluster = Cluster::with_everything();
    assert_eq!(warning_codes(&cluster), [""; 0]);
    cluster.server.lost_watches = vec!["namespaces".to_owned(), "services".to_owned()];
    cluster.server.draining = true;
    assert_eq!(warning_codes(&cluster), ["api_server_lost", "draining"]);
    let text = "no watch of namespaces and services is open: kubedns does not see their changes";
    cluster.expect(["/warnings/0/text"], &[(WEB, [text])]);
    cluster.server.progress = SyncProgress::Stale;
    assert_eq!(warning_codes(&cluster), ["stale", "draining"]);
    assert_eq!(cluster.explain("web").server.records_from, "snapshot_file");
}

#[test]
fn node_line_says_which_pod_answers() {
    let mut cluster = Cluster::with_everything();
    let text = cluster.text(WEB);
    assert!(!text.contains("\nnode "), "{text}");

    cluster.server.node = Some(NodeReport {
        name: "node-1".to_owned(),
        servers: Some(NodeServers::Own),
        elsewhere: None,
    });
    let line = "\nnode       clients on node-1 are answered by the DNS pod of this node\n";
    let text = cluster.text(WEB);
    assert!(text.contains(line), "{text}");
}

#[test]
fn warning_of_rejected_config_names_version_in_force() {
    let mut cluster = Cluster::with_everything();
    cluster.server.config.error = Some(rejection());
    let version = cluster.server.config.version;
    let expected = format!(
        "the newest configuration is rejected: stubDomains: not JSON; version {version}, loaded 60 minutes ago, \
         stays in force"
    );
    let rows = [("web.apps", [expected.as_str(), "stubDomains: not JSON"])];
    cluster.expect(["/warnings/0/text", "/server/config_rejected"], &rows);
    let warning = format!("\nWARNING    {expected}\n");
    assert!(cluster.text("web.apps").contains(&warning));
}

#[test]
fn misspelt_keys_cause_warnings() {
    let mut cluster = Cluster::with_everything();
    let data = [("stubDomain".to_owned(), Vec::new())].into();
    cluster.server.config.unknown_keys = dnsconfig::unknown_keys(&data);
    // No configuration has been accepted yet.
    cluster.server.config.config = dnsconfig::Config::default().into();
    cluster.server.config.error = Some(rejection());
    let expected =
        "the newest configuration is rejected: stubDomains: not JSON; the defaults are in force";
    let unknown = "ConfigMap: unknown key \"stubDomain\" is ignored: did you mean stubDomains?";
    let codes = ["config_rejected", "config_unknown_key"];
    assert_eq!(warning_codes(&cluster), codes);
    let pointers = ["/warnings/0/text", "/warnings/1/text"];
    cluster.expect(pointers, &[(WEB, [expected, unknown])]);
}

#[test]
fn stub_domain_below_cluster_domain_is_in_reasons() {
    let mut cluster = Cluster::with_everything();
    cluster.add_stub_domains(&[("apps.svc.cluster.local", "192.0.2.9")]);
    // dnsmasq sends the query to the server of the stub domain. kubedns would answer the query, but
    // never receives it.
    assert!(matches!(
        cluster.explain("web.apps A").detail.route,
        NameRoute::ClusterDomain { .. }
    ));
    let reasons = cluster.reasons("web.apps A");
    assert_eq!(reasons, ["stub_domain_shadows_cluster"]);
}

#[test]
fn stub_domain_equal_to_zone_of_kubedns_is_in_reasons_and_path() {
    let mut cluster = Cluster::with_everything();
    let domains = ["cluster.local", "in-addr.arpa", "ip6.arpa"];
    cluster.add_stub_domains(&domains.map(|domain| (domain, "192.0.2.9")));
    for (words, domain) in [
        (WEB, "cluster.local"),
        ("wbe.apps.svc.cluster.local. A", "cluster.local"),
        ("10.96.0.10", "in-addr.arpa"),
        ("192.0.2.1", "in-addr.arpa"),
        ("fd00:10::a", "ip6.arpa"),
    ] {
        let dnsmasq = cluster.explain(words).detail.dnsmasq;
        assert_eq!(dnsmasq.asks, DnsmasqAsks::KubednsAndStubDomain);
        assert_eq!(dnsmasq.keeps_seconds, None);
        let reasons = cluster.reasons(words);
        assert_eq!(
            reasons.last().unwrap(),
            "stub_domain_beside_kubedns",
            "{words}"
        );
        let way = format!(
            "\npath       dnsmasq asks kubedns or 192.0.2.9:53 of the stub domain {domain}, or both, and the \
             first answer counts\n"
        );
        let text = cluster.text(words);
        assert!(text.contains(&way), "{text}");
    }
    // A stub domain that contains the cluster domain does not apply to cluster names.
    let mut cluster = Cluster::with_everything();
    cluster.add_stub_domains(&[("local", "192.0.2.9")]);
    let detail = cluster.explain(WEB).detail;
    assert_eq!(detail.dnsmasq.asks, DnsmasqAsks::Kubedns);
    assert_eq!(detail.reasons, []);
}

#[test]
fn cluster_ip_service_without_ports_gets_reason() {
    let mut cluster = Cluster::with_everything();
    cluster.add_service(&mk_cluster_ip("prod", "portless", &["10.96.3.7"], &[]));
    cluster.add_service(&mk_headless("prod", "portless-set", &[]));
    cluster.add_endpoints(&mk_endpoints("prod", "portless-set", &["10.244.1.40"], &[]));
    cluster.index.publish();

    let text = "the name resolves, but connections fail: Service prod/portless has no ports";
    let pointers = [
        "/verdict/outcome",
        "/detail/reasons/0/code",
        "/detail/reasons/0/text",
    ];
    let words = "portless.prod.svc.cluster.local. A";
    cluster.expect(pointers, &[(words, ["answered", "no_ports", text])]);
    assert_eq!(cluster.reasons("web.prod.svc.cluster.local. A"), [""; 0]);
    let reasons = cluster.reasons("portless-set.prod.svc.cluster.local. A");
    assert_eq!(
        reasons, [""; 0],
        "a headless Service without ports must get no reason"
    );
}

#[test]
fn reason_gives_time_of_deletion() {
    let mut cluster = Cluster::with_everything();
    let deleted = |name: &str| Event::Service(Change::Deleted(ObjectKey::new("prod", name)));
    cluster.index.apply(deleted("web"));
    cluster.index.apply(deleted("redis-master"));
    cluster.index.publish();
    let redis = "redis-master.prod.svc.cluster.local";
    for (words, name) in [("web.prod", "web"), (redis, "redis-master")] {
        let reason = &cluster.explain(words).detail.reasons[0];
        // The time varies, so only the first two digits of the year are compared.
        let text = format!(
            "there is no Service {name:?} in namespace prod any more: kubedns saw its deletion at 20"
        );
        assert_eq!(reason.code, "service_deleted");
        assert!(reason.text.starts_with(&text), "{}", reason.text);
    }
}

/// The list of deleted Services has a maximum length. A Service that exists again is removed from
/// the list.
#[test]
fn old_deletions_are_forgotten() {
    let mut cluster = Cluster::with_everything();
    let deleted = |name: &str| Event::Service(Change::Deleted(ObjectKey::new("prod", name)));
    cluster.index.apply(deleted("redis-master"));
    let again = |name: &str| mk_cluster_ip("prod", name, &["10.96.3.1"], &["http:80"]);
    for name in (0..300).map(|number| format!("web-{number}")) {
        cluster.add_service(&again(&name));
        cluster.index.apply(deleted(&name));
    }
    cluster.add_service(&again("web-299"));
    cluster.index.publish();
    assert_eq!(cluster.reasons("web-298.prod"), ["service_deleted"]);
    assert_eq!(cluster.reasons("redis-master.prod"), ["no_such_service"]);
    let reasons = cluster.reasons("web-299.prod");
    assert!(!reasons.contains(&"service_deleted".to_owned()));
}

#[test]
fn direct_topology_bypasses_dnsmasq() {
    let mut cluster = Cluster::with_everything();
    cluster.topology = DnsmasqTopology::Direct;
    for (words, beyond) in [
        (WEB, ""),
        ("www.example.com. A", ", and kubedns asks 192.0.2.53:53"),
        ("www.acme.test. A", ", and kubedns asks 192.0.2.7:53"),
        (
            "10.244.1.20",
            ", and kubedns asks 192.0.2.53:53 for unknown addresses",
        ),
    ] {
        let text = cluster.text(words);
        let way = format!("\npath       pods ask kubedns itself (port 53){beyond}\n");
        assert!(text.contains(&way), "{text}");
    }
}

#[test]
fn cache_topology_sends_all_to_kubedns() {
    let mut cluster = Cluster::with_everything();
    cluster.topology = DnsmasqTopology::Cache;
    // In the drop-in topology, dnsmasq would send the query for 10.96.0.12 to the server of the
    // stub domain.
    cluster.add_stub_domains(&[("10.in-addr.arpa", "192.0.2.10")]);
    for (words, way) in [
        (
            WEB,
            "cluster.local; dnsmasq caches the answer for up to 30 s",
        ),
        (
            "10.96.0.12",
            "10.in-addr.arpa, and kubedns asks 192.0.2.53:53 for unknown addresses; dnsmasq caches the answer for up to 30 s",
        ),
        (
            "www.example.com. A",
            "all names, and kubedns asks 192.0.2.53:53",
        ),
        (
            "www.acme.test. A",
            "acme.test, and kubedns asks 192.0.2.7:53 of the stub domain acme.test",
        ),
    ] {
        let text = cluster.text(words);
        let way = format!("\npath       dnsmasq asks kubedns for {way}\n");
        assert!(text.contains(&way), "{text}");
        assert!(!text.contains("if kubedns were asked"), "{text}");
    }
}

fn mk_failing(domain: Option<&str>, server: &str, cause: FailingCause) -> FailingUpstream {
    FailingUpstream {
        domain: domain.map(|domain| Name::parse(domain).unwrap()),
        server: server.to_owned(),
        cause,
    }
}

#[test]
fn warnings_give_failing_upstreams_of_queried_name() {
    let mut cluster = Cluster::with_everything();
    cluster.topology = DnsmasqTopology::Cache;
    cluster.server.failing = vec![
        mk_failing(None, "192.0.2.53:53", FailingCause::Down),
        mk_failing(None, "192.0.2.54:53", FailingCause::Loop),
        mk_failing(
            Some("acme.test"),
            "ns.acme.test:53",
            FailingCause::WithoutAddress,
        ),
    ];
    let down = |name: &str| {
        format!(
            "no upstream of {name} answers now (192.0.2.53:53): unless the name is cached, it does not resolve until an \
             upstream answers"
        )
    };
    let left_out =
        "upstream 192.0.2.54:53 is left out: it is kubedns itself, or forwards back to kubedns";
    let unresolved = "upstream ns.acme.test:53 is left out: its name has no address, see the log for the failed look-up";
    for (words, first, second) in [
        ("www.example.com. A", left_out, down("www.example.com.")),
        ("docs.apps A", left_out, down("docs.example.com.")),
        ("wbe.apps A", left_out, down("wbe.apps.")),
        ("x.acme.test. A", unresolved, String::new()),
        ("web.apps A", "", String::new()),
        ("10.96.0.10", "", String::new()),
    ] {
        let pointers = ["/warnings/0/text", "/warnings/1/text"];
        cluster.expect(pointers, &[(words, [first, &second])]);
    }
}

#[test]
fn failing_upstream_beside_others_gets_warning() {
    let mut cluster = Cluster::with_everything();
    let mut config = (*cluster.server.config.config).clone();
    config.upstream_nameservers = ["192.0.2.53", "192.0.2.54"]
        .map(|server| server.parse().unwrap())
        .into();
    cluster.server.config.config = config.into();
    cluster.server.failing = vec![
        mk_failing(None, "192.0.2.53:53", FailingCause::Down),
        // This server is not in the configuration, so dnsmasq never queries it.
        mk_failing(None, "192.0.2.55:53", FailingCause::Down),
    ];
    let text =
        "there is no answer now from upstream 192.0.2.53:53: the other upstreams are asked first";
    let pointers = ["/warnings/0/code", "/warnings/0/text", "/warnings/1/text"];
    cluster.expect(
        pointers,
        &[("www.example.com. A", ["upstream_down", text, ""])],
    );
}

#[test]
fn reason_for_missing_endpoints_gives_kubectl_command() {
    let mut cluster = Cluster::with_everything();
    let pointers = ["/detail/reasons/0/code", "/detail/reasons/1/text"];
    let command = |namespace: &str, name: &str| {
        format!(
            r#"see kubectl -n {namespace} get pods -l "$(kubectl -n {namespace} get service {name} -o jsonpath='{{.spec.selector}}' | tr -d '{{}}"' | tr : =)""#
        )
    };
    let of_redis = command("prod", "redis-master");
    let of_redis = ("redis-master.prod A", ["nobody_behind", of_redis.as_str()]);
    let of_queue = command("apps", "queue");
    let of_queue = ("queue.apps A", ["no_ready_endpoints", of_queue.as_str()]);
    cluster.expect(pointers, &[of_redis, of_queue]);

    // The command is the same if the Service has addresses that are not ready.
    let unready = mk_unready(("prod", "redis-master"), &[], &["10.244.1.9"], "redis:6379");
    cluster.add_endpoints(&unready);
    cluster.index.publish();
    cluster.expect(pointers, &[of_redis]);
}
