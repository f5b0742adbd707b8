//! The pages `/readiness` and `/cache`. A kubedns that serves zones of etcd without Kubernetes also
//! uses this code.

use std::io::{self, Write};
use std::sync::Arc;

use daemon::half_core::HalfCore;
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use tokio::sync::Semaphore;
use warp::Filter;
use warp::http::StatusCode;
use warp::http::header::{CONTENT_TYPE, HeaderValue};
use warp::reply::{Reply as _, Response};

use super::pieces;

/// Largest number of concurrent readers of `/cache`. Each reader occupies a thread, and keeps in
/// memory the records that were published when it connected.
pub(super) const MAX_READERS: usize = 2;

/// The routes of both pages.
pub(super) fn routes(
    readiness: impl Fn() -> Response + Clone + Send + Sync + 'static,
    cache: impl Fn() -> Response + Clone + Send + Sync + 'static,
) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    let readiness = daemon::http::exact_path("/readiness").map(readiness);
    let cache = daemon::http::exact_path("/cache").map(cache);
    readiness.or(cache).unify()
}

/// The response of `/readiness`. `unready_reason` is `None` if kubedns is ready.
pub(super) fn respond_readiness(unready_reason: Option<&str>) -> Response {
    match unready_reason {
        None => daemon::http::text(StatusCode::OK, "ok\n"),
        Some(why) => daemon::http::plain_error(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {why}\n"),
        ),
    }
}

/// The readers of `/cache`.
#[derive(Debug, Clone)]
pub(super) struct CacheReaders {
    /// One permit for each reader.
    readers: Arc<Semaphore>,
    /// Limits the work for `/cache` and `/explain` together to half of a CPU core.
    share: Arc<HalfCore>,
}

impl CacheReaders {
    /// Creates the state without readers.
    pub(super) fn new() -> Self {
        Self {
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            share: Arc::default(),
        }
    }

    /// The limit of half a CPU core, which `/cache` and `/explain` share.
    pub(super) fn share(&self) -> &Arc<HalfCore> {
        &self.share
    }

    /// Responds with the page that `write` writes, as text/plain like kube-dns. If [`MAX_READERS`]
    /// clients are already reading, responds with 503.
    pub(super) fn respond(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Response {
        let Ok(permit) = Arc::clone(&self.readers).try_acquire_owned() else {
            let busy =
                format!("{MAX_READERS} clients are already reading /cache; try again later\n");
            return daemon::http::plain_error(StatusCode::SERVICE_UNAVAILABLE, busy);
        };

        let body = pieces::body(Arc::clone(&self.share), permit, write);
        let mut response = warp::reply::stream(body).into_response();
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, plain);
        response
    }
}

/// Writes a page in the format of kube-dns: JSON indented by tabs.
pub(super) fn write_json(page: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = Serializer::with_formatter(out, PrettyFormatter::with_indent(b"\t"));
    page.serialize(&mut writer).map_err(io::Error::from)
}
