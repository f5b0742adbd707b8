//! Summarises the answer in one line: for the given name, and for each name tried.

use wire::Name;

use crate::candidate::Candidate;
use crate::document::{DnsmasqAsks, NameKind, Outcome, Route, ServiceKind, Tried, Verdict};
use crate::evidence::Evidence;
use crate::list::{join, join_first};
use crate::reasons;

/// Bound of the addresses in one line.
const MAX_SHOWN: usize = 4;

/// The index of the first candidate with an answer.
pub(crate) fn first_answer(candidates: &[Candidate]) -> Option<usize> {
    candidates
        .iter()
        .position(|candidate| candidate.outcome() == Outcome::Answered)
}

/// The index of the candidate to explain: the first with an answer, or else the name that was most
/// probably meant.
pub(crate) fn most_telling(
    evidence: Evidence<'_>,
    candidates: &[Candidate],
    typed: &Name,
) -> usize {
    let ranks: Vec<u8> = candidates
        .iter()
        .map(|candidate| rank(evidence, candidate, typed))
        .collect();
    let best = ranks.iter().max();
    ranks
        .iter()
        .position(|rank| Some(rank) == best)
        .unwrap_or_default()
}

fn rank(evidence: Evidence<'_>, candidate: &Candidate, typed: &Name) -> u8 {
    match candidate.outcome() {
        Outcome::Answered => 10,
        Outcome::NoData => 9,
        Outcome::ServFail | Outcome::Forwarded if candidate.route == Route::SingleLabel => 1,
        Outcome::ServFail => 8,
        Outcome::Refused => 7,
        // A name given with the cluster domain is the name that the user means.
        Outcome::NxDomain if candidate.name == *typed && candidate.path.is_some() => 6,
        Outcome::NxDomain => rank_of_missing(evidence, candidate),
        Outcome::Forwarded => 3,
    }
}

/// The rank of a name that does not exist: highest if its Service exists, lower if only its
/// namespace has Services.
fn rank_of_missing(evidence: Evidence<'_>, candidate: &Candidate) -> u8 {
    let has_namespace = candidate
        .kind
        .service()
        .is_some_and(|key| evidence.has_had_namespace(key));
    match (
        evidence.service(candidate).map(|service| service.kind),
        &candidate.kind,
    ) {
        (Some(_), _) if !evidence.lacks_member(candidate) => 6,
        (Some(ServiceKind::Headless | ServiceKind::WithoutIp), _) => 5,
        // If namespace `apps` has a Service `apps`, the search list completes every `NAME.apps` to
        // a member of that Service. The user rarely means such a member.
        (Some(ServiceKind::ClusterIp | ServiceKind::ExternalName), _) => 4,
        (None, NameKind::Member { .. }) => 0,
        (None, _) if has_namespace => 5,
        (None, NameKind::Service(_) | NameKind::Port { .. }) => 2,
        (None, _) => 0,
    }
}

/// The summary of the candidate at index `at`.
pub(crate) fn of(candidates: &[Candidate], at: usize) -> Verdict {
    let candidate = &candidates[at];
    let outcome = candidate.outcome();
    let forwarded = |upto: usize| -> Vec<&Candidate> {
        let all = candidates.iter().take(upto);
        all.filter(|candidate| candidate.outcome() == Outcome::Forwarded)
            .collect()
    };
    let text = match (outcome, forwarded(candidates.len()).as_slice()) {
        (Outcome::Answered, _) => unless(in_words(candidate).0, &forwarded(at)),
        (Outcome::Forwarded, all) => format!("{}: {}", not_ours(candidate), in_turn(all)),
        (_, []) => nothing(candidate, false),
        (_, all) => {
            let last = if all.len() == 1 { "finally, " } else { "" };
            let text = format!("{}; {last}{}", nothing(candidate, true), in_turn(all));
            return Verdict {
                outcome: Outcome::Forwarded,
                text,
            };
        }
    };
    Verdict { outcome, text }
}

/// Appends the forwarded names that the resolver queries before the answered name. Their responses
/// are unknown here.
fn unless(answer: String, before: &[&Candidate]) -> String {
    match before {
        [] => answer,
        [first] => format!(
            "{answer}, unless {} exists: first, {}",
            first.name,
            forwarding(first)
        ),
        more => format!(
            "{answer}, unless one of {} earlier names exists: {}",
            more.len(),
            in_turn(more)
        ),
    }
}

/// Describes a name without an answer. `here` limits the text to this cluster, because other names
/// of the search are forwarded.
fn nothing(candidate: &Candidate, here: bool) -> String {
    let text = match candidate.outcome() {
        Outcome::NoData => match leads_nowhere(candidate) {
            Some(text) => return text,
            None if here => {
                return format!("has no {} records in this cluster", type_list(candidate));
            }
            None => return format!("exists, and has no {} records", type_list(candidate)),
        },
        Outcome::Refused if here => "is refused in this cluster",
        _ if here => "does not resolve in this cluster",
        Outcome::NxDomain => "does not exist (NXDOMAIN)",
        Outcome::Refused => "is refused (REFUSED)",
        _ if candidate.route == Route::SingleLabel => {
            "is not a name of this cluster and has only one label"
        }
        _ => "cannot be resolved (SERVFAIL)",
    };
    text.to_owned()
}

/// Describes an alias without addresses, and the outcome of its target.
fn leads_nowhere(candidate: &Candidate) -> Option<String> {
    let lack = match candidate.target.as_ref().map(|target| target.outcome()) {
        Some(Outcome::NxDomain) => "does not exist".to_owned(),
        Some(Outcome::NoData) => format!("has no {} records", type_list(candidate)),
        _ => "has no address".to_owned(),
    };
    Some(format!(
        "is an alias of {}, which {lack}",
        candidate.bare_alias()?
    ))
}

/// Bound of the forwarded names in one line.
const MAX_ASKED: usize = 3;

/// Lists forwarded names with their servers, in the order of the resolver.
fn in_turn(forwarded: &[&Candidate]) -> String {
    let (shown, left_out) = forwarded.split_at(forwarded.len().min(MAX_ASKED));
    let text = shown
        .iter()
        .map(|candidate| forwarding(candidate))
        .collect::<Vec<_>>()
        .join(", then ");
    let first = if shown.len() > 1 { "first, " } else { "" };
    match left_out {
        [] => format!("{first}{text}"),
        more => format!("{first}{text}, and so on for {} more", more.len()),
    }
}

fn not_ours(candidate: &Candidate) -> &'static str {
    let asks_kubedns = candidate.dnsmasq.leads_to_kubedns();
    match candidate.route {
        Route::ClusterDomain { .. } | Route::Reverse { .. } if !asks_kubedns => {
            "belongs to a stub domain, not to kubedns"
        }
        Route::Reverse { .. } => "has no name in this cluster",
        _ => "is not a name of this cluster",
    }
}

/// Describes the records in a few words, in two forms: as the continuation of a sentence, and
/// alone. Addresses come first, because most queries request addresses.
fn in_words(candidate: &Candidate) -> (String, String) {
    let data = |rtype: &str| -> Vec<&str> {
        let of_type = candidate.records().filter(|record| record.rtype == rtype);
        of_type.map(|record| record.data.as_str()).collect()
    };
    let addresses = [data("A"), data("AAAA")].concat();
    let outside = outside(candidate);
    if !addresses.is_empty() {
        let addresses = join_first(&addresses, MAX_SHOWN);
        let more = match outside.as_slice() {
            [] => String::new(),
            names => {
                format!(
                    ", and to what the upstream servers answer for {}",
                    join_first(names, MAX_SHOWN)
                )
            }
        };
        return (
            format!("resolves to {addresses}{more}"),
            format!("{addresses}{more}"),
        );
    }
    if let [target, ..] = data("CNAME").as_slice() {
        let alias = format!("alias of {target}");
        if outside.contains(target) {
            let long = format!("is an {alias}, whose addresses come from the upstream servers");
            return (long, format!("{alias}, resolved upstream"));
        }
        return (format!("is an {alias}"), alias);
    }
    match (data("PTR").as_slice(), candidate.records().next()) {
        ([], None) => (
            "is resolved by the upstream servers of kubedns".to_owned(),
            "resolved upstream".to_owned(),
        ),
        ([], Some(first)) => {
            let (rtype, data) = (&first.rtype, join_first(&data(&first.rtype), MAX_SHOWN));
            (
                format!("has {rtype} records: {data}"),
                format!("{rtype} {data}"),
            )
        }
        (names, _) => {
            let names = join_first(names, MAX_SHOWN);
            (format!("belongs to {names}"), names)
        }
    }
}

/// The external names whose addresses kubedns adds to the answer.
fn outside(candidate: &Candidate) -> Vec<&str> {
    let answers = candidate
        .answers
        .iter()
        .filter(|answer| answer.is_of_addresses());
    let mut names: Vec<&str> = answers
        .flat_map(|answer| &answer.asks)
        .filter_map(|ask| ask.split(' ').next())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn type_list(candidate: &Candidate) -> String {
    let types: Vec<&str> = candidate
        .answers
        .iter()
        .map(|answer| answer.qtype.as_str())
        .collect();
    match types.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, first)) => format!("{} or {last}", join(first)),
        None => "such".to_owned(),
    }
}

/// Text for an external name that kubedns cannot forward.
const NO_UPSTREAM: &str = "kubedns has no upstream server for it";

/// Describes the forwarding of one name.
fn forwarding(candidate: &Candidate) -> String {
    let name = &candidate.name;
    match forwarded_to(candidate) {
        Some(servers) => format!("{name} is forwarded to {servers}"),
        None => format!("{name} is not forwarded, {NO_UPSTREAM}"),
    }
}

/// The servers that receive a forwarded name; `None` if there are none.
fn forwarded_to(candidate: &Candidate) -> Option<String> {
    let Candidate { dnsmasq, route, .. } = candidate;
    let (domain, servers) = match (dnsmasq.asks, route) {
        (DnsmasqAsks::NodeResolvConf, _) => {
            return Some("the servers of the node's resolv.conf".to_owned());
        }
        (DnsmasqAsks::StubDomain | DnsmasqAsks::Upstreams, _) => {
            (dnsmasq.domain.as_ref(), join(&dnsmasq.servers))
        }
        (_, Route::StubDomain { domain, servers }) => (Some(domain), join(servers)),
        (_, Route::Upstreams { servers } | Route::Reverse { servers, .. }) => (None, join(servers)),
        // A missing cluster name that `--fallthrough` forwards.
        (
            _,
            Route::ClusterDomain { .. } | Route::Zone { .. } | Route::OwnName | Route::SingleLabel,
        ) => {
            return Some("the upstream servers".to_owned());
        }
    };
    match domain {
        _ if servers.is_empty() => None,
        Some(domain) => Some(format!(
            "{servers} of the stub domain {}",
            domain.trim_end_matches('.')
        )),
        None => Some(format!("upstream {servers}")),
    }
}

/// Summarises each name of the search.
pub(crate) fn tried(evidence: Evidence<'_>, candidates: &[Candidate]) -> Vec<Tried> {
    let first = first_answer(candidates).unwrap_or(usize::MAX);
    let tried = |(at, candidate): (usize, &Candidate)| Tried {
        name: candidate.name.to_string(),
        outcome: candidate.outcome(),
        asked: at <= first,
        summary: match candidate.outcome() {
            Outcome::Answered => in_words(candidate).1,
            Outcome::Forwarded => forwarded_to(candidate)
                .map_or_else(|| NO_UPSTREAM.to_owned(), |servers| format!("to {servers}")),
            _ => reasons::of(evidence, candidate)
                .into_iter()
                .find(|reason| !reasons::is_lesson(reason))
                .map_or_else(String::new, |reason| reason.text),
        },
    };
    candidates.iter().enumerate().map(tried).collect()
}
