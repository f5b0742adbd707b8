//! `GET /tap?name=GLOB&client=NETWORK&rcode=RCODE&type=TYPE&seconds=30&rate=1000`: a line of JSON
//! for each query.
//!
//! `GET /tap` and `GET /top`, the [ranking](crate::ranking), return 403 to requests that do not
//! pass [`local_only`](daemon::http::local_only), because clients outside the pod must not see the
//! queries of other pods. Requests through `kubectl exec` and `kubectl port-forward` pass.
//!
//! A request for `/tap` or `/top` changes no setting: for example, it does not make dnsmasq log its
//! queries. The nanny rejects such requests unless dnsmasq runs with `--log-queries=extra`.

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

use crate::ranking::RankingDocument;
use crate::{QueryLine, TapRequest};

/// Maximum number of concurrent readers.
pub const MAX_READERS: usize = 4;
/// Interval between checks for new lines.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Approximate maximum size of a chunk of the reply, in octets.
const CHUNK_SIZE: usize = 64 << 10;
/// Interval between reports of omitted lines.
pub(crate) const OMITTED_INTERVAL: Duration = Duration::from_secs(1);

/// A source of lines, one for each query. The nanny's source also has lines for queries that
/// dnsmasq did not answer.
pub trait LineSource: Send + Sync + 'static {
    /// Returns the next line, if any.
    fn next_line(&mut self) -> Option<QueryLine>;
    /// Returns the number of matching lines that have been omitted since the last call.
    fn take_left_out(&mut self) -> u64;
    /// Whether no further lines can come. The tap then ends.
    fn is_over(&self) -> bool {
        false
    }
}

/// The route `/tap`. `open` starts the collection of lines. If `open` fails, the reply is the error
/// with status 503.
pub fn tap_route<S: LineSource>(
    open: impl Fn(&TapRequest) -> Result<S, String> + Clone + Send + Sync + 'static,
    stop: CancellationToken,
) -> impl Filter<Extract = (Response,), Error = Rejection> + Clone + Send + Sync + 'static {
    let readers = Arc::new(Semaphore::new(MAX_READERS));
    // A request without parameters follows all queries.
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    let handler = TapHandler {
        open,
        readers,
        stop,
    };

    daemon::http::exact_path("/tap")
        .and(warp::method())
        .and(query)
        .and(daemon::http::local_only())
        .map(
            move |method: Method, query: String, local: Result<(), NotLocal>| {
                handler.handle_request(&method, &query, local)
            },
        )
}

/// Answers requests for `/tap`.
#[derive(Clone)]
struct TapHandler<O> {
    open: O,
    /// A permit for each reader.
    readers: Arc<Semaphore>,
    stop: CancellationToken,
}

impl<S: LineSource, O: Fn(&TapRequest) -> Result<S, String>> TapHandler<O> {
    fn handle_request(
        &self,
        method: &Method,
        query: &str,
        local: Result<(), NotLocal>,
    ) -> Response {
        if method != Method::GET {
            return method_not_allowed();
        }
        if let Err(error) = local {
            return error_reply(StatusCode::FORBIDDEN, &error);
        }
        let request = match TapRequest::from_query(query) {
            Ok(request) => request,
            Err(error) => return error_reply(StatusCode::BAD_REQUEST, &error),
        };

        // The reader holds the permit until its reply ends. Another reader can then take its place.
        let Ok(reader) = Arc::clone(&self.readers).try_acquire_owned() else {
            let busy = format!("{MAX_READERS} other readers already follow the queries");
            return error_reply(StatusCode::SERVICE_UNAVAILABLE, &busy);
        };
        match (self.open)(&request) {
            Ok(source) => {
                let stop = self.stop.clone();
                stream_reply(TapReader::new(source, &request, reader, stop))
            }
            Err(error) => error_reply(StatusCode::SERVICE_UNAVAILABLE, &error),
        }
    }
}

/// The route `/top`. If `rank` fails, the reply is the error with status 503.
pub fn top_route<F>(
    rank: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> impl Filter<Extract = (Response,), Error = Rejection> + Clone + Send + Sync + 'static
where
    F: Future<Output = Result<RankingDocument, String>> + Send,
{
    daemon::http::exact_path("/top")
        .and(warp::method())
        .and(daemon::http::local_only())
        .then(move |method: Method, local: Result<(), NotLocal>| {
            let rank = rank.clone();
            async move {
                if method != Method::GET {
                    return method_not_allowed();
                }
                if let Err(error) = local {
                    return error_reply(StatusCode::FORBIDDEN, &error);
                }
                match rank().await {
                    Ok(ranking) => daemon::http::json(StatusCode::OK, &ranking),
                    Err(error) => error_reply(StatusCode::SERVICE_UNAVAILABLE, &error),
                }
            }
        })
}

fn error_reply(status: StatusCode, why: &dyn std::fmt::Display) -> Response {
    daemon::http::plain_error(status, format!("{why}\n"))
}

/// A reply with status 405, for pages that support only GET.
pub fn method_not_allowed() -> Response {
    let mut response =
        daemon::http::plain_error(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed\n");
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("GET"));
    response
}

fn stream_reply<S: LineSource>(reader: TapReader<S>) -> Response {
    let mut response = warp::reply::stream(reader.into_chunks()).into_response();
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
    /// Time of the last report of omitted lines.
    reported: Instant,
    stop: CancellationToken,
    _reader: OwnedSemaphorePermit,
}

impl<S: LineSource> TapReader<S> {
    fn new(
        source: S,
        request: &TapRequest,
        reader: OwnedSemaphorePermit,
        stop: CancellationToken,
    ) -> Self {
        let now = Instant::now();
        Self {
            source,
            end: now + request.time,
            reported: now,
            stop,
            _reader: reader,
        }
    }

    /// The body of the reply. The body ends when the requested time is over, when the source ends,
    /// when the process stops, or when the reader disconnects.
    fn into_chunks(self) -> impl Stream<Item = Result<String, std::convert::Infallible>> {
        stream::unfold(self, |mut this| async move {
            Some((Ok(this.next_chunk().await?), this))
        })
    }

    /// Waits for the next lines; returns `None` at the end.
    async fn next_chunk(&mut self) -> Option<String> {
        loop {
            let now = Instant::now();
            // The end is checked before the lines are taken, so that no line that arrived before
            // the end is lost.
            let is_over = now >= self.end || self.stop.is_cancelled() || self.source.is_over();

            let mut chunk = self.take_lines();
            if is_over || now - self.reported >= OMITTED_INTERVAL {
                self.reported = now;
                self.append_omitted(&mut chunk);
            }

            if !chunk.is_empty() {
                return Some(chunk);
            }
            if is_over {
                return None;
            }
            sleep(POLL_INTERVAL.min(self.end - now)).await;
        }
    }

    /// The lines that have arrived, as JSON.
    fn take_lines(&mut self) -> String {
        let mut chunk = String::new();
        while chunk.len() < CHUNK_SIZE
            && let Some(line) = self.source.next_line()
        {
            if let Ok(json) = serde_json::to_string(&line) {
                chunk += &json;
                chunk.push('\n');
            }
        }
        chunk
    }

    /// Adds a line with the number of lines omitted since the last report, if any.
    fn append_omitted(&mut self, chunk: &mut String) {
        let left_out = self.source.take_left_out();
        if left_out > 0 {
            *chunk += &serde_json::json!({ "leftOut": left_out }).to_string();
            chunk.push('\n');
        }
    }
}

#[cfg(test)]
mod tests;
