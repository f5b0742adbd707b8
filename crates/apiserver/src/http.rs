//! From an HTTP request to a response: routing, content negotiation, what every response has in common.

mod body;
mod discovery;
mod negotiate;
mod path;
mod protobuf;
mod query;
mod reply;
mod resource;

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use warp::http::{HeaderMap, Method};
use warp::reply::Response;
use warp::{Buf, Filter};

use self::path::Target;
pub(crate) use self::query::Query;
use self::reply::Answer;
use self::resource::Call;
use crate::faults::mangle::Mangle;
use crate::faults::{Faults, Presence};
use crate::registry::Registry;
use crate::settings::Options;

/// Largest request body in octets.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// What every request handler needs.
pub(crate) struct Api {
    pub(crate) registry: Registry,
    pub(crate) faults: Faults,
    pub(crate) options: Options,
    pub(crate) stop: CancellationToken,
    pub(crate) slots: Arc<Semaphore>,
}

/// A request, read completely.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) raw_query: String,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Everything this server serves, as a warp filter.
pub(crate) fn routes(
    api: Arc<Api>,
) -> impl Filter<Extract = (Response,), Error = Infallible> + Clone + Send + Sync + 'static {
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    let parts = warp::method().and(warp::path::full()).and(query).and(warp::header::headers_cloned());
    let read = parts.and(warp::body::stream()).then(
        move |method, path: warp::path::FullPath, query: String, headers, body| {
            let api = Arc::clone(&api);
            async move { receive(&api, method, path.as_str(), query, headers, body).await }
        },
    );
    read.recover(|_| async { Ok::<_, Infallible>(Answer::nothing().into_response(None)) }).unify()
}

async fn receive<B: Buf>(
    api: &Arc<Api>,
    method: Method,
    path: &str,
    query: String,
    headers: HeaderMap,
    body: impl Stream<Item = Result<B, warp::Error>>,
) -> Response {
    let Ok(permit) = Arc::clone(&api.slots).try_acquire_owned() else {
        return Answer::throttled(1).into_response(None);
    };
    let body = match body::read(body, MAX_BODY).await {
        Ok(body) => body,
        Err(status) => return Answer::status(&status).into_response(None),
    };
    let parsed = Query::parse(&query);
    let request = Request { method, path: path.to_owned(), raw_query: query, query: parsed, headers, body };
    let target = path::target(&request.path);
    thawed(api).await;
    match target {
        Target::Resource(path) => resource(api, Call { api, request: &request, path }, permit).await,
        Target::Discovery(document) => discovery::serve(&document, &request).into_response(None),
        Target::Health => Answer::plain(200, "ok").into_response(None),
        Target::Unknown => Answer::nothing().into_response(None),
    }
}

/// Serves a request about objects, unless a fault gets in between.
async fn resource(api: &Api, call: Call<'_>, permit: OwnedSemaphorePermit) -> Response {
    let verb = match call.verb() {
        Ok(verb) => verb,
        Err(status) => return Answer::status(&status).into_response(None),
    };
    let verdict = api.faults.admit(&call.fault_request(verb));
    if verdict.freeze {
        api.stop.cancelled().await;
    }
    if !verdict.delay.is_zero() {
        api.stop.run_until_cancelled(tokio::time::sleep(verdict.delay)).await;
    }
    if let Some(seconds) = verdict.throttle {
        return Answer::throttled(seconds).into_response(None);
    }
    let silent = verdict.mangle == Some(Mangle::Silence);
    let answer = match verdict.refusal {
        Some(refusal) => Err(refusal),
        None => call.answer(verb, permit, silent),
    };
    answer.unwrap_or_else(|status| Answer::status(&status)).into_response(verdict.mangle.as_ref())
}

/// Returns at once unless the server is frozen; then when it is no longer, or stops.
async fn thawed(api: &Api) {
    let mut signals = api.faults.signals();
    api.stop.run_until_cancelled(signals.wait_for(|signals| signals.presence != Presence::Frozen)).await;
}
