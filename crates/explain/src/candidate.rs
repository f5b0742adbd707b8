//! One name that a resolver asks for, and what kubedns makes of it.

use skydns::Name;
use skydns::wire::{rcode, rtype};

use crate::asked::Asked;
use crate::dnsmasq::Front;
use crate::document::{Dnsmasq, Outcome, Place, Route};
use crate::objects::WantedObject;
use crate::place::{self, Labels};
use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;

/// How many Services are told of one name.
pub(crate) const MAX_OBJECTS: usize = 4;

/// One name, with everything that the records themselves tell of it.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// The name.
    pub(crate) name: Name,
    /// Its labels.
    pub(crate) labels: Labels,
    /// What they mean.
    pub(crate) place: Place,
    /// Who is responsible.
    pub(crate) route: Route,
    /// Whom dnsmasq asks.
    pub(crate) dnsmasq: Dnsmasq,
    /// What kubedns answers, by type.
    pub(crate) asked: Vec<Asked>,
    /// The Services that its records come from, or would come from.
    pub(crate) sources: Vec<ObjectKey>,
    /// How many more there are.
    pub(crate) more_sources: usize,
}

impl Candidate {
    /// Asks `snapshot` for `name`.
    pub(crate) fn new(snapshot: &Snapshot, front: &Front, name: Name, types: &[u16]) -> Self {
        let labels = Labels::new(&name);
        let place = place::of(snapshot, &labels);
        let route = place::route(snapshot, &name, &labels, &place);
        let dnsmasq = front.way(&labels, &snapshot.zone.domain, &route);
        let asked = types.iter().map(|qtype| Asked::new(snapshot, &name, *qtype)).collect();
        let (mut sources, more) = place::sources(snapshot, &labels, &place);
        if let Some(key) = place::service_of(&place)
            && !sources.contains(&key)
        {
            sources.push(key);
        }
        let more_sources = more + sources.len().saturating_sub(MAX_OBJECTS);
        sources.truncate(MAX_OBJECTS);
        Self { name, labels, place, route, dnsmasq, asked, sources, more_sources }
    }

    /// What a resolver sees of it: records of any type are an answer, except where the addresses fail, since that is
    /// what programs ask for: an alias has an SRV record wherever it leads.
    pub(crate) fn outcome(&self) -> Outcome {
        if !self.dnsmasq.leads_to_kubedns() {
            return Outcome::Forwarded;
        }
        if self.addresses_fail() {
            return Outcome::ServFail;
        }
        if self.asked.iter().any(Asked::has_records) {
            return Outcome::Answered;
        }
        if self.asked.iter().any(|asked| asked.rcode.is_none()) {
            return Outcome::Forwarded;
        }
        let codes: Vec<u16> = self.asked.iter().filter_map(|asked| asked.rcode).collect();
        match codes.first() {
            _ if codes.contains(&rcode::NOERROR) => Outcome::NoData,
            Some(&rcode::NXDOMAIN) => Outcome::NxDomain,
            Some(&rcode::REFUSED) => Outcome::Refused,
            _ => Outcome::ServFail,
        }
    }

    fn addresses_fail(&self) -> bool {
        let addresses = || self.asked.iter().filter(|asked| matches!(asked.qtype, rtype::A | rtype::AAAA));
        let fails = addresses().any(|asked| asked.rcode == Some(rcode::SERVFAIL));
        fails && !addresses().any(Asked::has_records)
    }

    /// The objects to ask the index for.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = WantedObject> {
        self.sources.iter().map(|key| {
            let hostname = match &self.place {
                Place::Member { label, .. } => Some(label.clone()),
                _ => None,
            };
            WantedObject { key: key.clone(), hostname }
        })
    }

    /// Wildcards match many names and stand for none.
    pub(crate) fn is_wild(&self) -> bool {
        self.labels.all().contains(&place::ANY)
    }

    /// All records of all types.
    pub(crate) fn records(&self) -> impl Iterator<Item = &crate::document::Record> {
        self.asked.iter().flat_map(|asked| &asked.records)
    }
}
