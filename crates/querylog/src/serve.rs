//! `GET /tap?name=GLOB&client=NETWORK&rcode=RCODE&type=TYPE&seconds=30&rate=1000`: a line of JSON
//! for each query.
//!
//! Requests from outside the pod get 403: not everybody who can reach the port may read the queries
//! of pods. Requests through `kubectl exec` and `kubectl port-forward` come from within the pod. A
//! tap changes no state: the source of lines is there, or the tap is rejected.

use std::sync::Arc;
use std::time::Duration;

use daemon::http::NotLocal;
use futures::stream::{self, Stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use warp::http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use warp::http::{Method, StatusCode};
use warp::reply::{Reply as _, Response};
use warp::{Filter, Rejection};

use crate::{QueryLine, TapRequest};

/// Maximum number of concurrent readers.
pub const MAX_READERS: usize = 4;
/// Interval between checks for new lines.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);
/// Approximate maximum size of a chunk of the reply, in octets.
const CHUNK: usize = 64 << 10;
/// Interval between reports of omitted lines.
pub(crate) const OMITTED_INTERVAL: Duration = Duration::from_secs(1);

/// A source of lines, one for each answered query.
pub trait LineSource: Send + Sync + 'static {
    /// Returns the next line, if any.
    fn next(&mut self) -> Option<QueryLine>;
    /// Returns the number of matching lines that were omitted since the last call.
    fn left_out(&mut self) -> u64;
    /// Whether no further lines can come. The tap then ends.
    fn is_over(&self) -> bool {
        false
    }
}

/// The route `/tap`. `open` starts the collection of lines. If `open` fails, the reply is the error
/// with status 503.
pub fn route<S: LineSource>(
    open: impl Fn(&TapRequest) -> Result<S, String> + Clone + Send + Sync + 'static,
    stop: CancellationToken,
) -> impl Filter<Extract = (Response,), Error = Rejection> + Clone + Send + Sync + 'static {
    let readers = Arc::new(Semaphore::new(MAX_READERS));
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    daemon::http::exact_path("/tap")
        .and(warp::method())
        .and(query)
        .and(daemon::http::local_only())
        .map(
            move |method: Method, query: String, local: Result<(), NotLocal>| {
                if method != Method::GET {
                    return not_allowed();
                }
                if let Err(error) = local {
                    return refused(StatusCode::FORBIDDEN, &error);
                }
                let choice = match TapRequest::from_query(&query) {
                    Ok(choice) => choice,
                    Err(error) => return refused(StatusCode::BAD_REQUEST, &error),
                };
                let Ok(reader) = Arc::clone(&readers).try_acquire_owned() else {
                    let busy = format!("{MAX_READERS} others already follow the queries");
                    return refused(StatusCode::SERVICE_UNAVAILABLE, &busy);
                };
                match open(&choice) {
                    Ok(source) => reply(TapReader::new(source, &choice, reader, stop.clone())),
                    Err(error) => refused(StatusCode::SERVICE_UNAVAILABLE, &error),
                }
            },
        )
}

fn refused(status: StatusCode, why: &dyn std::fmt::Display) -> Response {
    daemon::http::plain_error(status, format!("{why}\n"))
}

/// A reply with status 405, for pages that support only GET.
pub fn not_allowed() -> Response {
    let mut response = daemon::http::plain_error(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("GET"));
    response
}

fn reply<S: LineSource>(following: TapReader<S>) -> Response {
    let mut response = warp::reply::stream(following.chunks()).into_response();
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-ndjson"),
    );
    response
}

/// One reader of the tap.
struct TapReader<S> {
    source: S,
    end: Instant,
    told: Instant,
    stop: CancellationToken,
    _reader: OwnedSemaphorePermit,
}

impl<S: LineSource> TapReader<S> {
    fn new(
        source: S,
        choice: &TapRequest,
        reader: OwnedSemaphorePermit,
        stop: CancellationToken,
    ) -> Self {
        let now = Instant::now();
        Self {
            source,
            end: now + choice.time,
            told: now,
            stop,
            _reader: reader,
        }
    }

    /// The body of the reply. The body ends after the chosen time, with the source, when the
    /// process stops, or when the reader disconnects.
    fn chunks(self) -> impl Stream<Item = Result<String, std::convert::Infallible>> {
        stream::unfold(self, |mut this| async move {
            Some((Ok(this.chunk().await?), this))
        })
    }

    /// Waits for the next lines; returns `None` at the end.
    async fn chunk(&mut self) -> Option<String> {
        loop {
            let now = Instant::now();
            let over = now >= self.end || self.stop.is_cancelled() || self.source.is_over();
            let mut chunk = self.lines();
            if over || now - self.told >= OMITTED_INTERVAL {
                self.told = now;
                let left_out = self.source.left_out();
                if left_out > 0 {
                    chunk += &serde_json::json!({ "leftOut": left_out }).to_string();
                    chunk.push('\n');
                }
            }
            if !chunk.is_empty() {
                return Some(chunk);
            }
            if over {
                return None;
            }
            sleep(PAUSE.min(self.end - now)).await;
        }
    }

    fn lines(&mut self) -> String {
        let mut chunk = String::new();
        while chunk.len() < CHUNK
            && let Some(line) = self.source.next()
        {
            if let Ok(json) = serde_json::to_string(&line) {
                chunk += &json;
                chunk.push('\n');
            }
        }
        chunk
    }
}

#[cfg(test)]
mod tests;
