//! The answer in a line, for the whole name and for each name tried.

use std::fmt::Display;

use skydns::Name;

use crate::candidate::Candidate;
use crate::document::{DnsmasqAsks, Note, Outcome, Place, Route, Tried, Verdict};
use crate::types;

/// How many addresses a line has.
const MAX_SHOWN: usize = 4;

/// The candidate that answers first, if one does.
pub(crate) fn first_answer(candidates: &[Candidate]) -> Option<usize> {
    candidates.iter().position(|candidate| candidate.outcome() == Outcome::Answered)
}

/// The candidate that tells most: the one that answers, or else the one that comes closest to it. A name that was
/// `typed` with the cluster domain is the one that was meant.
pub(crate) fn most_telling(
    candidates: &[Candidate],
    typed: &Name,
    exists: impl Fn(&Candidate) -> Exists,
) -> usize {
    let is_whole = |candidate: &Candidate| {
        candidate.name == *typed && matches!(candidate.route, Route::ClusterDomain { .. })
    };
    let rank = |candidate: &Candidate| match (candidate.outcome(), exists(candidate)) {
        (Outcome::Answered, _) => 10,
        (Outcome::NoData, _) => 9,
        (Outcome::ServFail | Outcome::Forwarded, _) if candidate.route == Route::SingleLabel => 1,
        (Outcome::ServFail, _) => 8,
        (Outcome::Refused, _) => 7,
        (Outcome::NxDomain, Exists::Whole) => 6,
        (Outcome::NxDomain, _) if is_whole(candidate) => 6,
        (Outcome::NxDomain, Exists::Headless) => 5,
        (Outcome::NxDomain, Exists::Namespace) if !matches!(candidate.place, Place::Member { .. }) => 5,
        // Where a Service has the name of its namespace, a search list reads every name of the namespace as a member.
        (Outcome::NxDomain, Exists::Memberless) => 4,
        (Outcome::Forwarded, _) => 3,
        (Outcome::NxDomain, _) => match candidate.place {
            Place::Service { .. } | Place::Port { .. } => 2,
            _ => 0,
        },
    };
    let ranks: Vec<u8> = candidates.iter().map(rank).collect();
    let best = ranks.iter().max();
    ranks.iter().position(|rank| Some(rank) == best).unwrap_or_default()
}

/// What exists of the Service that a name is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exists {
    /// All that the name is about, although the name does not exist: the Service, and the member too if it is one's.
    Whole,
    /// A headless Service without the member.
    Headless,
    /// A Service that has no members, and the name is a member's.
    Memberless,
    /// The namespace.
    Namespace,
    /// Neither.
    Nothing,
}

/// The answer in a line. `at` is the candidate that tells most.
pub(crate) fn of(candidates: &[Candidate], at: usize) -> Verdict {
    let candidate = &candidates[at];
    let is_forwarded = |candidate: &&Candidate| candidate.outcome() == Outcome::Forwarded;
    let text = match (candidate.outcome(), candidates.iter().rev().find(is_forwarded)) {
        (Outcome::Answered, _) => answered(candidates, at, candidate),
        (Outcome::Forwarded, _) if is_taken(candidate) => {
            format!("leads to a stub domain, not to kubedns: {}", asks(candidate))
        }
        (Outcome::Forwarded, _) if matches!(candidate.route, Route::Reverse { .. }) => {
            format!("has no name in this cluster: {}", asks(candidate))
        }
        (Outcome::Forwarded, _) => format!("is no name of this cluster: {}", asks(candidate)),
        (outcome, Some(last)) => {
            let nothing = match outcome {
                Outcome::NoData => format!("has no {} records", type_list(candidate)),
                Outcome::Refused => "is refused".to_owned(),
                _ => "does not resolve".to_owned(),
            };
            let text = format!("{nothing} in this cluster; last, {}", asks(last));
            return Verdict { outcome: Outcome::Forwarded, text };
        }
        (Outcome::NoData, None) => format!("exists, and has no {} records", type_list(candidate)),
        (Outcome::NxDomain, None) => "does not exist (NXDOMAIN)".to_owned(),
        (Outcome::ServFail, None) if candidate.route == Route::SingleLabel => {
            "is no name of this cluster and has only one label".to_owned()
        }
        (Outcome::ServFail, None) => "cannot be told (SERVFAIL)".to_owned(),
        (Outcome::Refused, None) => "is refused (REFUSED)".to_owned(),
    };
    Verdict { outcome: candidate.outcome(), text }
}

fn answered(candidates: &[Candidate], at: usize, candidate: &Candidate) -> String {
    let text = resolves(candidate);
    // What an upstream says of an earlier name is not known here.
    let earlier = candidates.iter().take(at).find(|earlier| earlier.outcome() == Outcome::Forwarded);
    match earlier {
        Some(earlier) => format!("{text}, unless {} exists: first, {}", earlier.name, asks(earlier)),
        None => text,
    }
}

/// The records of a name in a few words, behind the name.
fn resolves(candidate: &Candidate) -> String {
    match Found::in_records_of(candidate) {
        Found::Addresses(addresses) => format!("resolves to {addresses}"),
        Found::Alias(target, true) => {
            format!("is an alias of {target}, whose addresses kubedns asks the upstream servers for")
        }
        Found::Alias(target, false) => format!("is an alias of {target}"),
        Found::Names(names) => format!("belongs to {names}"),
        Found::Other(rtype, data) => format!("has {rtype} records: {data}"),
        Found::Elsewhere => "leads outside: kubedns asks the upstream servers".to_owned(),
    }
}

/// The same on its own.
fn in_brief(candidate: &Candidate) -> String {
    match Found::in_records_of(candidate) {
        Found::Addresses(addresses) => addresses,
        Found::Alias(target, true) => format!("alias of {target}, asked upstream"),
        Found::Alias(target, false) => format!("alias of {target}"),
        Found::Names(names) => names,
        Found::Other(rtype, data) => format!("{rtype} {data}"),
        Found::Elsewhere => "leads outside".to_owned(),
    }
}

/// What a resolver is most likely to want of the records of a name.
enum Found {
    Addresses(String),
    /// And whether upstream servers are asked for it.
    Alias(String, bool),
    Names(String),
    Other(String, String),
    Elsewhere,
}

impl Found {
    fn in_records_of(candidate: &Candidate) -> Self {
        let data = |rtype: &str| -> Vec<&str> {
            let of_type = candidate.records().filter(|record| record.rtype == rtype);
            of_type.map(|record| record.data.as_str()).collect()
        };
        let addresses = [data("A"), data("AAAA")].concat();
        if !addresses.is_empty() {
            return Self::Addresses(list(&addresses));
        }
        if let [target, ..] = data("CNAME").as_slice() {
            let mut asks = candidate.asked.iter().flat_map(|asked| &asked.asks);
            return Self::Alias((*target).to_owned(), asks.any(|ask| ask.name.to_string() == *target));
        }
        match (data("PTR").as_slice(), candidate.records().next()) {
            ([], None) => Self::Elsewhere,
            ([], Some(first)) => Self::Other(first.rtype.clone(), list(&data(&first.rtype))),
            (names, _) => Self::Names(list(names)),
        }
    }
}

fn list(items: &[&str]) -> String {
    let shown = items.iter().take(MAX_SHOWN).copied().collect::<Vec<_>>().join(", ");
    match items.len().saturating_sub(MAX_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn type_list(candidate: &Candidate) -> String {
    let types: Vec<String> = candidate.asked.iter().map(|asked| types::name(asked.qtype)).collect();
    match types.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} or {last}", first.join(", ")),
        None => "such".to_owned(),
    }
}

/// It is a name of ours, and dnsmasq does not ask us for it.
fn is_taken(candidate: &Candidate) -> bool {
    let is_ours = matches!(candidate.route, Route::ClusterDomain { .. } | Route::Reverse { .. });
    is_ours && !candidate.dnsmasq.leads_to_kubedns()
}

/// Who is asked for a name that kubedns does not answer.
fn asks(candidate: &Candidate) -> String {
    let Candidate { name, dnsmasq, .. } = candidate;
    let servers = servers_text(&dnsmasq.servers);
    match (dnsmasq.asks, &dnsmasq.domain) {
        (DnsmasqAsks::StubDomain, Some(domain)) => stub_domain_is_asked(&servers, domain, name),
        (DnsmasqAsks::Upstreams, _) => upstream_is_asked(&servers, name),
        (DnsmasqAsks::NodeResolvConf, _) => {
            format!("the servers of the node's resolv.conf are asked for {name}")
        }
        _ => kubedns_asks(candidate),
    }
}

fn stub_domain_is_asked(servers: &str, domain: &str, name: &Name) -> String {
    format!("{servers} of the stub domain {} is asked for {name}", domain.trim_end_matches('.'))
}

fn upstream_is_asked(servers: &str, name: &Name) -> String {
    format!("upstream {servers} is asked for {name}")
}

fn kubedns_asks(candidate: &Candidate) -> String {
    match &candidate.route {
        Route::StubDomain { servers, .. } | Route::Upstreams { servers } | Route::Reverse { servers, .. }
            if servers.is_empty() =>
        {
            format!(
                "nobody is asked for {}, there is no upstream server that kubedns can ask",
                candidate.name
            )
        }
        Route::StubDomain { domain, servers } => {
            stub_domain_is_asked(&servers_text(servers), domain, &candidate.name)
        }
        Route::Upstreams { servers } | Route::Reverse { servers, .. } => {
            upstream_is_asked(&servers_text(servers), &candidate.name)
        }
        Route::ClusterDomain { .. } | Route::SingleLabel => format!("{} is asked for", candidate.name),
    }
}

/// Servers in the order they are asked.
pub(crate) fn servers_text(servers: &[impl Display]) -> String {
    servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The list of names tried. `reasons` gives the first reason why a name has no answer.
pub(crate) fn tried(candidates: &[Candidate], reasons: impl Fn(&Candidate) -> Option<Note>) -> Vec<Tried> {
    let first = first_answer(candidates).unwrap_or(usize::MAX);
    candidates
        .iter()
        .enumerate()
        .map(|(at, candidate)| Tried {
            name: candidate.name.to_string(),
            outcome: candidate.outcome(),
            asked: at <= first,
            summary: match candidate.outcome() {
                Outcome::Answered => in_brief(candidate),
                Outcome::Forwarded => asks(candidate),
                _ => reasons(candidate).map(|note| note.text).unwrap_or_default(),
            },
        })
        .collect()
}
