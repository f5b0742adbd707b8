//! The pages `/readiness` and `/cache` of the status port.
//!
//! The port listens from the start. `/readiness` returns 503 until the first lists are complete and
//! the configuration is known. There are two exceptions. A server with the records of a snapshot
//! file does not wait for the lists once they are overdue, or once no other pod of the DNS Service
//! answers. Once everything else is ready, no server waits for the configuration for more than ten
//! seconds.
//!
//! During a shutdown, `/readiness` returns 503 again after the token [`Shutdown::unready`] is
//! cancelled.
//!
//! The original kube-dns keeps this port closed until it is ready. For the kubelet, a closed port
//! and a 503 both mean that the pod is not ready.

mod cache;
mod etcd_alone;
mod pages;
mod pieces;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use daemon::half_core::HalfCore;
use daemon::shutdown::Shutdown;
use tokio_util::sync::CancellationToken;
use warp::Filter;
use warp::reply::Response;

pub use cache::Cache;
use cluster::index::SyncProgress;
use cluster::snapshot::Published;
pub use etcd_alone::EtcdAloneStatus;
use pages::CacheReaders;

/// The state that the status port reports, shared with the tasks that set it.
#[derive(Debug, Clone)]
pub struct Status {
    published: Arc<Published>,
    progress: Arc<AtomicU8>,
    configured: Arc<AtomicBool>,
    /// Cancelled at the start of a shutdown. The process stays ready for a while.
    draining: CancellationToken,
    /// Cancelled during a shutdown when the process must no longer be ready.
    unready: CancellationToken,
    readers: CacheReaders,
}

impl Status {
    /// The state of a kubedns that has just started and waits for the first records.
    pub fn new(published: Arc<Published>, shutdown: &Shutdown) -> Self {
        let status = Self {
            published,
            progress: Arc::default(),
            configured: Arc::default(),
            draining: shutdown.draining.clone(),
            unready: shutdown.unready.clone(),
            readers: CacheReaders::new(),
        };
        status.set_progress(SyncProgress::Waiting);
        status
    }

    /// The records.
    pub fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// The limit of half a CPU core, which `/cache` and `/explain` share.
    pub fn share(&self) -> &Arc<HalfCore> {
        self.readers.share()
    }

    /// Sets the progress towards the first complete lists.
    pub fn set_progress(&self, progress: SyncProgress) {
        self.progress.store(progress as u8, Ordering::Release);
    }

    /// Notes that the configuration is known, or that readiness no longer waits for it.
    pub fn set_configured(&self) {
        self.configured.store(true, Ordering::Release);
    }

    /// Whether the configuration is known, or readiness no longer waits for it.
    pub fn is_configured(&self) -> bool {
        self.configured.load(Ordering::Acquire)
    }

    /// The progress towards the first complete lists.
    pub fn progress(&self) -> SyncProgress {
        let stored = self.progress.load(Ordering::Acquire);
        for progress in [
            SyncProgress::Stale,
            SyncProgress::StaleOverdue,
            SyncProgress::Synced,
        ] {
            if progress as u8 == stored {
                return progress;
            }
        }
        SyncProgress::Waiting
    }

    /// Whether the process is shutting down.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// The reason why kubedns is not ready; `None` if ready.
    pub fn unready_reason(&self) -> Option<&'static str> {
        if self.unready.is_cancelled() {
            return Some("shutting down");
        }

        match self.progress() {
            SyncProgress::Waiting => Some("waiting for the first lists of the API server"),
            SyncProgress::Stale => {
                Some("serving the records of an earlier run, waiting for the API server")
            }
            SyncProgress::StaleOverdue | SyncProgress::Synced if !self.is_configured() => {
                Some("waiting for the ConfigMap with the configuration")
            }
            // In `StaleOverdue`, old records are better than none.
            SyncProgress::StaleOverdue | SyncProgress::Synced => None,
        }
    }

    /// The routes of the status port.
    pub fn routes(
        &self,
    ) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static
    {
        let status = self.clone();
        let readiness = move || pages::respond_readiness(status.unready_reason());
        let status = self.clone();
        pages::routes(readiness, move || status.respond_cache())
    }

    fn respond_cache(&self) -> Response {
        // The page shows the records of this moment, even if the client reads it slowly.
        let snapshot = self.published.get();
        self.readers
            .respond(move |out| pages::write_json(&Cache(&snapshot), out))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skydns::Zone;
    use testkit::eventually;
    use warp::http::StatusCode;
    use wire::Name;

    use super::pages::MAX_READERS;
    use super::*;
    use cluster::snapshot::Snapshot;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn status() -> (Status, Shutdown) {
        let zone = Zone::new(&Name::parse("cluster.local.").unwrap());
        let shutdown = Shutdown::default();
        let published = Arc::new(Published::new(Snapshot::new(zone)));
        (Status::new(published, &shutdown), shutdown)
    }

    async fn get(status: &Status, path: &str) -> (u16, String, String) {
        let response = warp::test::request()
            .path(path)
            .reply(&status.routes())
            .await;
        let kind = response
            .headers()
            .get("content-type")
            .map(|kind| kind.to_str().unwrap().to_owned());
        let body = String::from_utf8(response.body().to_vec()).unwrap();
        (response.status().as_u16(), kind.unwrap_or_default(), body)
    }

    #[tokio::test]
    async fn readiness_follows_configuration_progress_and_shutdown() {
        let (status, shutdown) = status();
        let plain = "text/plain; charset=utf-8";
        let waiting = "not ready: waiting for the first lists of the API server\n";
        let stale =
            "not ready: serving the records of an earlier run, waiting for the API server\n";
        let cases = [
            (SyncProgress::Waiting, 503, waiting),
            (SyncProgress::Stale, 503, stale),
            (SyncProgress::StaleOverdue, 200, "ok\n"),
            (SyncProgress::Synced, 200, "ok\n"),
        ];
        let reply = |code, body: &str| (code, plain.to_owned(), body.to_owned());
        status.set_progress(SyncProgress::Synced);
        let body = "not ready: waiting for the ConfigMap with the configuration\n";
        assert_eq!(get(&status, "/readiness").await, reply(503, body));
        status.set_configured();
        for (progress, code, body) in cases {
            status.set_progress(progress);
            assert_eq!(get(&status, "/readiness").await, reply(code, body));
        }
        // A pod that drains stays ready for a while, because it may be the only server of its
        // Service, and its successor may not be ready yet.
        shutdown.draining.cancel();
        assert_eq!(get(&status, "/readiness").await.0, 200);
        shutdown.unready.cancel();
        assert_eq!(get(&status, "/readiness").await.0, 503);
        assert_eq!(get(&status, "/readiness/").await.0, 404);
    }

    #[tokio::test]
    async fn cache_is_plain_text_indented_by_tabs() {
        let (status, _draining) = status();
        let (code, kind, body) = get(&status, "/cache").await;
        assert_eq!((code, kind.as_str()), (200, "text/plain; charset=utf-8"));
        assert!(
            body.starts_with("{\n\t\"ChildNodes\": {\n\t\t\"local\": {\n"),
            "{body}"
        );
        assert!(serde_json::from_str::<serde_json::Value>(&body).is_ok());
    }

    #[tokio::test]
    async fn cache_readers_are_bounded() {
        let (status, _draining) = status();
        let held: Vec<Response> = (0..MAX_READERS).map(|_| status.respond_cache()).collect();
        assert!(
            held.iter()
                .all(|response| response.status() == StatusCode::OK)
        );
        assert_eq!(get(&status, "/cache").await.0, 503);
        drop(held);
        eventually(PATIENCE, || async { get(&status, "/cache").await.0 == 200 }).await;
    }
}
