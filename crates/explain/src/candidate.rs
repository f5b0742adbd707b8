//! One name that a resolver queries, and the answers of kubedns.

use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;
use wire::Name;

use crate::answer;
use crate::dnsmasq::Front;
use crate::document::{Answer, Dnsmasq, DnsmasqAsks, NameKind, Outcome, Record, Route};
use crate::kind;
use crate::objects::MAX_OBJECTS;

/// One name of the search, with its records and route.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) name: Name,
    /// The labels below the cluster domain, from right to left; `None` outside of the cluster
    /// domain.
    pub(crate) path: Option<Vec<String>>,
    pub(crate) kind: NameKind,
    pub(crate) route: Route,
    pub(crate) dnsmasq: Dnsmasq,
    /// The answers by type, before truncation.
    pub(crate) answers: Vec<Answer>,
    /// The Services whose records match the name, and the Service that the name itself denotes.
    pub(crate) sources: Vec<ObjectKey>,
    /// The number of Services beyond `MAX_OBJECTS`, which `sources` omits.
    pub(crate) more_sources: usize,
    /// The target, if the name is an alias of a cluster name that lacks the queried addresses.
    pub(crate) target: Option<Box<Self>>,
}

impl Candidate {
    /// Queries `name` in `snapshot`. Also queries the target of an alias without addresses.
    pub(crate) fn new(snapshot: &Snapshot, front: &Front, name: Name, types: &[u16]) -> Self {
        let mut candidate = Self::alone(snapshot, front, name, types);
        let target = candidate
            .bare_alias()
            .and_then(|target| Name::parse(target).ok());
        let target = target.map(|target| Self::alone(snapshot, front, target, types));
        candidate.target = target.filter(|target| target.path.is_some()).map(Box::new);
        candidate
    }

    fn alone(snapshot: &Snapshot, front: &Front, name: Name, types: &[u16]) -> Self {
        let lower = name.to_lowercase();
        let further = kind::further(snapshot, &lower).map(|zone| &zone.domain);
        let path = kind::path(&snapshot.zone, &lower).filter(|_| further.is_none());
        let labels: Option<Vec<&str>> = path
            .as_ref()
            .map(|path| path.iter().map(String::as_str).collect());
        let kind = kind::of(snapshot, &lower, labels.as_deref());
        let route = kind::route(&snapshot.zone, &lower, &kind);
        let mut sources = kind::sources(snapshot, &kind, labels.as_deref());
        sources.extend(kind.service().filter(|key| !sources.contains(key)).cloned());
        let more_sources = sources.len().saturating_sub(MAX_OBJECTS);
        sources.truncate(MAX_OBJECTS);
        let domain = further.or_else(|| snapshot.zone.domain_of(lower.wire()));
        let domain = domain.unwrap_or(&snapshot.zone.domain);
        let dnsmasq = front.way(&lower, domain, &route);
        let answer = |qtype: &u16| {
            front
                .answers(&lower, *qtype)
                .unwrap_or_else(|| Answer::new(snapshot, &name, *qtype))
        };
        let mut answers: Vec<Answer> = types.iter().map(answer).collect();
        if answers.iter().any(|answer| answer.from_hosts) {
            answers.retain(|answer| answer.from_hosts);
        }
        let target = None;
        let mut candidate = Self {
            name,
            path,
            kind,
            route,
            dnsmasq,
            answers,
            sources,
            more_sources,
            target,
        };
        candidate.dnsmasq.keeps_seconds = candidate.keeps();
        candidate
    }

    pub(crate) fn outcome(&self) -> Outcome {
        if self.dnsmasq.leads_to_kubedns() || self.is_from_hosts() {
            answer::outcome(&self.answers)
        } else {
            Outcome::Forwarded
        }
    }

    /// The target of the name, if it is an alias without addresses.
    pub(crate) fn bare_alias(&self) -> Option<&str> {
        answer::bare_alias(&self.answers)
    }

    /// Whether dnsmasq answers from the hosts file.
    pub(crate) fn is_from_hosts(&self) -> bool {
        self.answers.iter().any(|answer| answer.from_hosts)
    }

    /// See [`Dnsmasq::keeps_seconds`].
    fn keeps(&self) -> Option<u32> {
        match self.outcome() {
            _ if self.dnsmasq.asks != DnsmasqAsks::Kubedns || self.is_from_hosts() => None,
            Outcome::Answered => self.records().map(|record| record.ttl).min(),
            Outcome::Forwarded => None,
            // dnsmasq caches the records that exist, but not the negative answers: no single number
            // holds for both.
            Outcome::NoData | Outcome::ServFail if self.records().next().is_some() => None,
            Outcome::NoData | Outcome::NxDomain | Outcome::ServFail | Outcome::Refused => Some(0),
        }
    }

    /// Whether a label of the name is the wildcard `*`.
    pub(crate) fn is_wild(&self) -> bool {
        self.name
            .labels()
            .iter()
            .any(|label| label == treecache::ANY)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.answers.iter().flat_map(|answer| &answer.records)
    }
}
