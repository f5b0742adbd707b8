//! The status port of a kubedns without Kubernetes: `/readiness`, `/cache`, and a one-line response
//! in place of `/explain`.
//!
//! `/readiness` returns 503 until every zone of etcd has been loaded once, and again during a
//! shutdown. A later outage of etcd does not affect readiness, because the last records are served.

use std::sync::Arc;

use etcd::EtcdBackend;
use tokio_util::sync::CancellationToken;
use warp::Filter;
use warp::http::StatusCode;
use warp::reply::Response;

use super::cache::OtherRecords;
use super::pages::{self, CacheReaders};
use crate::etcd::LostZones;

/// Response of `/explain`.
const NO_EXPLANATIONS: &str =
    "/explain needs the objects of Kubernetes, but this kubedns serves only zones of etcd\n";

/// The state that the status port reports.
#[derive(Debug, Clone)]
pub struct EtcdAloneStatus {
    backend: Arc<EtcdBackend>,
    lost: LostZones,
    unready: CancellationToken,
    readers: CacheReaders,
}

impl EtcdAloneStatus {
    /// Reports the state of the zones in `backend`. When the token `unready` is cancelled, kubedns
    /// becomes unready.
    pub fn new(backend: Arc<EtcdBackend>, lost: LostZones, unready: CancellationToken) -> Self {
        Self {
            backend,
            lost,
            unready,
            readers: CacheReaders::new(),
        }
    }

    /// The routes of the status port.
    pub fn routes(
        &self,
    ) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static
    {
        let status = self.clone();
        let readiness = move || pages::respond_readiness(status.unready_reason().as_deref());
        let status = self.clone();
        let cache = move || status.respond_cache();

        let explain = daemon::http::exact_path("/explain")
            .map(|| daemon::http::plain_error(StatusCode::NOT_FOUND, NO_EXPLANATIONS));
        pages::routes(readiness, cache).or(explain).unify()
    }

    /// The reason why kubedns is not ready; `None` if ready.
    fn unready_reason(&self) -> Option<String> {
        if self.unready.is_cancelled() {
            return Some("shutting down".to_owned());
        }

        let snapshot = self.backend.get();
        let domain = &snapshot.unloaded_zone()?.domain;
        let lost = self.lost.zones();
        let failure = lost.iter().find(|zone| zone.domain == *domain);
        let reason = failure.map_or("waiting for etcd", |zone| &zone.reason);
        Some(format!("the zone {domain} is not loaded: {reason}"))
    }

    fn respond_cache(&self) -> Response {
        // The page shows the records of this moment, even if the client reads it slowly.
        let snapshot = self.backend.get();
        self.readers.respond(move |out| {
            let page = OtherRecords::new(&snapshot.zone, &snapshot.zones);
            pages::write_json(&page, out)
        })
    }
}
