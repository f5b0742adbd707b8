//! The explainer of the published records. Its warnings come from the state of this process.

use std::sync::Arc;

use cluster::index::{Index, SyncProgress};
use cluster::objects::Kind;
use cluster::watch::WatchMetrics;
use explain::{Explainer, LostZone, ServerState};
use tokio::sync::watch;
use wire::Name;

use crate::config::{Configuration, InForce};
use crate::etcd::LostZones;
use crate::metrics::Metrics;
use crate::options::{Domain, Options};
use crate::status::Status;

/// The sources of the state of this process.
struct StateSources {
    config: watch::Receiver<dnsconfig::ConfigState>,
    in_force: watch::Receiver<Arc<InForce>>,
    status: Status,
    watch: WatchMetrics,
    /// The domain of the cluster set.
    clusterset: Option<Name>,
    lost: LostZones,
}

/// Creates the explainer. `lost` are the zones of etcd whose watch is not open.
pub(super) fn new(
    options: &Options,
    configuration: &Configuration,
    status: &Status,
    index: &Index,
    metrics: &Metrics,
    lost: LostZones,
) -> Explainer {
    let sources = StateSources {
        config: configuration.state(),
        in_force: configuration.subscribe(),
        status: status.clone(),
        watch: metrics.watch.clone(),
        clusterset: options.clusterset_domain.0.first().map(Domain::name),
        lost,
    };

    // Explanations have the processor time of all pages together.
    Explainer::new(
        Arc::clone(status.published()),
        index.published_objects(),
        Arc::new(move || sources.server_state()),
        Arc::clone(status.share()),
        options.topology,
    )
}

impl StateSources {
    fn server_state(&self) -> ServerState {
        let progress = self.status.progress();
        // Before the first lists, no watch is open.
        let mut lost = vec![Kind::Service, Kind::Endpoints, Kind::EndpointSlice];
        lost.retain(|kind| progress == SyncProgress::Synced && !self.watch.is_connected(*kind));

        let mut lost_zones = self.lost.zones();
        lost_zones.extend(self.lost_clusterset());

        ServerState {
            progress,
            draining: self.status.is_draining(),
            config: self.config.borrow().clone(),
            lost,
            lost_zones,
            has_upstreams: !self.in_force.borrow().servers.upstreams.is_empty(),
        }
    }

    /// The zone of the cluster set, if one of its watches is not open.
    fn lost_clusterset(&self) -> Option<LostZone> {
        let domain = self.clusterset.as_ref()?;
        let mut closed = vec![Kind::ServiceImport, Kind::ImportedSlice];
        closed.retain(|kind| !self.watch.is_connected(*kind));
        if closed.is_empty() {
            return None;
        }

        let kinds: Vec<String> = closed.iter().map(ToString::to_string).collect();
        Some(LostZone {
            domain: domain.to_lowercase(),
            reason: format!("the watch of {} is not open", kinds.join(" and ")),
        })
    }
}
