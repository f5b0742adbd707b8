//! Summarises the answer in one line: for the given name, and for each name tried.

mod forwarding;

use std::collections::BTreeSet;

use cluster::objects::ObjectKey;
use wire::{Name, rcode};

use self::forwarding::{
    NO_UPSTREAM, describe_only_forwarded, forwarded_to, forwarding_sentence, list_in_turn,
};
use super::reasons::{is_lesson, reasons_for};
use crate::document::{
    AnswerSummary, CodedNote, DnsmasqAsks, LookupOutcome, NameKind, NameRoute, ShownServiceKind,
    TriedName,
};
use crate::facts::candidate::{NameCandidate, first_answered};
use crate::facts::evidence::Evidence;
use crate::list::{join, join_first};

/// Maximum number of addresses, names or other record data in one line.
const MAX_SHOWN: usize = 4;

/// The index of the candidate to explain: the first of those with the highest rank
/// ([`rank_candidate`]).
pub(crate) fn most_telling(
    evidence: Evidence<'_>,
    candidates: &[NameCandidate],
    typed: &Name,
) -> usize {
    let mut best_at = 0;
    let mut best_rank = 0;
    for (at, candidate) in candidates.iter().enumerate() {
        let rank = rank_candidate(evidence, candidate, typed);
        if rank > best_rank {
            best_at = at;
            best_rank = rank;
        }
    }
    best_at
}

/// The rank of a name, by how useful its explanation is to the user. A name with an answer has the
/// highest rank. A name of the search list that the user probably did not mean has the lowest.
fn rank_candidate(evidence: Evidence<'_>, candidate: &NameCandidate, typed: &Name) -> u8 {
    let is_single_label = candidate.route == NameRoute::SingleLabel;
    // A name given with the cluster domain is the name that the user means.
    let is_typed_whole = candidate.name == *typed && candidate.path.is_some();

    match candidate.outcome() {
        LookupOutcome::Answered => 10,
        LookupOutcome::NoData => 9,
        LookupOutcome::ServFail | LookupOutcome::Forwarded if is_single_label => 1,
        LookupOutcome::ServFail => 8,
        LookupOutcome::Refused => 7,
        LookupOutcome::NxDomain if is_typed_whole => 6,
        LookupOutcome::NxDomain => rank_missing_name(evidence, candidate),
        LookupOutcome::Forwarded => 3,
    }
}

/// The rank of a name that does not exist. The rank is highest if the Service of the name exists
/// and the name does not denote a missing member.
fn rank_missing_name(evidence: Evidence<'_>, candidate: &NameCandidate) -> u8 {
    if let Some(service) = evidence.existing_service(candidate) {
        if !evidence.lacks_member(candidate) {
            return 6;
        }
        return match service.kind {
            ShownServiceKind::Headless | ShownServiceKind::WithoutIp => 5,
            // For a client in namespace `apps`, the search list turns `NAME.apps` into
            // `NAME.apps.apps.svc.cluster.local`. If the namespace has a Service `apps`, this is
            // the name of a member of that Service. The user rarely means such a member.
            ShownServiceKind::ClusterIp | ShownServiceKind::ExternalName => 4,
        };
    }

    let has_namespace = candidate
        .kind
        .service()
        .is_some_and(|key| evidence.has_had_namespace(key));
    match candidate.kind {
        // Neither the member nor its Service exists. The user probably meant a Service and its
        // namespace, and a search domain was appended to these two labels.
        NameKind::Member { .. } => 0,
        _ if has_namespace => 5,
        NameKind::Service(_) | NameKind::Port { .. } => 2,
        _ => 0,
    }
}

/// The summary of the search. `at` is the index of the candidate that the explanation describes in
/// detail.
pub(crate) fn summarise(candidates: &[NameCandidate], at: usize) -> AnswerSummary {
    let candidate = &candidates[at];
    let outcome = candidate.outcome();
    let forwarded = forwarded_candidates(candidates);

    let text = match outcome {
        LookupOutcome::Answered => {
            // The resolver uses the answer to an earlier forwarded name, if there is one.
            let before = forwarded_candidates(&candidates[..at]);
            unless_forwarded_exists(describe_records(candidate).sentence, &before)
        }
        LookupOutcome::Forwarded => {
            format!(
                "{}: {}",
                describe_forwarded(candidate),
                list_in_turn(&forwarded)
            )
        }
        _ if forwarded.is_empty() => describe_missing(candidate),
        _ => {
            // The resolver also queries the forwarded names, which may have an answer.
            let rest = match forwarded.as_slice() {
                [only] => describe_only_forwarded(candidates, only),
                several => list_in_turn(several),
            };
            let text = format!("{}; {rest}", describe_missing_here(candidate));
            return AnswerSummary {
                outcome: LookupOutcome::Forwarded,
                text,
            };
        }
    };
    AnswerSummary { outcome, text }
}

fn forwarded_candidates(candidates: &[NameCandidate]) -> Vec<&NameCandidate> {
    candidates
        .iter()
        .filter(|candidate| candidate.outcome() == LookupOutcome::Forwarded)
        .collect()
}

/// Appends the forwarded names that the resolver queries before the answered name. No upstream is
/// queried for an explanation, so it is unknown whether these names exist.
fn unless_forwarded_exists(answer: String, before: &[&NameCandidate]) -> String {
    match before {
        [] => answer,
        [first] => format!(
            "{answer}, unless {} exists, which the resolver tries first: {}",
            first.name,
            forwarding_sentence(first)
        ),
        more => format!(
            "{answer}, unless the resolver finds one of {} earlier names: {}",
            more.len(),
            list_in_turn(more)
        ),
    }
}

/// Describes a name without an answer.
fn describe_missing(candidate: &NameCandidate) -> String {
    let text = match candidate.outcome() {
        LookupOutcome::NoData => {
            return describe_bare_alias(candidate).unwrap_or_else(|| {
                // Only the upstreams know whether an external name exists.
                let verb = match candidate.kind {
                    NameKind::External => "has",
                    _ => "exists, and has",
                };
                format!("{verb} no {} records", list_types(candidate))
            });
        }
        LookupOutcome::NxDomain => "does not exist (NXDOMAIN)",
        LookupOutcome::Refused => "is refused (REFUSED)",
        _ if candidate.route == NameRoute::SingleLabel => {
            "is not a name of this cluster and has only one label"
        }
        _ => "cannot be resolved (SERVFAIL)",
    };
    text.to_owned()
}

/// Describes a name without an answer in this cluster, while other names of the search are
/// forwarded.
fn describe_missing_here(candidate: &NameCandidate) -> String {
    match candidate.outcome() {
        LookupOutcome::NoData => describe_bare_alias(candidate)
            .unwrap_or_else(|| format!("has no {} records in this cluster", list_types(candidate))),
        LookupOutcome::Refused => "is refused in this cluster".to_owned(),
        _ => "does not resolve in this cluster".to_owned(),
    }
}

/// Describes an alias without addresses, and the outcome of its target.
fn describe_bare_alias(candidate: &NameCandidate) -> Option<String> {
    let target = candidate.bare_alias_target()?;
    let lack = match candidate.target.as_ref().map(|target| target.outcome()) {
        Some(LookupOutcome::NxDomain) => "does not exist".to_owned(),
        Some(LookupOutcome::NoData) => format!("has no {} records", list_types(candidate)),
        _ => "has no address".to_owned(),
    };
    Some(format!("is an alias of {target}, which {lack}"))
}

/// Says why kubedns does not answer a forwarded name itself.
fn describe_forwarded(candidate: &NameCandidate) -> &'static str {
    let asks_kubedns = candidate.dnsmasq.leads_to_kubedns();
    match candidate.route {
        NameRoute::ClusterDomain { .. } | NameRoute::Reverse { .. } if !asks_kubedns => {
            match candidate.dnsmasq.asks {
                DnsmasqAsks::StubDomain => "belongs to a stub domain, not to kubedns",
                _ => "belongs to a domain in the arguments of dnsmasq, not to kubedns",
            }
        }
        NameRoute::Reverse { .. } => "has no name in this cluster",
        _ => "is not a name of this cluster",
    }
}

/// The records of a name in a few words.
struct RecordsInWords {
    /// The rest of a sentence that begins with the name.
    sentence: String,
    /// Only the records, for a table.
    short: String,
}

/// Describes the records. Addresses come first, because most queries request addresses.
fn describe_records(candidate: &NameCandidate) -> RecordsInWords {
    let mut addresses = [record_data(candidate, "A"), record_data(candidate, "AAAA")].concat();
    // Several Services that match a wildcard can have the same address, which is listed only once.
    let mut known = BTreeSet::new();
    addresses.retain(|address| known.insert(*address));
    if !addresses.is_empty() {
        return describe_addresses(candidate, &addresses);
    }
    if let Some(target) = record_data(candidate, "CNAME").first() {
        return describe_alias(candidate, target);
    }

    // An alias in the ConfigMap or a federated name can have an external target. In that case,
    // kubedns has no record until an upstream responds.
    let external = external_names(candidate);
    if !external.is_empty() {
        return describe_upstream_alias(&join_first(&external, MAX_SHOWN));
    }

    let pointers = record_data(candidate, "PTR");
    if !pointers.is_empty() {
        let names = join_first(&pointers, MAX_SHOWN);
        return RecordsInWords {
            sentence: format!("belongs to {names}"),
            short: names,
        };
    }
    match candidate.records().next() {
        // All records of the answer come from upstreams, which are not queried for an explanation.
        None => RecordsInWords {
            sentence: "is resolved by the upstream servers of kubedns".to_owned(),
            short: "resolved upstream".to_owned(),
        },
        Some(first) => {
            let rtype = &first.rtype;
            let data = join_first(&record_data(candidate, rtype), MAX_SHOWN);
            RecordsInWords {
                sentence: format!("has {rtype} records: {data}"),
                short: format!("{rtype} {data}"),
            }
        }
    }
}

fn describe_addresses(candidate: &NameCandidate, addresses: &[&str]) -> RecordsInWords {
    let mut text = join_first(addresses, MAX_SHOWN);
    let external = external_names(candidate);
    if !external.is_empty() {
        text.push_str(" and the addresses that the upstream servers return for ");
        text.push_str(&join_first(&external, MAX_SHOWN));
    }
    RecordsInWords {
        sentence: format!("resolves to {text}"),
        short: text,
    }
}

fn describe_alias(candidate: &NameCandidate, target: &str) -> RecordsInWords {
    let alias = format!("alias of {target}");
    if external_names(candidate).contains(&target) {
        return describe_upstream_alias(target);
    }
    RecordsInWords {
        sentence: format!("is an {alias}"),
        short: alias,
    }
}

fn describe_upstream_alias(target: &str) -> RecordsInWords {
    RecordsInWords {
        sentence: format!(
            "is an alias of {target}, whose addresses come from the upstream servers"
        ),
        short: format!("alias of {target}, resolved upstream"),
    }
}

/// The data of the records of one type.
fn record_data<'c>(candidate: &'c NameCandidate, rtype: &str) -> Vec<&'c str> {
    candidate
        .records()
        .filter(|record| record.rtype == rtype)
        .map(|record| record.data.as_str())
        .collect()
}

/// The external names whose addresses kubedns adds to the answer.
fn external_names(candidate: &NameCandidate) -> Vec<&str> {
    let mut names = Vec::new();
    for answer in &candidate.answers {
        if answer.is_of_addresses() {
            // Each of `asks` is `NAME TYPE`.
            names.extend(answer.asks.iter().filter_map(|ask| ask.split(' ').next()));
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

fn list_types(candidate: &NameCandidate) -> String {
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

/// Summarises each name of the search.
pub(crate) fn summarise_tried(
    evidence: Evidence<'_>,
    candidates: &[NameCandidate],
) -> Vec<TriedName> {
    // A resolver ends its search at the first answer.
    let first = first_answered(candidates).unwrap_or(usize::MAX);
    let mut tried = Vec::with_capacity(candidates.len());
    for (at, candidate) in candidates.iter().enumerate() {
        let (outcome, summary) = match denied_outcome(candidate) {
            Some(outcome) => (outcome, "dnsmasq itself answers".to_owned()),
            None => (candidate.outcome(), tried_text(evidence, candidate)),
        };
        tried.push(TriedName {
            name: candidate.name.to_string(),
            outcome,
            asked: at <= first,
            summary,
        });
    }
    tried
}

/// The outcome of a name for which dnsmasq has no server, so that dnsmasq itself answers.
fn denied_outcome(candidate: &NameCandidate) -> Option<LookupOutcome> {
    if candidate.outcome() != LookupOutcome::Forwarded {
        return None;
    }
    match candidate.dnsmasq.denial()? {
        rcode::REFUSED => Some(LookupOutcome::Refused),
        _ => Some(LookupOutcome::NxDomain),
    }
}

fn tried_text(evidence: Evidence<'_>, candidate: &NameCandidate) -> String {
    match candidate.outcome() {
        LookupOutcome::Answered => describe_records(candidate).short,
        LookupOutcome::Forwarded => match forwarded_to(candidate) {
            Some(servers) => format!("to {servers}"),
            None => NO_UPSTREAM.to_owned(),
        },
        // A reason that explains the general form of names would be the same in each line.
        _ => reasons_for(evidence, candidate)
            .into_iter()
            .find(|reason| !is_lesson(reason))
            .map(|reason| tried_reason_text(candidate, reason))
            .unwrap_or_default(),
    }
}

/// The reason why a name of the search list has no answer. In
/// `web.apps.default.svc.cluster.local.`, `apps` stands in the place of a Service, although the
/// user may have meant a namespace. So the text says what the name would be.
fn tried_reason_text(candidate: &NameCandidate, reason: CodedNote) -> String {
    match &candidate.kind {
        NameKind::Member { key, .. } if reason.code == "no_such_service" => {
            let ObjectKey { namespace, name } = key;
            format!("would be an endpoint of the missing Service {name:?} in namespace {namespace}")
        }
        _ => reason.text,
    }
}
