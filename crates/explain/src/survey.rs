//! Builds an explanation in two steps: first from the records, then from the look-up of the
//! objects. Neither step waits or changes state.

use std::sync::Arc;

use cluster::snapshot::Snapshot;
use wire::Name;
use wire::mnemonic::type_name;

use crate::candidate::Candidate;
use crate::dnsmasq::Front;
use crate::document::{Answer, Detail, Explanation, NameKind, Outcome, Question, Route};
use crate::evidence::Evidence;
use crate::moment::Moment;
use crate::near::{self, Reading};
use crate::objects::{FoundObjects, ObjectLookup};
use crate::request::{Request, Search};
use crate::state::{self, ServerState};
use crate::{reasons, search, verdict};

/// A request, and the findings from the records.
#[derive(Debug)]
pub(crate) struct Survey {
    snapshot: Arc<Snapshot>,
    request: Request,
    search: Vec<Name>,
    /// Not empty: contains at least the name itself.
    candidates: Vec<Candidate>,
    readings: Vec<Reading>,
}

impl Survey {
    /// Queries the records for all names of the search.
    pub(crate) fn new(snapshot: Arc<Snapshot>, front: &Front, request: Request) -> Self {
        let search = search::list(&request, &snapshot.zone.domain);
        let candidates: Vec<Candidate> = search::names(&request, &search, &snapshot.zone)
            .into_iter()
            .map(|name| Candidate::new(&snapshot, front, name, &request.types))
            .collect();
        let readings = match verdict::first_answer(&candidates) {
            Some(_) => Vec::new(),
            None => near::readings(&candidates, &snapshot.zone.domain),
        };
        Self {
            snapshot,
            request,
            search,
            candidates,
            readings,
        }
    }

    /// The look-up of Services and endpoints, which the records do not show.
    pub(crate) fn wanted(&self) -> ObjectLookup {
        let mut objects = Vec::new();
        for candidate in &self.candidates {
            let hostname = match &candidate.kind {
                NameKind::Member { label, .. } => Some(label.clone()),
                _ => None,
            };
            let target = candidate.target.iter().flat_map(|target| &target.sources);
            let target = target.map(|key| (key.clone(), None));
            let own = candidate
                .sources
                .iter()
                .map(|key| (key.clone(), hostname.clone()));
            for wanted in own.chain(target) {
                if !objects.contains(&wanted) {
                    objects.push(wanted);
                }
            }
        }
        let address = self
            .candidates
            .iter()
            .find_map(|candidate| match candidate.route {
                Route::Reverse { address, .. } if candidate.dnsmasq.leads_to_kubedns() => {
                    (candidate.outcome() == Outcome::Forwarded).then_some(address)
                }
                _ => None,
            });
        ObjectLookup {
            objects,
            near: near::wanted(&self.snapshot, &self.readings),
            address,
        }
    }

    /// Builds the explanation; `found` is `None` until the first lists are complete.
    pub(crate) fn conclude(
        self,
        found: Option<&FoundObjects>,
        server: &ServerState,
        now: Moment,
    ) -> Explanation {
        let evidence = Evidence {
            snapshot: &self.snapshot,
            found,
            has_upstreams: server.has_upstreams,
            now,
        };
        let at = verdict::most_telling(evidence, &self.candidates, &self.request.name);
        let candidate = &self.candidates[at];
        let near = match candidate.outcome() {
            Outcome::NxDomain | Outcome::Forwarded => {
                near::find(evidence, &self.readings, candidate, &self.request.types)
            }
            // With another outcome the name exists, or kubedns cannot tell.
            _ => Vec::new(),
        };
        let detail = detail(evidence, candidate);
        let mut warnings = state::warnings(server, found, &detail.objects, now);
        warnings.extend(state::lost_zones(server, &self.snapshot, &candidate.name));
        Explanation {
            question: self.question(),
            at: now,
            verdict: verdict::of(&self.candidates, at),
            warnings,
            tried: verdict::tried(evidence, &self.candidates),
            near,
            server: state::server(server, &self.snapshot, found),
            detail,
        }
    }

    fn question(&self) -> Question {
        Question {
            name: self.request.text.clone(),
            meant: self.request.meant.clone(),
            types: self
                .request
                .types
                .iter()
                .map(|qtype| type_name(*qtype))
                .collect(),
            namespace: match &self.request.search {
                Search::Namespace(namespace) if !self.request.absolute => Some(namespace.clone()),
                Search::Namespace(_) | Search::Domains(_) => None,
            },
            search: self.search.iter().map(ToString::to_string).collect(),
            autopath: search::is_autopath(&self.request, &self.snapshot.zone),
            ndots: self.request.ndots,
        }
    }
}

fn detail(evidence: Evidence<'_>, candidate: &Candidate) -> Detail {
    let mut reasons = reasons::of(evidence, candidate);
    reasons.extend(reasons::disagreement(candidate));
    let behind = evidence
        .found
        .iter()
        .flat_map(|found| &found.behind)
        .map(|(found, _)| found);
    let behind = behind.filter(|found| !candidate.sources.contains(&found.object.key));
    let objects = candidate
        .sources
        .iter()
        .filter_map(|key| evidence.object(key))
        .chain(behind);
    Detail {
        name: candidate.name.to_string(),
        route: candidate.route.clone(),
        kind: candidate.kind.clone(),
        answers: candidate
            .answers
            .iter()
            .cloned()
            .map(Answer::shortened)
            .collect(),
        reasons,
        objects: objects
            .map(|found| found.object.clone())
            .filter(|object| object.service.is_some() || object.endpoints.is_some())
            .collect(),
        more_objects: candidate.more_sources,
        dnsmasq: candidate.dnsmasq.clone(),
    }
}
