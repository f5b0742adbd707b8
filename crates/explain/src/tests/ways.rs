//! Names that somebody else is asked for than kubedns: what is said is what a pod gets.

use skydns::Zone;
use testkit::objects::mk_node;

use super::cluster::Cluster;
use crate::document::Outcome;
use cluster::objects::{Change, Event, FromApi as _, Node};

fn cluster() -> Cluster {
    let mut cluster = Cluster::with_everything();
    cluster.stub_domains(&[("corp.cluster.local", "192.0.2.9"), ("10.in-addr.arpa", "192.0.2.10")]);
    cluster
}

/// The whole text, but for the state of the server.
fn text(cluster: &Cluster, words: &str) -> String {
    let text = cluster.text(words);
    text.lines().filter(|line| !line.starts_with("kubedns ")).flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn a_stub_domain_in_the_cluster_domain_takes_the_names_of_a_search_list() {
    let expected = "\
host.corp leads to a stub domain, not to kubedns: 192.0.2.9:53 of the stub domain corp.cluster.local is asked for host.corp.cluster.local.
why        the stub domain corp.cluster.local. takes this name: dnsmasq asks its servers and never kubedns
asked for  as by a pod in namespace default: search default.svc.cluster.local svc.cluster.local cluster.local, ndots:5
           host.corp.default.svc.cluster.local.  NXDOMAIN   there is no Service \"corp\" in namespace default
           host.corp.svc.cluster.local.          NXDOMAIN   there is no Service at all in namespace corp
           host.corp.cluster.local.              forwarded  192.0.2.9:53 of the stub domain corp.cluster.local is asked for host.corp.cluster.local.
           host.corp.                            forwarded  the servers of the node's resolv.conf are asked for host.corp.
answer     for host.corp.cluster.local., if kubedns were asked
           A  NXDOMAIN
way        dnsmasq asks 192.0.2.9:53 of the stub domain corp.cluster.local; kubedns is not asked
";
    assert_eq!(text(&cluster(), "host.corp A"), expected);
}

#[test]
fn names_of_ours_that_a_stub_domain_takes() {
    let cluster = cluster();
    for (words, line) in [
        (
            "host.corp.cluster.local. A",
            "leads to a stub domain, not to kubedns: 192.0.2.9:53 of the stub domain corp.cluster.local is asked for \
             host.corp.cluster.local.",
        ),
        (
            "10.96.0.12",
            "leads to a stub domain, not to kubedns: 192.0.2.10:53 of the stub domain 10.in-addr.arpa is asked for \
             12.0.96.10.in-addr.arpa.",
        ),
        (
            "10.96.12.80",
            "leads to a stub domain, not to kubedns: 192.0.2.10:53 of the stub domain 10.in-addr.arpa is asked for \
             80.12.96.10.in-addr.arpa.",
        ),
    ] {
        let explanation = cluster.explain(words);
        assert_eq!(explanation.verdict.outcome, Outcome::Forwarded, "{words}");
        assert_eq!(explanation.verdict.text, line, "{words}");
        let codes: Vec<&str> = explanation.detail.reasons.iter().map(|reason| reason.code.as_str()).collect();
        assert_eq!(codes, ["stub_domain_shadows_cluster"], "{words}");
    }
    // Where no dnsmasq stands in front, kubedns answers its own names.
    let mut cluster = cluster;
    cluster.in_front = true;
    assert_eq!(cluster.explain("host.corp.cluster.local. A").verdict.outcome, Outcome::NxDomain);
    assert_eq!(cluster.explain("10.96.0.12").verdict.outcome, Outcome::Answered);
}

#[test]
fn kubedns_leaves_the_names_of_a_stub_domain_below_the_cluster_domain_to_its_servers() {
    let corp =
        || (skydns::Name::parse("corp.cluster.local").unwrap(), ["192.0.2.9:53".parse().unwrap()].into());
    let mut cluster = with_upstreams(|zone| *zone = zone.clone().with_stub_domains([corp()]), true);
    cluster.stub_domains(&[("corp.cluster.local", "192.0.2.9")]);
    for in_front in [false, true] {
        cluster.in_front = in_front;
        let explanation = cluster.explain("host.corp.cluster.local. A");
        assert_eq!(explanation.verdict.outcome, Outcome::Forwarded);
        let text = &explanation.verdict.text;
        assert!(text.contains("192.0.2.9:53") && text.contains("corp.cluster.local"), "{text}");
        assert_eq!(explanation.detail.reasons, []);
        assert_eq!(cluster.explain("web.apps.svc.cluster.local. A").verdict.outcome, Outcome::Answered);
    }
}

#[test]
fn a_name_of_one_label_is_asked_for_by_dnsmasq() {
    let mut cluster = cluster();
    let last = |cluster: &Cluster| {
        let explanation = cluster.explain("intra A");
        let tried = explanation.tried.last().unwrap();
        (explanation.verdict.outcome, tried.outcome, tried.summary.clone())
    };
    let asked = "the servers of the node's resolv.conf are asked for intra.";
    assert_eq!(last(&cluster), (Outcome::Forwarded, Outcome::Forwarded, asked.to_owned()));
    let mut config = (*cluster.server.config.config).clone();
    config.upstream_nameservers = vec!["192.0.2.11".parse().unwrap()];
    cluster.server.config.config = config.into();
    let asked = "upstream 192.0.2.11:53 is asked for intra.";
    assert_eq!(last(&cluster), (Outcome::Forwarded, Outcome::Forwarded, asked.to_owned()));
    // kubedns itself asks nobody.
    cluster.in_front = true;
    let said = "kubedns sends no names of one label out (SERVFAIL)";
    assert_eq!(last(&cluster), (Outcome::NxDomain, Outcome::ServFail, said.to_owned()));
}

/// The cluster with another zone, and whether upstream servers are known.
fn with_upstreams(change: impl FnOnce(&mut Zone), has_upstreams: bool) -> Cluster {
    let mut cluster = Cluster::with_everything();
    let mut zone = cluster.published.get().zone.clone();
    change(&mut zone);
    cluster.index.set_zone(zone);
    cluster.index.publish();
    cluster.server.has_upstreams = has_upstreams;
    cluster
}

fn codes(cluster: &Cluster, words: &str) -> Vec<String> {
    cluster.explain(words).detail.reasons.into_iter().map(|reason| reason.code).collect()
}

#[test]
fn upstreams_that_lead_back_are_not_called_missing() {
    let none = |zone: &mut Zone| zone.upstreams = [].into();
    let cluster = with_upstreams(none, true);
    assert_eq!(codes(&cluster, "www.example.com. A"), ["upstreams_left_out"]);
    assert_eq!(codes(&cluster, "192.0.2.1"), ["unknown_address", "upstreams_left_out"]);
    let text = &cluster.explain("www.example.com. A").detail.reasons[0].text;
    assert!(text.contains("lead back") && text.contains("kubedns_forward_loops"), "{text}");
    // There are none: that is for dnsmasq to know, where it asks others.
    let mut cluster = with_upstreams(none, false);
    assert_eq!(codes(&cluster, "192.0.2.1"), ["unknown_address", "no_upstreams"]);
    assert_eq!(codes(&cluster, "www.example.com. A"), [""; 0]);
    cluster.in_front = true;
    assert_eq!(codes(&cluster, "www.example.com. A"), ["no_upstreams"]);
}

#[test]
fn a_stub_domain_whose_servers_lead_back_names_nobody() {
    let none = |zone: &mut Zone| {
        let silent = |(domain, _): &skydns::StubDomain| (domain.clone(), [].into());
        *zone = zone.clone().with_stub_domains(zone.stub_domains().iter().map(silent));
    };
    let mut cluster = with_upstreams(none, true);
    assert_eq!(codes(&cluster, "www.acme.test. A"), ["upstreams_left_out"]);
    cluster.in_front = true;
    let explanation = cluster.explain("www.acme.test. A");
    assert_eq!(explanation.detail.reasons[0].code, "upstreams_left_out");
    let text = "is no name of this cluster: nobody is asked for www.acme.test., there is no upstream server that \
                kubedns can ask";
    assert_eq!(explanation.verdict.text, text);
}

#[test]
fn a_stub_domain_that_kubedns_does_not_ask_has_the_right_reason() {
    let mut cluster = Cluster::with_everything();
    cluster.stub_domains(&[("corp.test", "ns.corp.test")]);
    assert_eq!(codes(&cluster, "www.corp.test. A"), ["stub_servers_by_name"]);
}

#[test]
fn a_federated_name_that_leads_elsewhere_needs_nobody_here() {
    let mut cluster = Cluster::with_everything();
    let labels = [
        ("failure-domain.beta.kubernetes.io/zone", "zone-a"),
        ("failure-domain.beta.kubernetes.io/region", "region-a"),
    ];
    let node = Node::from_api(&mk_node("node", &labels).to_string()).unwrap().object;
    cluster.index.apply(Event::Node(Change::Apply(node)));
    cluster.index.publish();
    let explanation = cluster.explain("redis-master.prod.fed.svc.cluster.local. A");
    assert_eq!(explanation.verdict.outcome, Outcome::Answered);
    assert_eq!(explanation.detail.reasons, []);
    assert_eq!(codes(&cluster, "redis-master.prod.svc.cluster.local. A"), ["nobody_behind"]);
}
