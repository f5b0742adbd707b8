//! The state of the server in an explanation, and warnings about the records.

use dnsconfig::ConfigState;

use crate::document::{Note, Object, Server};
use crate::kind;
use crate::moment::Moment;
use crate::objects::FoundObjects;
use cluster::index::Progress;
use cluster::objects::{EndpointsSource, Kind};
use cluster::snapshot::Snapshot;
use skydns::FurtherZone;
use wire::Name;

/// The state of the server at the time of an explanation.
#[derive(Debug, Clone)]
pub struct ServerState {
    /// The progress towards the first complete lists.
    pub progress: Progress,
    /// Whether the process is shutting down.
    pub draining: bool,
    /// The kinds of objects without an open watch: the watch was lost, or the kind is not needed.
    pub lost: Vec<Kind>,
    /// The further zones (etcd, cluster set) whose watch is not open.
    pub lost_zones: Vec<LostZone>,
    /// The configuration.
    pub config: ConfigState,
    /// Whether there are upstream servers in the configuration, `--nameservers` or resolv.conf.
    pub has_upstreams: bool,
}

/// A further zone whose watch is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostZone {
    /// The domain of the zone, in lower case.
    pub domain: Name,
    /// The reason why the watch is not open.
    pub reason: String,
}

/// The server as part of the document.
pub(crate) fn server(
    state: &ServerState,
    snapshot: &Snapshot,
    found: Option<&FoundObjects>,
) -> Server {
    let records_from = match state.progress {
        Progress::Waiting => "nowhere",
        Progress::Stale | Progress::StaleOverdue => "snapshot_file",
        Progress::Synced => "api_server",
    };
    Server {
        version: daemon::version::VERSION.to_owned(),
        domain: snapshot.zone.domain.to_string(),
        synced: snapshot.synced,
        records_from: records_from.to_owned(),
        endpoints_from: endpoints_kind(found).map(|(_, name)| name.to_owned()),
        config_version: state.config.version.to_string(),
        config_loaded: state.config.loaded_at.into(),
        config_rejected: state
            .config
            .error
            .as_ref()
            .map(|rejection| rejection.text.clone()),
    }
}

/// The kind of objects that endpoints come from, and its name.
fn endpoints_kind(found: Option<&FoundObjects>) -> Option<(Kind, &'static str)> {
    Some(match found?.source {
        EndpointsSource::Endpoints => (Kind::Endpoints, "Endpoints"),
        EndpointsSource::EndpointSlices => (Kind::EndpointSlice, "EndpointSlice"),
    })
}

/// Warnings that an answer made of `objects` may be outdated or incomplete at `now`.
pub(crate) fn warnings(
    state: &ServerState,
    found: Option<&FoundObjects>,
    objects: &[Object],
    now: Moment,
) -> Vec<Note> {
    let mut warnings = vec![progress(state, found), rejected(&state.config, now)];
    warnings.extend(
        state
            .config
            .unknown_keys
            .iter()
            .map(|key| Some(Note::new("config_unknown_key", format!("ConfigMap: {key}")))),
    );
    if state.draining {
        warnings.push(Some(Note::new("draining", "this kubedns is shutting down")));
    }
    if found.is_some_and(|found| found.cut) {
        let text = "there are too many Services to find all similar names";
        warnings.push(Some(Note::new("near_cut", text)));
    }
    let is_over_capacity =
        |object: &&Object| object.endpoints.as_ref().is_some_and(|e| e.over_capacity);
    warnings.extend(objects.iter().filter(is_over_capacity).map(|Object { key, .. }| {
        let text =
            format!("the control plane left addresses out of Endpoints {key}: there are more than 1000");
        Some(Note::new("over_capacity", text))
    }));
    warnings.into_iter().flatten().collect()
}

fn progress(state: &ServerState, found: Option<&FoundObjects>) -> Option<Note> {
    let endpoints = endpoints_kind(found).map(|(kind, _)| kind);
    let is_needed = |kind: &&Kind| **kind == Kind::Service || Some(**kind) == endpoints;
    let lost: Vec<&Kind> = state.lost.iter().filter(is_needed).collect();
    let (code, text) = match state.progress {
        Progress::Waiting => (
            "not_synced",
            "the first lists have not come from the API server: names of the cluster are REFUSED".to_owned(),
        ),
        Progress::Stale | Progress::StaleOverdue => (
            "stale",
            "the API server has not been reached since the start: the records come from the snapshot file of an earlier \
             run"
                .to_owned(),
        ),
        Progress::Synced if lost.is_empty() => return None,
        Progress::Synced => {
            let kinds = lost.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
            let text = format!(
                "the watch of {kinds} is not open: changes since the API server was lost are unknown"
            );
            ("api_server_lost", text)
        }
    };
    Some(Note::new(code, text))
}

fn rejected(config: &ConfigState, now: Moment) -> Option<Note> {
    let in_force = if config.is_default() {
        "the defaults are in force".to_owned()
    } else {
        let loaded = Moment::from(config.loaded_at).before(now);
        format!("version {} stays in force, loaded {loaded}", config.version)
    };
    let text = format!(
        "the newest configuration is rejected: {}; {in_force}",
        config.error.as_ref()?.text
    );
    Some(Note::new("config_rejected", text))
}

/// Warnings about the zones that may hold `name` and whose watch is not open.
pub(crate) fn lost_zones(state: &ServerState, snapshot: &Snapshot, name: &Name) -> Vec<Note> {
    let name = name.to_lowercase();
    let own = kind::further(snapshot, &name).map(|zone| &zone.domain);
    let holds = |zone: &&FurtherZone| {
        Some(&zone.domain) == own || zone.pointers && name.is_within(&zone.domain)
    };
    let of_zone = |zone: &FurtherZone| {
        let (domain, is_loaded) = (zone.domain.clone(), zone.records.has_synced());
        let lost = state
            .lost_zones
            .iter()
            .filter(move |lost| lost.domain == domain);
        lost.map(move |lost| lost.note(is_loaded))
            .collect::<Vec<_>>()
    };
    snapshot
        .zones
        .iter()
        .filter(holds)
        .flat_map(of_zone)
        .collect()
}

impl LostZone {
    fn note(&self, is_loaded: bool) -> Note {
        let Self { domain, reason } = self;
        let text = if is_loaded {
            format!(
                "the zone {domain} is not followed now, its later changes are unknown: {reason}"
            )
        } else {
            format!("the zone {domain} cannot be loaded: {reason}")
        };
        Note::new("zone_lost", text)
    }
}
