//! The state of the server in an explanation.

use cluster::index::SyncProgress;
use cluster::objects::EndpointsSource;
use cluster::snapshot::Snapshot;
use dnsconfig::ConfigState;
use reports::kubedns::NodeReport;
use skydns::Records as _;
use wire::Name;

use super::objects::FoundObjects;
use crate::document::ServerReport;

/// The state of the server at the time of an explanation.
#[derive(Debug, Clone)]
pub struct ServerState {
    /// The progress towards the first complete lists.
    pub progress: SyncProgress,
    /// Whether the process is shutting down.
    pub draining: bool,
    /// The kinds of objects that kubedns needs and whose watch is not open.
    pub lost_watches: Vec<String>,
    /// The further zones (etcd, cluster set) of which at least one watch is not open. A zone from
    /// etcd is included only after its watch has failed.
    pub lost_zones: Vec<LostZone>,
    /// The configuration.
    pub config: ConfigState,
    /// Whether kubedns has upstream servers for external names. A server that is not used because
    /// of a forwarding loop is also counted.
    pub has_upstreams: bool,
    /// The upstream servers that give no answers now.
    pub failing: Vec<FailingUpstream>,
    /// The node of the server, in a cluster with a DNS pod on each node.
    pub node: Option<NodeReport>,
}

/// An upstream server of kubedns, for a stub domain or for external names, that gives no answers
/// now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingUpstream {
    /// The stub domain of the server, in lower case; `None` if the server is for external names.
    pub domain: Option<Name>,
    /// A text with the address of the server, or with its name if the name has no address.
    pub server: String,
    /// The reason why the server gives no answers.
    pub cause: FailingCause,
}

/// Reason why an upstream server gives no answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailingCause {
    /// The last queries to the server failed.
    Down,
    /// The server is this kubedns, or forwards queries back to this kubedns.
    Loop,
    /// The name of the server has no address, so kubedns cannot query the server.
    WithoutAddress,
}

/// A further zone of which at least one watch is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostZone {
    /// The domain of the zone, in lower case.
    pub domain: Name,
    /// A text that says which watch is not open. For a zone from etcd, it also has the reason.
    pub reason: String,
}

/// The part of the explanation's document that describes the server. `found` tells whether
/// kubedns reads Endpoints or EndpointSlices.
pub(crate) fn report_server(
    state: &ServerState,
    snapshot: &Snapshot,
    found: Option<&FoundObjects>,
) -> ServerReport {
    let config = &state.config;
    let records_from = match state.progress {
        SyncProgress::Waiting => "nowhere",
        SyncProgress::Stale | SyncProgress::StaleOverdue => "snapshot_file",
        SyncProgress::Synced => "api_server",
    };
    let endpoints_from = found.map(|found| match found.source {
        EndpointsSource::Endpoints => "Endpoints",
        EndpointsSource::EndpointSlices => "EndpointSlice",
    });

    ServerReport {
        version: daemon::version::VERSION.to_owned(),
        domain: snapshot.zone.domain.to_string(),
        synced: snapshot.has_synced(),
        records_from: records_from.to_owned(),
        endpoints_from: endpoints_from.map(str::to_owned),
        config_version: config.version.to_string(),
        config_loaded: config.loaded_at.into(),
        config_rejected: config.error.as_ref().map(|error| error.text.clone()),
        node: state.node.clone(),
    }
}
