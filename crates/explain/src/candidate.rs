//! One name that a resolver asks for, and the answers of kubedns to it.

use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;
use skydns::Name;

use crate::dnsmasq::Front;
use crate::document::{Answer, Dnsmasq, DnsmasqAsks, NameKind, Outcome, Record, Route};
use crate::kind;
use crate::objects::MAX_OBJECTS;

/// One name, with everything that the records themselves tell of it.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) name: Name,
    /// Its labels below the cluster domain, from there downwards; `None` for names that are not ours.
    pub(crate) path: Option<Vec<String>>,
    pub(crate) kind: NameKind,
    pub(crate) route: Route,
    pub(crate) dnsmasq: Dnsmasq,
    /// By type, with all records.
    pub(crate) answers: Vec<Answer>,
    /// The Services that its records come from, or would come from.
    pub(crate) sources: Vec<ObjectKey>,
    /// The number of those left out.
    pub(crate) more_sources: usize,
}

impl Candidate {
    /// Asks `snapshot` for `name`.
    pub(crate) fn new(snapshot: &Snapshot, front: &Front, name: Name, types: &[u16]) -> Self {
        let lower = name.to_lowercase();
        let path = kind::path(&snapshot.zone, &lower);
        let labels: Option<Vec<&str>> = path.as_ref().map(|path| path.iter().map(String::as_str).collect());
        let kind = kind::of(snapshot, &lower, labels.as_deref());
        let route = kind::route(&snapshot.zone, &lower, &kind);
        let mut sources = kind::sources(snapshot, &kind, labels.as_deref());
        sources.extend(kind.service().filter(|key| !sources.contains(key)).cloned());
        let more_sources = sources.len().saturating_sub(MAX_OBJECTS);
        sources.truncate(MAX_OBJECTS);
        let dnsmasq = front.way(&lower, &snapshot.zone.domain, &route);
        let answers = types.iter().map(|qtype| Answer::new(snapshot, &name, *qtype)).collect();
        let mut candidate = Self { name, path, kind, route, dnsmasq, answers, sources, more_sources };
        candidate.dnsmasq.keeps_seconds = candidate.keeps();
        candidate
    }

    /// The outcome for a resolver: records of any type are an answer, except where the addresses fail, since that is
    /// what programs ask for: an alias has an SRV record wherever it leads.
    pub(crate) fn outcome(&self) -> Outcome {
        if !self.dnsmasq.leads_to_kubedns() {
            return Outcome::Forwarded;
        }
        if self.addresses_fail() {
            return Outcome::ServFail;
        }
        if self.answers.iter().any(Answer::has_records) {
            return Outcome::Answered;
        }
        if self.answers.iter().any(|answer| answer.rcode.is_none()) {
            return Outcome::Forwarded;
        }
        match self.answers.first().and_then(|answer| answer.rcode.as_deref()) {
            _ if self.answers.iter().any(|answer| answer.has_rcode("NOERROR")) => Outcome::NoData,
            Some("NXDOMAIN") => Outcome::NxDomain,
            Some("REFUSED") => Outcome::Refused,
            _ => Outcome::ServFail,
        }
    }

    fn addresses_fail(&self) -> bool {
        let addresses = || self.answers.iter().filter(|answer| answer.is_of_addresses());
        addresses().any(|answer| answer.has_rcode("SERVFAIL")) && !addresses().any(Answer::has_records)
    }

    /// See [`Dnsmasq::keeps_seconds`].
    fn keeps(&self) -> Option<u32> {
        match self.outcome() {
            _ if self.dnsmasq.asks != DnsmasqAsks::Kubedns => None,
            Outcome::Answered => self.records().map(|record| record.ttl).min(),
            Outcome::Forwarded => None,
            // What failed is not kept, and the records of another type are.
            Outcome::ServFail if self.records().next().is_some() => None,
            Outcome::NoData | Outcome::NxDomain | Outcome::ServFail | Outcome::Refused => Some(0),
        }
    }

    /// Wildcards match many names and stand for none.
    pub(crate) fn is_wild(&self) -> bool {
        self.name.labels().iter().any(|label| label == treecache::ANY)
    }

    /// All records of all types.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.answers.iter().flat_map(|answer| &answer.records)
    }
}
