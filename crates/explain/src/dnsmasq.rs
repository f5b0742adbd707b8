//! What dnsmasq does with a name, in the pod of the stock manifest, or where kubedns serves the port of DNS itself.
//!
//! It is another process, and its command line is not known here. The stock one sends the cluster domain and both
//! reverse trees to kubedns and does not cache negative answers; the nanny adds the servers of the same configuration
//! that kubedns has.

use std::cmp::Ordering;
use std::sync::Arc;

use dnsconfig::{Config, ServerAddr};
use skydns::Name;

use crate::candidate::Candidate;
use crate::document::{Dnsmasq, DnsmasqAsks, Note, Outcome, Route};
use crate::place::Labels;

/// The reverse trees.
const REVERSE: [&str; 2] = ["in-addr.arpa.", "ip6.arpa."];

/// What stands between pods and kubedns.
#[derive(Debug, Clone)]
pub(crate) struct Front {
    /// The configuration, which dnsmasq has too.
    pub(crate) config: Arc<Config>,
    /// Pods ask kubedns itself: dnsmasq stands behind it, if anywhere.
    pub(crate) is_kubedns: bool,
}

impl Front {
    /// Whom dnsmasq asks for a name in a cluster of this domain. How long it keeps the answer is told by [`kept`].
    pub(crate) fn way(&self, labels: &Labels, domain: &Name, route: &Route) -> Dnsmasq {
        if self.is_kubedns {
            return behind(route);
        }
        let within = |domain: &Name| labels.below(&Labels::new(domain)).is_some();
        let ours =
            std::iter::once(domain.clone()).chain(REVERSE.iter().filter_map(|name| Name::parse(name).ok()));
        let ours = ours.filter(within).max_by_key(Name::label_count);
        let stub = self
            .config
            .stub_domains
            .iter()
            .filter(|(_, servers)| !servers.is_empty())
            .filter_map(|(domain, servers)| Some((Name::parse(domain).ok()?, servers)))
            .filter(|(domain, _)| within(domain))
            .max_by_key(|(domain, _)| domain.label_count());
        // The longest domain that a name is in decides.
        match (ours, stub) {
            (Some(ours), Some((stub, servers))) => match ours.label_count().cmp(&stub.label_count()) {
                Ordering::Less => stub_domain(DnsmasqAsks::StubDomain, &stub, servers),
                // A name is in one domain of a length: the two are one domain, with the servers of both.
                Ordering::Equal => stub_domain(DnsmasqAsks::KubednsAndStubDomain, &stub, servers),
                Ordering::Greater => kubedns(&ours),
            },
            (Some(ours), None) => kubedns(&ours),
            (None, Some((stub, servers))) => stub_domain(DnsmasqAsks::StubDomain, &stub, servers),
            (None, None) => upstreams(&self.config),
        }
    }
}

fn kubedns(domain: &Name) -> Dnsmasq {
    Dnsmasq {
        asks: DnsmasqAsks::Kubedns,
        domain: Some(domain.to_string()),
        servers: Vec::new(),
        keeps_seconds: None,
    }
}

fn stub_domain(asks: DnsmasqAsks, domain: &Name, servers: &[ServerAddr]) -> Dnsmasq {
    let servers = servers.iter().map(ToString::to_string).collect();
    Dnsmasq { asks, domain: Some(domain.to_string()), servers, keeps_seconds: None }
}

/// Where kubedns stands in front: nobody asks dnsmasq but kubedns, if it is one of the upstreams at all.
fn behind(route: &Route) -> Dnsmasq {
    let servers = match route {
        Route::Upstreams { servers } | Route::StubDomain { servers, .. } => servers.as_slice(),
        Route::ClusterDomain { .. } | Route::Reverse { .. } | Route::SingleLabel => &[],
    };
    Dnsmasq {
        asks: DnsmasqAsks::NotInFront,
        domain: None,
        servers: servers.iter().map(ToString::to_string).collect(),
        keeps_seconds: None,
    }
}

fn upstreams(config: &Config) -> Dnsmasq {
    let servers: Vec<String> = config.upstream_nameservers.iter().map(ToString::to_string).collect();
    let asks = if servers.is_empty() { DnsmasqAsks::NodeResolvConf } else { DnsmasqAsks::Upstreams };
    Dnsmasq { asks, domain: None, servers, keeps_seconds: None }
}

/// The same with how long it keeps what kubedns answers.
pub(crate) fn kept(candidate: &Candidate) -> Dnsmasq {
    let keeps_seconds = if candidate.dnsmasq.asks == DnsmasqAsks::Kubedns { keeps(candidate) } else { None };
    Dnsmasq { keeps_seconds, ..candidate.dnsmasq.clone() }
}

fn keeps(candidate: &Candidate) -> Option<u32> {
    match candidate.outcome() {
        Outcome::Answered => candidate.asked.iter().filter_map(crate::asked::Asked::ttl).min(),
        Outcome::Forwarded => None,
        // What failed is not kept, and the records of another type are.
        Outcome::ServFail if candidate.records().next().is_some() => None,
        Outcome::NoData | Outcome::NxDomain | Outcome::ServFail | Outcome::Refused => Some(0),
    }
}

/// kubedns and dnsmasq disagree about who is responsible.
pub(crate) fn disagreement(candidate: &Candidate) -> Option<Note> {
    let Candidate { route, dnsmasq, .. } = candidate;
    let inside = matches!(route, Route::ClusterDomain { .. } | Route::Reverse { .. });
    let stub = dnsmasq.domain.as_deref()?;
    match route {
        _ if dnsmasq.asks == DnsmasqAsks::KubednsAndStubDomain => Some(Note::new(
            "stub_domain_beside_kubedns",
            format!(
                "dnsmasq has the servers of the stub domain {stub} beside kubedns for this domain, and takes the \
                 answer of either"
            ),
        )),
        _ if dnsmasq.asks != DnsmasqAsks::StubDomain => None,
        _ if inside => Some(Note::new(
            "stub_domain_shadows_cluster",
            format!("the stub domain {stub} takes this name: dnsmasq asks its servers and never kubedns"),
        )),
        Route::Upstreams { .. } | Route::SingleLabel => Some(Note::new(
            "stub_servers_by_name",
            format!(
                "the servers of the stub domain {stub} are given by name: dnsmasq asks them, kubedns does not"
            ),
        )),
        _ => None,
    }
}
