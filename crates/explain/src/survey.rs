//! From a question to its explanation, in two steps: what the records tell, and, once the index has been asked, the
//! rest. Pure: nothing is waited for and nothing is changed.

use std::sync::Arc;

use skydns::Name;

use crate::asked::Asked;
use crate::candidate::Candidate;
use crate::dnsmasq::{self, Front};
use crate::document::{Detail, Explanation, Outcome, Place, Question, Route, ServiceKind};
use crate::moment::Moment;
use crate::near::{self, Reading};
use crate::objects::{Told, Wanted, WantedObject};
use crate::place;
use crate::reasons::{self, Known};
use crate::request::{Request, Search};
use crate::state::{self, ServerState};
use crate::verdict::{self, Exists};
use crate::{search, types};
use cluster::snapshot::Snapshot;

/// What the records tell of a question.
#[derive(Debug)]
pub(crate) struct Survey {
    snapshot: Arc<Snapshot>,
    request: Request,
    search: Vec<Name>,
    candidates: Vec<Candidate>,
    readings: Vec<Reading>,
}

impl Survey {
    /// Looks at the records.
    pub(crate) fn new(snapshot: Arc<Snapshot>, front: &Front, request: Request) -> Self {
        let search = search::list(&request, &snapshot.zone.domain);
        let candidates: Vec<Candidate> = search::names(&request, &search)
            .into_iter()
            .map(|name| Candidate::new(&snapshot, front, name, &request.types))
            .collect();
        let readings = match verdict::first_answer(&candidates) {
            Some(_) => Vec::new(),
            None => near::readings(&snapshot, &candidates),
        };
        Self { snapshot, request, search, candidates, readings }
    }

    /// What the index is to be asked.
    pub(crate) fn wanted(&self) -> Wanted {
        let mut objects: Vec<WantedObject> = Vec::new();
        for wanted in self.candidates.iter().flat_map(Candidate::wanted) {
            if !objects.contains(&wanted) {
                objects.push(wanted);
            }
        }
        let address = self.candidates.iter().find_map(|candidate| match &candidate.route {
            Route::Reverse { address, .. } if candidate.dnsmasq.leads_to_kubedns() => {
                (candidate.outcome() == Outcome::Forwarded).then_some(*address)
            }
            _ => None,
        });
        let near = near::wanted(&self.snapshot, &self.readings);
        Wanted { objects, near, namespaces: self.namespaces(), address }
    }

    /// Those of the names tried that have no records in the cluster.
    fn namespaces(&self) -> Vec<String> {
        let keys = self.candidates.iter().filter_map(|candidate| place::service_of(&candidate.place));
        let mut namespaces: Vec<String> = keys.map(|key| key.namespace.to_string()).collect();
        namespaces.retain(|namespace| self.snapshot.tree.node(&["svc", namespace]).is_none());
        namespaces.sort();
        namespaces.dedup();
        namespaces
    }

    /// Puts everything together.
    pub(crate) fn conclude(self, told: Option<&Told>, server: &ServerState, now: Moment) -> Explanation {
        let known = Known { snapshot: &self.snapshot, told, has_upstreams: server.has_upstreams, now };
        let at =
            verdict::most_telling(&self.candidates, &self.request.name, |candidate| exists(known, candidate));
        let reason = |candidate: &Candidate| {
            reasons::of(known, candidate).into_iter().find(|reason| !reasons::is_lesson(reason))
        };
        let near = match self.candidates[at].outcome() {
            Outcome::NxDomain | Outcome::Forwarded => {
                near::find(known, &open_readings(known, &self.candidates[at], &self.readings))
            }
            // The Service that was meant is found, or nothing is found at all.
            _ => Vec::new(),
        };
        // Never empty: whatever the search list, the name itself is among the candidates.
        let detail = self.detail(known, &self.candidates[at]);
        Explanation {
            question: self.question(),
            at: now,
            verdict: verdict::of(&self.candidates, at),
            warnings: state::warnings(server, told, &detail.objects, now),
            tried: verdict::tried(&self.candidates, reason),
            near,
            server: state::server(server, &self.snapshot, told),
            detail,
        }
    }

    fn question(&self) -> Question {
        Question {
            name: self.request.text.clone(),
            types: self.request.types.iter().map(|qtype| types::name(*qtype)).collect(),
            namespace: match &self.request.search {
                Search::Namespace(namespace) if !self.request.absolute => Some(namespace.clone()),
                Search::Namespace(_) | Search::Domains(_) => None,
            },
            search: self.search.iter().map(ToString::to_string).collect(),
            ndots: self.request.ndots,
        }
    }

    fn detail(&self, known: Known<'_>, candidate: &Candidate) -> Detail {
        let mut reasons = reasons::of(known, candidate);
        reasons.extend(dnsmasq::disagreement(candidate));
        let behind = known.told.iter().flat_map(|told| &told.behind).map(|(told, _)| told);
        let behind = behind.filter(|told| !candidate.sources.contains(&told.key));
        let objects = candidate.sources.iter().filter_map(|key| known.object(key)).chain(behind);
        let answer = |asked: &Asked| asked.answer(&*self.snapshot, &candidate.name);
        Detail {
            name: candidate.name.to_string(),
            route: candidate.route.clone(),
            place: candidate.place.clone(),
            answers: candidate.asked.iter().map(answer).collect(),
            reasons,
            objects: objects
                .map(|told| told.object.clone())
                .filter(|object| object.service.is_some() || object.endpoints.is_some())
                .collect(),
            more_objects: candidate.more_sources,
            dnsmasq: dnsmasq::kept(candidate),
        }
    }
}

/// The readings that a name leaves open: none when all that it is about is there, and else those of other Services
/// than the one that is explained.
fn open_readings(known: Known<'_>, candidate: &Candidate, readings: &[Reading]) -> Vec<Reading> {
    match (exists(known, candidate), place::service_of(&candidate.place)) {
        (Exists::Whole, _) => Vec::new(),
        (Exists::Headless | Exists::Memberless, Some(told)) => {
            readings.iter().filter(|reading| *reading.key() != told).cloned().collect()
        }
        _ => readings.to_vec(),
    }
}

fn exists(known: Known<'_>, candidate: &Candidate) -> Exists {
    let Some(key) = place::service_of(&candidate.place) else { return Exists::Nothing };
    let told = known.object(&key);
    match (known.service(candidate), &candidate.place) {
        (Some(_), Place::Member { .. }) if told.is_some_and(|told| told.member.is_some()) => Exists::Whole,
        (Some(service), Place::Member { .. }) => match service.kind {
            ServiceKind::Headless | ServiceKind::WithoutIp => Exists::Headless,
            ServiceKind::ClusterIp | ServiceKind::ExternalName => Exists::Memberless,
        },
        (Some(_), _) => Exists::Whole,
        (None, _) if known.has_namespace(&key.namespace) == Some(true) => Exists::Namespace,
        // The last one of its namespace is remembered, and tells more than who is asked instead.
        (None, _) if told.is_some_and(|told| told.deleted.is_some()) => Exists::Namespace,
        (None, _) => Exists::Nothing,
    }
}
