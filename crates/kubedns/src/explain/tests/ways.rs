//! Names that dnsmasq asks others for than kubedns: what is said is what a pod gets.

use super::super::document::Outcome;
use super::cluster::Cluster;

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
