//! Describes the servers that receive forwarded names.

use crate::document::{DnsmasqAsks, NameRoute};
use crate::facts::candidate::NameCandidate;
use crate::list::join;
use wire::rcode;

/// Maximum number of forwarded names in one line.
const MAX_ASKED: usize = 3;

/// Text for a name that kubedns cannot forward.
pub(super) const NO_UPSTREAM: &str = "kubedns has no upstream server for it";

/// Lists forwarded names with their servers, in the order in which the resolver queries the names.
pub(super) fn list_in_turn(forwarded: &[&NameCandidate]) -> String {
    let (shown, left_out) = forwarded.split_at(forwarded.len().min(MAX_ASKED));
    let sentences: Vec<String> = shown
        .iter()
        .map(|candidate| forwarding_sentence(candidate))
        .collect();

    let first = if shown.len() > 1 { "first, " } else { "" };
    let text = sentences.join(", then ");
    match left_out {
        [] => format!("{first}{text}"),
        more => format!("{first}{text}, and so on for {} more", more.len()),
    }
}

/// Describes the only forwarded name of a search.
pub(super) fn describe_only_forwarded(
    candidates: &[NameCandidate],
    forwarded: &NameCandidate,
) -> String {
    let name = &forwarded.name;
    // A search domain only appends labels, so all names begin with the labels of the name without a
    // search domain.
    let labels = name.to_lowercase().labels();
    let has_no_search_domain = candidates
        .iter()
        .all(|other| other.name.to_lowercase().labels().starts_with(&labels));

    let form = if has_no_search_domain {
        "without a search domain, as"
    } else {
        "as"
    };
    format!("{form} {name}, the name {}", forwarding_verb(forwarded))
}

/// Describes the forwarding of one name.
pub(super) fn forwarding_sentence(candidate: &NameCandidate) -> String {
    format!("{} {}", candidate.name, forwarding_verb(candidate))
}

fn forwarding_verb(candidate: &NameCandidate) -> String {
    let dnsmasq = &candidate.dnsmasq;
    match dnsmasq.denial() {
        Some(rcode::REFUSED) => return "is refused by dnsmasq, which has no upstream".to_owned(),
        Some(_) => {
            return "gets NXDOMAIN from dnsmasq, whose arguments deny the domain".to_owned();
        }
        None => {}
    }
    match forwarded_to(candidate) {
        Some(servers) => format!("is forwarded to {servers}"),
        None => format!("is not forwarded because {NO_UPSTREAM}"),
    }
}

/// The servers that receive a forwarded name; `None` if there is no server for the name.
pub(super) fn forwarded_to(candidate: &NameCandidate) -> Option<String> {
    let NameCandidate { dnsmasq, route, .. } = candidate;
    // If dnsmasq forwards the name only to servers other than kubedns, kubedns never receives the
    // query.
    let (domain, servers) = match (dnsmasq.asks, route) {
        (DnsmasqAsks::NodeResolvConf, _) => {
            return Some("the servers of the node's resolv.conf".to_owned());
        }
        (DnsmasqAsks::Arguments, _) if dnsmasq.servers.is_empty() => return None,
        (DnsmasqAsks::Arguments, _) => {
            let servers = join(&dnsmasq.servers);
            return Some(format!("{servers} (from dnsmasq's arguments)"));
        }
        (DnsmasqAsks::StubDomain | DnsmasqAsks::Upstreams, _) => {
            (dnsmasq.domain.as_ref(), &dnsmasq.servers)
        }
        (_, NameRoute::StubDomain { domain, servers }) => (Some(domain), servers),
        (_, NameRoute::Upstreams { servers } | NameRoute::Reverse { servers, .. }) => {
            (None, servers)
        }
        // For the first two routes: with `--fallthrough`, kubedns forwards missing names of the
        // cluster domain and of other zones.
        (
            _,
            NameRoute::ClusterDomain { .. }
            | NameRoute::Zone { .. }
            | NameRoute::OwnName
            | NameRoute::SingleLabel,
        ) => return Some("the upstream servers".to_owned()),
    };
    if servers.is_empty() {
        return None;
    }

    let servers = join(servers);
    Some(match domain {
        Some(domain) => {
            let domain = domain.trim_end_matches('.');
            format!("{servers} of the stub domain {domain}")
        }
        None => format!("upstream {servers}"),
    })
}
