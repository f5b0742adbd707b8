//! From an HTTP request to a response: routing, content negotiation, what every response has in common.

mod body;
mod discovery;
mod negotiate;
mod path;
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
use crate::faults::Faults;
use crate::registry::Registry;
use crate::settings::Options;
use crate::status::Status;

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
            async move { receive(&api, method, path.as_str(), &query, headers, body).await }
        },
    );
    read.recover(|_| async { Ok::<_, Infallible>(reply::plain(404, "404 page not found\n")) }).unify()
}

async fn receive<B: Buf>(
    api: &Arc<Api>,
    method: Method,
    path: &str,
    query: &str,
    headers: HeaderMap,
    body: impl Stream<Item = Result<B, warp::Error>>,
) -> Response {
    let Ok(permit) = Arc::clone(&api.slots).try_acquire_owned() else {
        let status =
            Status::failure(429, Some("TooManyRequests"), "Too many requests, please try again later.");
        return reply::retry_after(reply::status(&status));
    };
    let body = match body::read(body, api.options.max_body).await {
        Ok(body) => body,
        Err(status) => return reply::status(&status),
    };
    let request = Request { method, path: path.to_owned(), query: Query::parse(query), headers, body };
    serve(api, request, permit).await.unwrap_or_else(|status| reply::status(&status))
}

async fn serve(api: &Arc<Api>, request: Request, permit: OwnedSemaphorePermit) -> Result<Response, Status> {
    match path::target(&request.path) {
        Target::Resource(target) => resource::serve(api, &request, target, permit).await,
        Target::Discovery(document) => discovery::serve(&document, &request),
        Target::Health => Ok(reply::plain(200, "ok")),
        Target::Unknown => Ok(reply::plain(404, "404 page not found\n")),
    }
}
