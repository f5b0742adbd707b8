//! The server behind an explanation: how trustworthy is what it knows?

use dnsconfig::State;

use crate::document::{Note, Object, Server};
use crate::moment::Moment;
use crate::objects::Told;
use cluster::index::Progress;
use cluster::objects::EndpointsSource;
use cluster::snapshot::Snapshot;

/// What is known of the server when an explanation is made.
#[derive(Debug, Clone)]
pub struct ServerState {
    /// How far the first lists are.
    pub progress: Progress,
    /// It was told to stop.
    pub draining: bool,
    /// The kinds of objects (as in URLs) whose watch is not open although they were listed before.
    pub lost: Vec<&'static str>,
    /// The configuration.
    pub config: State,
    /// There are upstream servers in the configuration, `--nameservers` or resolv.conf.
    pub has_upstreams: bool,
}

/// The server, for the document.
pub(crate) fn server(state: &ServerState, snapshot: &Snapshot, told: Option<&Told>) -> Server {
    let records_from = match state.progress {
        Progress::Waiting => "nowhere",
        Progress::Stale | Progress::StaleOverdue => "snapshot_file",
        Progress::Synced => "api_server",
    };
    let endpoints_from = told.and_then(|told| told.source).map(|source| match source {
        EndpointsSource::Endpoints => "Endpoints",
        EndpointsSource::EndpointSlices => "EndpointSlice",
    });
    Server {
        version: daemon::version::VERSION.to_owned(),
        domain: snapshot.zone.domain.to_string(),
        synced: snapshot.synced,
        records_from: records_from.to_owned(),
        endpoints_from: endpoints_from.map(str::to_owned),
        config_version: state.config.version.to_string(),
        config_loaded: state.config.loaded_at.into(),
        config_rejected: state.config.error.as_ref().map(|rejection| rejection.text.clone()),
    }
}

/// What makes an answer less trustworthy. `objects` are those it is made of, `now` is when it is given.
pub(crate) fn warnings(
    state: &ServerState,
    told: Option<&Told>,
    objects: &[Object],
    now: Moment,
) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut warn = |code: &str, text: String| notes.push(Note::new(code, text));
    match state.progress {
        Progress::Waiting => {
            let text = "the first lists have not come from the API server: names of the cluster are REFUSED";
            warn("not_synced", text.to_owned());
        }
        Progress::Stale | Progress::StaleOverdue => {
            let text = "the API server has not been reached since the start: these records are those of the snapshot \
                        file of an earlier run";
            warn("stale", text.to_owned());
        }
        Progress::Synced if !state.lost.is_empty() => {
            let kinds = state.lost.join(" and ");
            warn(
                "api_server_lost",
                format!(
                    "the watch of {kinds} is not open: changes since the API server was lost are not known"
                ),
            );
        }
        Progress::Synced => {}
    }
    if let Some(rejection) = &state.config.error {
        let (version, loaded) = (state.config.version, Moment::from(state.config.loaded_at));
        warn(
            "config_rejected",
            format!(
                "the newest configuration is rejected: {}; version {version} stays in force, loaded {}",
                rejection.text,
                loaded.before(now)
            ),
        );
    }
    if state.draining {
        warn("draining", "this kubedns was told to stop".to_owned());
    }
    match told {
        None => {
            let text = "the index is too busy to be asked: Services, endpoints and names that are near are not shown";
            warn("index_busy", text.to_owned());
        }
        Some(told) if told.cut => {
            warn("near_cut", "there are too many Services to find all names that are near".to_owned());
        }
        Some(_) => {}
    }
    for Object { namespace, name, .. } in objects.iter().filter(|object| is_over_capacity(object)) {
        let text = format!(
            "the control plane left addresses out of Endpoints {namespace}/{name}: there are more than 1000"
        );
        warn("over_capacity", text);
    }
    notes
}

fn is_over_capacity(object: &Object) -> bool {
    object.endpoints.as_ref().is_some_and(|endpoints| endpoints.over_capacity)
}
