//! One name that a resolver queries, with the answers of kubedns or dnsmasq.

use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;
use wire::Name;

use super::dnsmasq_path::DnsFront;
use super::name_kind;
use super::objects::MAX_OBJECTS;
use super::type_answer::{bare_alias_target, lookup_outcome};
use crate::document::{
    AnswerRecord, DnsmasqAsks, DnsmasqPath, LookupOutcome, NameKind, NameRoute, TypeAnswer,
};

/// One name, with its records and route.
#[derive(Debug)]
pub(crate) struct NameCandidate {
    pub(crate) name: Name,
    /// The labels below the cluster domain, from right to left. `None` if the name is outside of
    /// the cluster domain, or in a further zone or a stub domain below the cluster domain. Further
    /// zones are the external zone, the zone of the cluster set and the zones from etcd.
    pub(crate) path: Option<Vec<String>>,
    pub(crate) kind: NameKind,
    pub(crate) route: NameRoute,
    pub(crate) dnsmasq: DnsmasqPath,
    /// The answers by type, with all their records.
    pub(crate) answers: Vec<TypeAnswer>,
    /// The Services whose records match the name, and the Service that the name itself denotes.
    pub(crate) sources: Vec<ObjectKey>,
    /// The number of Services beyond `MAX_OBJECTS`, which `sources` omits.
    pub(crate) more_sources: usize,
    /// The target of the name, if the name is an alias and its target is a cluster name without the
    /// queried addresses.
    pub(crate) target: Option<Box<Self>>,
}

impl NameCandidate {
    /// Queries `name` in `snapshot`. Also queries the target of an alias without addresses.
    pub(crate) fn survey(snapshot: &Snapshot, front: &DnsFront, name: Name, types: &[u16]) -> Self {
        let mut candidate = Self::survey_alone(snapshot, front, name, types);

        let target = candidate
            .bare_alias_target()
            .and_then(|target| Name::parse(target).ok())
            .map(|target| Self::survey_alone(snapshot, front, target, types));
        candidate.target = target.filter(|target| target.path.is_some()).map(Box::new);
        candidate
    }

    fn survey_alone(snapshot: &Snapshot, front: &DnsFront, name: Name, types: &[u16]) -> Self {
        let lower = name.to_lowercase();

        // A further zone may be in the cluster domain. The names of such a zone have no `path`.
        let zone_domain = name_kind::further_zone(snapshot, &lower).map(|zone| &zone.domain);
        let path = match zone_domain {
            Some(_) => None,
            None => name_kind::labels_below_domain(&snapshot.zone, &lower),
        };
        let labels: Option<Vec<&str>> = path
            .as_ref()
            .map(|path| path.iter().map(String::as_str).collect());
        let labels = labels.as_deref();

        let kind = name_kind::classify_name(snapshot, &lower, labels);
        let route = name_kind::select_route(&snapshot.zone, &lower, &kind);
        let domain = zone_domain
            .or_else(|| snapshot.zone.domain_of(lower.wire()))
            .unwrap_or(&snapshot.zone.domain);
        let dnsmasq = front.query_path(&lower, domain, &route);

        // The Service that the name denotes explains a missing record, so it is a source as well.
        let mut sources = name_kind::source_services(snapshot, &kind, labels);
        sources.extend(kind.service().filter(|key| !sources.contains(key)).cloned());
        let more_sources = sources.len().saturating_sub(MAX_OBJECTS);
        sources.truncate(MAX_OBJECTS);

        let answers = ask_types(snapshot, front, (&name, domain), types);
        let mut candidate = Self {
            name,
            path,
            kind,
            route,
            dnsmasq,
            answers,
            sources,
            more_sources,
            target: None,
        };
        // The time in the cache depends on the answers.
        candidate.dnsmasq.keeps_seconds = candidate.cached_seconds(front);
        candidate
    }

    pub(crate) fn outcome(&self) -> LookupOutcome {
        if self.dnsmasq.leads_to_kubedns() || self.is_from_hosts() || self.is_from_arguments() {
            lookup_outcome(&self.answers)
        } else {
            LookupOutcome::Forwarded
        }
    }

    /// The target of the name, if the name is an alias without addresses.
    pub(crate) fn bare_alias_target(&self) -> Option<&str> {
        bare_alias_target(&self.answers)
    }

    /// Whether dnsmasq answers from the hosts file.
    pub(crate) fn is_from_hosts(&self) -> bool {
        self.answers.iter().any(|answer| answer.from_hosts)
    }

    /// Whether dnsmasq answers with an address from its arguments.
    pub(crate) fn is_from_arguments(&self) -> bool {
        self.answers.iter().any(|answer| answer.from_arguments)
    }

    /// See [`DnsmasqPath::keeps_seconds`].
    fn cached_seconds(&self, front: &DnsFront) -> Option<u32> {
        let is_own = self.is_from_hosts() || self.is_from_arguments();
        let asks_only_kubedns =
            self.dnsmasq.asks == DnsmasqAsks::Kubedns && self.dnsmasq.servers.is_empty();
        if !asks_only_kubedns || is_own {
            return None;
        }
        if !front.has_cache() {
            return Some(0);
        }

        match self.outcome() {
            LookupOutcome::Answered => self.records().map(|record| record.ttl).min(),
            LookupOutcome::Forwarded => None,
            // There are records, but also an error, a negative answer or an alias without
            // addresses. dnsmasq may cache these for different times, or not at all, so no single
            // number fits all.
            LookupOutcome::NoData | LookupOutcome::ServFail if self.records().next().is_some() => {
                None
            }
            // dnsmasq caches a negative answer for the time of its SOA record, which is not among
            // the records here.
            LookupOutcome::NoData | LookupOutcome::NxDomain if front.caches_negative_answers() => {
                None
            }
            LookupOutcome::NoData
            | LookupOutcome::NxDomain
            | LookupOutcome::ServFail
            | LookupOutcome::Refused => Some(0),
        }
    }

    /// Whether a label of the name is the wildcard `*`.
    pub(crate) fn is_wildcard(&self) -> bool {
        self.name
            .labels()
            .iter()
            .any(|label| label == treecache::ANY)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &AnswerRecord> {
        self.answers.iter().flat_map(|answer| &answer.records)
    }
}

/// The answers for each type. If the hosts file of dnsmasq has answers, the result has only the
/// answers from that file.
fn ask_types(
    snapshot: &Snapshot,
    front: &DnsFront,
    (name, domain): (&Name, &Name),
    types: &[u16],
) -> Vec<TypeAnswer> {
    let lower = name.to_lowercase();
    let mut answers = Vec::with_capacity(types.len());
    for qtype in types {
        let answer = front
            .hosts_answer(&lower, *qtype)
            .or_else(|| front.arguments_answer(&lower, domain, *qtype))
            .unwrap_or_else(|| TypeAnswer::ask_engine(snapshot, name, *qtype));
        answers.push(answer);
    }

    if answers.iter().any(|answer| answer.from_hosts) {
        answers.retain(|answer| answer.from_hosts);
    }
    answers
}

/// The candidates that a resolver queries: its search ends at the first answer.
pub(crate) fn queried_candidates(
    candidates: &[NameCandidate],
) -> impl Iterator<Item = &NameCandidate> {
    let count = first_answered(candidates).map_or(candidates.len(), |at| at + 1);
    candidates.iter().take(count)
}

/// The index of the first candidate with an answer.
pub(crate) fn first_answered(candidates: &[NameCandidate]) -> Option<usize> {
    candidates
        .iter()
        .position(|candidate| candidate.outcome() == LookupOutcome::Answered)
}
