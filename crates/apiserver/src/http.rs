//! Handling of HTTP requests.

mod body;
mod discovery;
mod negotiate;
mod path;
mod reply;
mod resource;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use warp::http::{HeaderMap, Method};
use warp::reply::Response;
use warp::{Buf, Filter};

use self::reply::Answer;
use self::resource::ObjectRequest;
use crate::faults::{Faults, Presence};
use crate::query::Query;
use crate::registry::Registry;
use crate::status::Status;

/// State shared by all request handlers.
pub(crate) struct Api {
    pub(crate) registry: Registry,
    pub(crate) faults: Faults,
    pub(crate) bookmark_period: Duration,
    pub(crate) protobuf: bool,
}

/// A request with its whole body.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// All routes of this server, as a warp filter.
pub(crate) fn routes(
    api: Arc<Api>,
) -> impl Filter<Extract = (Response,), Error = Infallible> + Clone + Send + Sync + 'static {
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    let parts = warp::method()
        .and(warp::path::full())
        .and(query)
        .and(warp::header::headers_cloned());
    let read = parts.and(warp::body::stream()).then(
        move |method, path: warp::path::FullPath, query: String, headers, body| {
            let api = Arc::clone(&api);
            async move {
                match read_request(method, &query, headers, body).await {
                    Ok(request) => respond_to(&api, path.as_str(), &request).await,
                    Err(status) => Answer::status(&status).into_response(None),
                }
            }
        },
    );
    read.recover(|_| async { Ok::<_, Infallible>(Answer::not_found().into_response(None)) })
        .unify()
}

async fn read_request<B: Buf>(
    method: Method,
    query: &str,
    headers: HeaderMap,
    body: impl Stream<Item = Result<B, warp::Error>>,
) -> Result<Request, Status> {
    Ok(Request {
        method,
        query: Query::parse(query),
        headers,
        body: body::read_body(body).await?,
    })
}

async fn respond_to(api: &Api, path: &str, request: &Request) -> Response {
    wait_until_thawed(api).await;

    let parts = path::parts(path);
    if let Some(at) = path::objects(&parts) {
        let request = ObjectRequest {
            api,
            request,
            at,
            corrupted: false,
        };
        return serve_objects(api, request).await;
    }

    let document = discovery::document(&parts);
    document
        .map_or_else(Answer::not_found, |document| Answer::value(200, &document))
        .into_response(None)
}

/// Serves a request for objects, with the faults that apply to it.
async fn serve_objects(api: &Api, mut request: ObjectRequest<'_>) -> Response {
    let verb = match request.verb() {
        Ok(verb) => verb,
        Err(status) => return Answer::status(&status).into_response(None),
    };

    let faults = api.faults.admit(&request.fault_request(verb));
    if faults.freeze {
        std::future::pending::<()>().await;
    }
    if !faults.delay.is_zero() {
        tokio::time::sleep(faults.delay).await;
    }

    request.corrupted = faults.corruption.is_some();
    let answer = faults.refusal.map_or_else(|| request.answer(verb), Err);
    answer
        .unwrap_or_else(|status| Answer::status(&status))
        .into_response(faults.corruption.as_ref())
}

/// Waits while the server is frozen.
async fn wait_until_thawed(api: &Api) {
    let mut signals = api.faults.signals();
    // The wait cannot fail, because the sender lives as long as the server.
    let _ended = signals
        .wait_for(|signals| signals.presence != Presence::Frozen)
        .await;
}
