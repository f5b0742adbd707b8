//! Explanations of names whose answers depend on stub domains, the hosts file of dnsmasq, upstream
//! servers, search lists or other settings.

use std::path::Path;
use std::sync::Arc;

use cluster::objects::{Change, Event, FromApi as _, Node};
use skydns::{Search, StubDomain, Zone};
use testkit::objects::mk_node;
use wire::Name;
use wire::Upstream;

use super::cluster::Cluster;
use super::transcript;
use crate::DnsmasqTopology;
use crate::document::{DnsmasqAsks, LookupOutcome};
use crate::facts::dnsmasq_arguments::DnsmasqArguments;

/// A cluster whose dnsmasq has stub domains below `cluster.local` and `in-addr.arpa`.
fn cluster() -> Cluster {
    let mut cluster = Cluster::with_everything();
    cluster.add_stub_domains(&[
        ("corp.cluster.local", "192.0.2.9"),
        ("10.in-addr.arpa", "192.0.2.10"),
    ]);
    cluster
}

#[test]
fn transcript_of_search_lists_matches_output() {
    transcript::compare(&cluster(), include_str!("ways.txt"), 1);
}

#[test]
fn stub_domain_of_dnsmasq_in_front_takes_cluster_names() {
    let mut cluster = cluster();
    let corp = "192.0.2.9:53 of the stub domain corp.cluster.local";
    let reverse = "192.0.2.10:53 of the stub domain 10.in-addr.arpa";
    for (words, name, server) in [
        (
            "host.corp.cluster.local. A",
            "host.corp.cluster.local.",
            corp,
        ),
        ("10.96.0.12", "12.0.96.10.in-addr.arpa.", reverse),
        ("10.96.12.80", "80.12.96.10.in-addr.arpa.", reverse),
    ] {
        let text =
            format!("belongs to a stub domain, not to kubedns: {name} is forwarded to {server}");
        let pointers = ["/verdict/outcome", "/verdict/text"];
        cluster.expect(pointers, &[(words, ["forwarded", &text])]);
        let reasons = cluster.reasons(words);
        assert_eq!(reasons, ["stub_domain_shadows_cluster"], "{words}");
    }
    // Here only dnsmasq has the stub domains. So without dnsmasq in front, kubedns answers these
    // names itself.
    cluster.topology = DnsmasqTopology::Direct;
    let rows = [
        ("host.corp.cluster.local. A", ["nx_domain"]),
        ("10.96.0.12", ["answered"]),
    ];
    cluster.expect(["/verdict/outcome"], &rows);
}

#[test]
fn stub_domain_below_cluster_is_forwarded() {
    let servers: Arc<[Upstream]> = ["192.0.2.9:53".parse().unwrap()].into();
    let corp = (Name::parse("corp.cluster.local").unwrap(), servers);
    let mut cluster = with_zone(|zone| zone.with_stub_domains([corp]), true);
    cluster.add_stub_domains(&[("corp.cluster.local", "192.0.2.9")]);
    for topology in [
        DnsmasqTopology::DropIn,
        DnsmasqTopology::Cache,
        DnsmasqTopology::Direct,
        DnsmasqTopology::Alone,
    ] {
        cluster.topology = topology;
        let rows = [
            ("host.corp.cluster.local. A", ["forwarded"]),
            ("web.apps.svc.cluster.local. A", ["answered"]),
        ];
        cluster.expect(["/verdict/outcome"], &rows);
        let explanation = cluster.explain("host.corp.cluster.local. A");
        let text = &explanation.verdict.text;
        assert!(
            text.contains("192.0.2.9:53") && text.contains("corp.cluster.local"),
            "{text}"
        );
        assert_eq!(explanation.detail.reasons, []);
    }
}

#[test]
fn hosts_file_overrides_records_only_if_dnsmasq_in_front_reads_it() {
    let mut cluster = cluster();
    cluster.hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/hosts");
    transcript::compare(&cluster, include_str!("hosts.txt"), 6);
    let path = |cluster: &Cluster| cluster.text("localhost. A").contains("/etc/hosts");
    assert!(path(&cluster));
    cluster.arguments = Some(DnsmasqArguments::parse(&["--no-hosts".to_owned()]));
    assert!(
        !path(&cluster),
        "a file that dnsmasq does not read must not be shown"
    );
    // With kubedns in front, the hosts file of dnsmasq does not matter.
    for topology in [DnsmasqTopology::Direct, DnsmasqTopology::Alone] {
        cluster.topology = topology;
        let reasons = cluster.reasons("localhost. A");
        assert_eq!(reasons, ["single_label"], "{topology:?}");
    }
}

#[test]
fn single_label_is_forwarded_by_dnsmasq() {
    let mut cluster = cluster();
    let last = ["/verdict/outcome", "/tried/3/outcome", "/tried/3/summary"];
    let asked = "to the servers of the node's resolv.conf";
    cluster.expect(last, &[("intra A", ["forwarded", "forwarded", asked])]);
    let mut config = (*cluster.server.config.config).clone();
    config.upstream_nameservers = vec!["192.0.2.11".parse().unwrap()];
    cluster.server.config.config = config.into();
    let asked = "to upstream 192.0.2.11:53";
    cluster.expect(last, &[("intra A", ["forwarded", "forwarded", asked])]);
    // In the topology `direct`, kubedns does not forward names of one label.
    cluster.topology = DnsmasqTopology::Direct;
    let said = "kubedns does not forward names of one label (SERVFAIL)";
    cluster.expect(last, &[("intra A", ["nx_domain", "serv_fail", said])]);
}

/// dnsmasq has no setting for a server that must be queried only over TCP or over TLS. If a list
/// contains such a server, dnsmasq asks kubedns, which queries the servers of the list.
#[test]
fn servers_over_tls_are_queried_by_kubedns() {
    let mut cluster = Cluster::with_everything();
    let mut config = (*cluster.server.config.config).clone();
    let servers = ["192.0.2.11", "tls://192.0.2.12#dns.example"];
    config.upstream_nameservers = servers.iter().map(|text| text.parse().unwrap()).collect();
    config.stub_domains.insert(
        "corp.test".to_owned(),
        vec!["tcp://192.0.2.13".parse().unwrap()],
    );
    config
        .stub_domains
        .insert("plain.test".to_owned(), vec!["192.0.2.14".parse().unwrap()]);
    cluster.server.config.config = config.into();

    for (name, asks) in [
        ("www.example.com.", DnsmasqAsks::Kubedns),
        ("a.corp.test.", DnsmasqAsks::Kubedns),
        ("a.plain.test.", DnsmasqAsks::StubDomain),
    ] {
        let explanation = cluster.explain(&format!("{name} A"));
        assert_eq!(explanation.detail.dnsmasq.asks, asks, "{name}");
    }
}

#[test]
fn kubedns_alone_forwards_external_names() {
    let upstreams: Arc<[Upstream]> = ["192.0.2.11:53".parse().unwrap()].into();
    let mut cluster = with_zone(
        |zone| Zone {
            forwards_all: true,
            upstreams,
            ..zone
        },
        true,
    );
    cluster.topology = DnsmasqTopology::Alone;
    assert!(cluster.topology.forwards_all());
    for name in ["intra.", "www.example.com."] {
        let explanation = cluster.explain(&format!("{name} A"));
        let asked =
            format!("is not a name of this cluster: {name} is forwarded to upstream 192.0.2.11:53");
        assert_eq!(explanation.verdict.outcome, LookupOutcome::Forwarded);
        assert_eq!(explanation.verdict.text, asked);
        assert_eq!(explanation.detail.dnsmasq.asks, DnsmasqAsks::NotInFront);
        assert_eq!(explanation.detail.dnsmasq.servers, ["192.0.2.11:53"]);
    }
    cluster.expect(["/verdict/outcome"], &[("web.apps A", ["answered"])]);
}

/// A cluster whose zone is the result of `change`. `has_upstreams` is whether upstream servers are
/// configured.
fn with_zone(change: impl FnOnce(Zone) -> Zone, has_upstreams: bool) -> Cluster {
    let mut cluster = Cluster::with_everything();
    cluster
        .index
        .set_zone(change(cluster.published.get().zone.clone()));
    cluster.index.publish();
    cluster.server.has_upstreams = has_upstreams;
    cluster
}

/// A cluster whose kubedns walks this search list.
fn searching(search: Search) -> Cluster {
    let search = Some(Arc::new(search));
    with_zone(|zone| Zone { search, ..zone }, true)
}

#[test]
fn name_below_search_suffix_is_tried_with_each_search_domain() {
    let search = Search::new(
        Some(&Name::parse("search.cluster.local").unwrap()),
        false,
        [Name::parse("corp.test").unwrap()],
    );
    let cluster = searching(search);
    let pointers = [
        "/verdict/outcome",
        "/tried/0/name",
        "/tried/1/name",
        "/tried/4/name",
    ];
    for (name, outcome, last) in [
        ("web", "answered", ""),
        ("web.apps", "answered", "web.apps."),
        ("www.example.com", "forwarded", "www.example.com."),
    ] {
        let words = format!("{name}.prod.search.cluster.local. A");
        let first = format!("{name}.prod.svc.cluster.local.");
        let second = format!("{name}.svc.cluster.local.");
        let expected = [outcome, &first, &second, last];
        cluster.expect(pointers, &[(&words, expected)]);
    }
    let list = [("prod.search.cluster.local. A", ["no_data"])];
    cluster.expect(["/verdict/outcome"], &list);

    // kubedns does not try `gone.`, the name without a search domain: in the topology `drop-in`,
    // kubedns does not forward names of one label.
    let text = cluster.text("gone.prod.search.cluster.local. A");
    for expected in [
        "does not resolve in this cluster; as gone.corp.test., the name is forwarded to",
        "\nqueries    kubedns walks the search list (--search-suffix)\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn walked_list_has_configured_search_domains() {
    let search = Search::new(None, true, [Name::parse("corp.test").unwrap()]);
    let cluster = searching(search);
    let pointers = ["/tried/3/name", "/tried/4/name"];
    for (name, expected) in [
        (
            "www.example.com",
            ["www.example.com.corp.test.", "www.example.com."],
        ),
        // A name with at least `ndots` dots is first queried unchanged, then with each search
        // domain.
        (
            "a.b.c.d.e.f",
            ["a.b.c.d.e.f.cluster.local.", "a.b.c.d.e.f.corp.test."],
        ),
        ("www.example.com.", ["", ""]),
    ] {
        cluster.expect(pointers, &[(&format!("{name} A"), expected)]);
    }
}

#[test]
fn other_cluster_domain_has_same_names() {
    let new = Name::parse("new.example").unwrap();
    let mut cluster = with_zone(
        |zone| Zone {
            other_domains: [new].into(),
            ..zone
        },
        true,
    );
    cluster.topology = DnsmasqTopology::Direct;
    let pointers = [
        "/verdict/outcome",
        "/detail/route/domain",
        "/detail/place/kind",
    ];
    for (name, outcome) in [("web", "answered"), ("gone", "nx_domain")] {
        let words = format!("{name}.prod.svc.new.example. A");
        let expected = [outcome, "new.example.", "service"];
        cluster.expect(pointers, &[(&words, expected)]);
    }
}

#[test]
fn missing_name_below_fallthrough_domain_is_forwarded() {
    let svc = Name::parse("svc.cluster.local").unwrap();
    let cluster = with_zone(
        |zone| Zone {
            fallthrough: [svc].into(),
            ..zone
        },
        true,
    );
    let text = "is not a name of this cluster: vm.prod.svc.cluster.local. is forwarded to the upstream servers";
    cluster.expect(
        ["/verdict/outcome", "/verdict/text"],
        &[("vm.prod.svc.cluster.local. A", ["forwarded", text])],
    );
    let below = [("vm.cluster.local. A", ["nx_domain"])];
    cluster.expect(["/verdict/outcome"], &below);
}

/// kubedns leaves out a configured upstream that forwards queries back to it.
#[test]
fn left_out_and_missing_upstreams_are_told_apart() {
    let none = |zone| Zone {
        upstreams: [].into(),
        ..zone
    };
    let cluster = with_zone(none, true);
    let reasons = cluster.reasons("www.example.com. A");
    assert_eq!(reasons, ["upstreams_left_out"]);
    let reasons = cluster.reasons("192.0.2.1");
    assert_eq!(reasons, ["unknown_address", "upstreams_left_out"]);
    let text = &cluster.explain("www.example.com. A").detail.reasons[0].text;
    assert!(
        text.contains("forward back") && text.contains("kubedns_forward_loops"),
        "{text}"
    );
    // kubedns has no upstream servers. The explanation says so only if queries for the name reach
    // kubedns.
    let mut cluster = with_zone(none, false);
    let reasons = cluster.reasons("192.0.2.1");
    assert_eq!(reasons, ["unknown_address", "no_upstreams"]);
    assert_eq!(cluster.reasons("www.example.com. A"), [""; 0]);
    cluster.topology = DnsmasqTopology::Direct;
    assert_eq!(cluster.reasons("www.example.com. A"), ["no_upstreams"]);
}

#[test]
fn left_out_servers_of_stub_domain_are_reported() {
    let none = |zone: Zone| {
        let silent = |(domain, _): &StubDomain| (domain.clone(), [].into());
        zone.clone()
            .with_stub_domains(zone.stub_domains().iter().map(silent))
    };
    let mut cluster = with_zone(none, true);
    assert_eq!(cluster.reasons("www.acme.test. A"), ["upstreams_left_out"]);
    cluster.topology = DnsmasqTopology::Direct;
    let text = "is not a name of this cluster: www.acme.test. is not forwarded because kubedns has no upstream server for it";
    let rows = [("www.acme.test. A", ["upstreams_left_out", text])];
    cluster.expect(["/detail/reasons/0/code", "/verdict/text"], &rows);
}

#[test]
fn federated_alias_needs_no_endpoints() {
    let mut cluster = Cluster::with_everything();
    let labels = [
        ("failure-domain.beta.kubernetes.io/zone", "zone-a"),
        ("failure-domain.beta.kubernetes.io/region", "region-a"),
    ];
    let node = Node::from_api(&mk_node("node", &labels).to_string())
        .unwrap()
        .object;
    cluster.index.apply(Event::Node(Change::Apply(node)));
    cluster.index.publish();
    let explanation = cluster.explain("redis-master.prod.fed.svc.cluster.local. A");
    let said = (explanation.verdict.outcome, explanation.detail.reasons);
    assert_eq!(said, (LookupOutcome::Answered, Vec::new()));
    let reasons = cluster.reasons("redis-master.prod.svc.cluster.local. A");
    assert_eq!(reasons, ["nobody_behind", "endpoints_command"]);
}
