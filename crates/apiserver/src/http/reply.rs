//! Responses with the headers of a real server.

use bytes::Bytes;
use futures::Stream;
use serde_json::Value;
use warp::http::{HeaderValue, StatusCode};
use warp::reply::{Reply as _, Response};

use crate::kinds::Resource;
use crate::list::Chunks;
use crate::status::Status;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// What a real server since 1.33 says about Endpoints.
const ENDPOINTS_WARNING: HeaderValue = HeaderValue::from_static(
    "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"",
);

/// A failure, or the success of a deletion.
pub(super) fn status(status: &Status) -> Response {
    let mut body = status.to_json();
    body.push(b'\n');
    let mut response = json(status.code(), body);
    if status.code() == 403 {
        response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    }
    response
}

/// A JSON document.
pub(super) fn value(code: u16, value: &Value) -> Response {
    let mut body = serde_json::to_vec(value).unwrap_or_default();
    body.push(b'\n');
    json(code, body)
}

/// JSON text.
pub(super) fn json(code: u16, body: impl Into<Bytes>) -> Response {
    with_headers(code, warp::http::Response::new(body.into()).into_response())
}

/// Plain text.
pub(super) fn plain(code: u16, text: &'static str) -> Response {
    let mut response = with_headers(code, text.into_response());
    response.headers_mut().insert("content-type", HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// A list: whole if it is short, else in chunks made as they are sent.
pub(super) fn list(chunks: Chunks) -> Response {
    match chunks.into_short() {
        Ok(body) => json(200, body),
        Err(chunks) => stream(futures::stream::iter(chunks.map(Ok::<_, std::io::Error>))),
    }
}

/// JSON text in chunks.
pub(super) fn stream<E>(chunks: impl Stream<Item = Result<Bytes, E>> + Send + Sync + 'static) -> Response
where
    E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    with_headers(200, warp::reply::stream(chunks).into_response())
}

/// Adds what a real server says about a resource.
pub(super) fn warn(mut response: Response, resource: Resource) -> Response {
    if resource == Resource::Endpoints {
        response.headers_mut().insert("warning", ENDPOINTS_WARNING);
    }
    response
}

/// Tells the client to wait a second.
pub(super) fn retry_after(mut response: Response) -> Response {
    response.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
    response
}

fn with_headers(code: u16, mut response: Response) -> Response {
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert("cache-control", HeaderValue::from_static("no-cache, private"));
    headers.insert("content-type", JSON);
    response
}
