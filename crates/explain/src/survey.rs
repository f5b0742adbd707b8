//! Builds an explanation in two steps: first from the records, then from the look-up of the
//! objects. Neither step waits or changes state.

use std::sync::Arc;

use cluster::snapshot::Snapshot;
use wire::Name;
use wire::mnemonic::type_name;

use crate::document::{
    Explanation, LookupOutcome, NameDetail, NameKind, NameRoute, QuestionReport, TypeAnswer,
};
use crate::facts::candidate::{NameCandidate, first_answered};
use crate::facts::dnsmasq_path::DnsFront;
use crate::facts::evidence::Evidence;
use crate::facts::objects::{FoundObjects, ObjectLookup, WantedService};
use crate::facts::search_names::{is_autopath, names_to_query, search_list};
use crate::facts::server_state::{ServerState, report_server};
use crate::moment::Moment;
use crate::reasoning::reasons::{reasons_for, server_disagreement};
use crate::reasoning::similar_names::{
    NameReading, SimilarNames, read_candidates, services_to_look_up, suggest_names,
};
use crate::reasoning::summary::{most_telling, summarise, summarise_tried};
use crate::reasoning::warnings::{
    warn_of_added_servers, warn_of_lost_zones, warn_of_state, warn_of_upstreams,
};
use crate::request::{ExplainRequest, RequestedSearch};

/// A request, and the findings from the records.
#[derive(Debug)]
pub(crate) struct NameSurvey {
    snapshot: Arc<Snapshot>,
    front: DnsFront,
    request: ExplainRequest,
    search: Vec<Name>,
    /// Not empty, because there is always at least one name to query.
    candidates: Vec<NameCandidate>,
    readings: Vec<NameReading>,
}

impl NameSurvey {
    /// Queries the records for all names that [`names_to_query`] returns.
    pub(crate) fn query_records(
        snapshot: Arc<Snapshot>,
        front: &DnsFront,
        request: ExplainRequest,
    ) -> Self {
        let search = search_list(&request, &snapshot.zone.domain);
        let mut candidates = Vec::new();
        for name in names_to_query(&request, &search, &snapshot.zone) {
            let candidate = NameCandidate::survey(&snapshot, front, name, &request.types);
            candidates.push(candidate);
        }

        // Similar names are of interest only if no name has an answer.
        let readings = match first_answered(&candidates) {
            Some(_) => Vec::new(),
            None => read_candidates(&candidates, &snapshot.zone.domain),
        };
        Self {
            snapshot,
            front: front.clone(),
            request,
            search,
            candidates,
            readings,
        }
    }

    /// The look-up of the Services and endpoints. The records do not contain these objects.
    pub(crate) fn object_lookup(&self) -> ObjectLookup {
        let mut services = Vec::new();
        // Candidates often share their Services.
        for candidate in &self.candidates {
            for wanted in wanted_services(candidate) {
                if !services.contains(&wanted) {
                    services.push(wanted);
                }
            }
        }

        ObjectLookup {
            services,
            misspelled: services_to_look_up(&self.snapshot, &self.readings),
            address: self.candidates.iter().find_map(address_without_pointer),
        }
    }

    /// Builds the explanation. `found` is `None` if kubedns has not published the Services and
    /// endpoints yet.
    pub(crate) fn conclude(
        self,
        found: Option<&FoundObjects>,
        server: &ServerState,
        now: Moment,
    ) -> Explanation {
        let evidence = Evidence {
            snapshot: &self.snapshot,
            front: &self.front,
            found,
            has_upstreams: server.has_upstreams,
            now,
        };
        let at = most_telling(evidence, &self.candidates, &self.request.name);
        let candidate = &self.candidates[at];

        let similar = match candidate.outcome() {
            LookupOutcome::NxDomain | LookupOutcome::Forwarded => {
                suggest_names(evidence, &self.readings, candidate, &self.request.types)
            }
            // With another outcome the name exists, or kubedns cannot tell.
            _ => SimilarNames::default(),
        };
        let mut detail = describe_name(evidence, candidate);
        detail.reasons.extend(similar.remark());
        let mut warnings = warn_of_state(server, found, &detail.objects, now);
        warnings.extend(warn_of_lost_zones(server, &self.snapshot, &candidate.name));
        warnings.extend(warn_of_added_servers(&self.candidates));
        warnings.extend(warn_of_upstreams(server, &self.snapshot, &self.candidates));

        Explanation {
            question: self.report_question(),
            at: now,
            verdict: summarise(&self.candidates, at),
            warnings,
            tried: summarise_tried(evidence, &self.candidates),
            near: similar.names,
            server: report_server(server, &self.snapshot, found),
            detail,
        }
    }

    fn report_question(&self) -> QuestionReport {
        let request = &self.request;
        let namespace = match &request.search {
            RequestedSearch::Namespace(namespace) if !request.absolute => Some(namespace.clone()),
            RequestedSearch::Namespace(_) | RequestedSearch::Domains(_) => None,
        };

        QuestionReport {
            name: request.text.clone(),
            meant: request.meant.clone(),
            types: request.types.iter().copied().map(type_name).collect(),
            namespace,
            search: self.search.iter().map(ToString::to_string).collect(),
            autopath: is_autopath(request, &self.snapshot.zone),
            ndots: request.ndots,
        }
    }
}

/// The Services to look up for a candidate and for its target.
fn wanted_services(candidate: &NameCandidate) -> Vec<WantedService> {
    let hostname = match &candidate.kind {
        NameKind::Member { label, .. } => Some(label.clone()),
        _ => None,
    };

    let mut wanted = Vec::new();
    for key in &candidate.sources {
        wanted.push(WantedService {
            key: key.clone(),
            hostname: hostname.clone(),
        });
    }
    // The hostname is a label of the candidate's own name, so it does not apply to the Services of
    // the target.
    for key in candidate.target.iter().flat_map(|target| &target.sources) {
        wanted.push(WantedService {
            key: key.clone(),
            hostname: None,
        });
    }
    wanted
}

/// The address of a reverse name that kubedns forwards because there is no PTR record.
fn address_without_pointer(candidate: &NameCandidate) -> Option<std::net::IpAddr> {
    let NameRoute::Reverse { address, .. } = candidate.route else {
        return None;
    };
    let is_forwarded = candidate.outcome() == LookupOutcome::Forwarded;
    (is_forwarded && candidate.dnsmasq.leads_to_kubedns()).then_some(address)
}

fn describe_name(evidence: Evidence<'_>, candidate: &NameCandidate) -> NameDetail {
    let mut reasons = reasons_for(evidence, candidate);
    reasons.extend(server_disagreement(candidate));

    // The Services from which the records of the name were made are first. If the requested address
    // has no PTR record, Services that have this address among their endpoints follow.
    let mut objects = Vec::new();
    for key in &candidate.sources {
        objects.extend(evidence.found_service(key).map(|found| &found.object));
    }
    for backed in evidence
        .found
        .iter()
        .flat_map(|found| &found.backed_by_address)
    {
        let object = &backed.service.object;
        if !candidate.sources.contains(&object.key) {
            objects.push(object);
        }
    }
    // Without a Service and without endpoints, there is nothing to show.
    objects.retain(|object| object.service.is_some() || object.endpoints.is_some());

    NameDetail {
        name: candidate.name.to_string(),
        route: candidate.route.clone(),
        kind: candidate.kind.clone(),
        answers: candidate
            .answers
            .iter()
            .cloned()
            .map(TypeAnswer::with_few_records)
            .collect(),
        reasons,
        objects: objects.into_iter().cloned().collect(),
        more_objects: candidate.more_sources,
        dnsmasq: candidate.dnsmasq.clone(),
    }
}
