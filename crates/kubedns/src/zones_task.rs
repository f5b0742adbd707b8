//! The zones task, for a kubedns that serves zones from etcd without Kubernetes. The task publishes
//! new content of the zones and new settings.

use std::sync::Arc;

use etcd::EtcdBackend;
use skydns::{FurtherZone, Zone};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::config::{InForce, log_servers};

/// The zones task. The fields are its inputs and its output.
pub struct ZonesTask {
    /// The zones that are served.
    pub backend: Arc<EtcdBackend>,
    /// New content of the zones.
    pub contents: mpsc::Receiver<FurtherZone>,
    /// The configuration in force, and the settings that are derived from it.
    pub in_force: watch::Receiver<Arc<InForce>>,
    /// The settings that come from the flags.
    pub zone: Zone,
}

/// The tasks that watch the zones in etcd ended before the zones task was stopped.
#[derive(Debug, thiserror::Error)]
#[error("the tasks that watch the zones in etcd have ended unexpectedly")]
pub struct FeedsEnded;

impl ZonesTask {
    /// Runs until `stop`.
    ///
    /// # Errors
    ///
    /// [`FeedsEnded`] when the tasks that watch the zones in etcd have ended before `stop`.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), FeedsEnded> {
        loop {
            tokio::select! {
                zone = self.contents.recv() => match zone {
                    Some(zone) => self.backend.set(self.backend.get().with_zone(zone)),
                    None if stop.is_cancelled() => return Ok(()),
                    None => return Err(FeedsEnded),
                },
                Ok(()) = self.in_force.changed() => self.put_in_force(),
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    /// Publishes the newest configuration. Must be called once before the first query;
    /// [`run`](Self::run) repeats the call after each change.
    pub fn put_in_force(&mut self) {
        let in_force = Arc::clone(&self.in_force.borrow_and_update());
        let zone = in_force.zone.apply_to(&self.zone);
        // The upstreams are logged before the publication, because `log_servers` compares the new
        // upstreams with the published ones.
        let current = self.backend.get();
        log_servers(&in_force, &zone, &current.zone);
        self.backend.set(current.with_settings(zone));
    }
}
