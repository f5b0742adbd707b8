//! An API server that is a function from requests to responses. It has no socket, so tests can
//! pause the clock.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::connect::Connection;
use futures::stream::{self, BoxStream, StreamExt as _};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::service_fn;

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    /// Time of the request since the start of the API server.
    pub(crate) at: Duration,
    /// The last part of the path: the plural of the kind, or the name of a single object.
    pub(crate) resource: String,
    parameters: HashMap<String, String>,
}

impl ReceivedRequest {
    fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map_or("", String::as_str)
    }

    /// Whether the request is a watch, not a list.
    pub(crate) fn is_watch(&self) -> bool {
        !self.parameter("watch").is_empty()
    }

    /// The token of the requested page; empty for the first page.
    pub(crate) fn token(&self) -> &str {
        self.parameter("continue")
    }

    /// The resource version after which the watch begins.
    pub(crate) fn version(&self) -> &str {
        self.parameter("resourceVersion")
    }

    /// Whether the request is for the first page of a list, or for a single object. False for a
    /// list with `limit=1`, which only checks that the API server's database was not wiped or
    /// restored.
    pub(crate) fn begins_list(&self) -> bool {
        !self.is_watch() && self.token().is_empty() && self.parameter("limit") != "1"
    }
}

/// A response, or a failure of the connection.
pub(crate) type ScriptedResponse =
    io::Result<Response<StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>>>;

/// The running API server.
pub(crate) struct ScriptedServer {
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// The connection to this API server.
    pub(crate) connection: Arc<Connection>,
}

impl ScriptedServer {
    /// Creates an API server that responds with `answer`. If `answer` returns `None`, there is no
    /// response. Must be called within the runtime of the test.
    pub(crate) fn new(
        answer: impl FnMut(&ReceivedRequest) -> Option<ScriptedResponse> + Send + 'static,
    ) -> Self {
        let (asked, begun) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let (log, answer) = (Arc::clone(&asked), Arc::new(Mutex::new(answer)));
        let client = Client::new(
            service_fn(move |request: Request<kube::client::Body>| {
                let asked = read(&request, begun.elapsed());
                log.lock().push(asked.clone());
                let answered = answer.lock()(&asked);
                async {
                    match answered {
                        Some(answer) => answer,
                        None => std::future::pending().await,
                    }
                }
            }),
            "default",
        );
        Self {
            asked,
            connection: Arc::new(Connection::through(client)),
        }
    }

    /// The received requests for which `wanted` holds.
    pub(crate) fn asked(&self, wanted: impl Fn(&ReceivedRequest) -> bool) -> Vec<ReceivedRequest> {
        let asked = self.asked.lock();
        asked
            .iter()
            .filter(|asked| wanted(asked))
            .cloned()
            .collect()
    }

    /// Number of requests for the first page of a list, or for a single object.
    pub(crate) fn lists(&self) -> usize {
        self.asked(ReceivedRequest::begins_list).len()
    }
}

fn read(request: &Request<kube::client::Body>, at: Duration) -> ReceivedRequest {
    let uri = request.uri();
    let resource = uri.path().rsplit('/').next().unwrap_or_default().to_owned();
    let pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    ReceivedRequest {
        at,
        resource,
        parameters: pairs.into_owned().collect(),
    }
}

/// The end of a response after the last piece of its body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BodyEnd {
    /// The response is complete.
    Complete,
    /// The connection breaks.
    Broken,
    /// The connection stays open without data.
    Never,
}

#[allow(
    clippy::unnecessary_wraps,
    reason = "other functions return failed connections as the same type"
)]
fn respond(
    status: u16,
    headers: &[(&str, &str)],
    pieces: Vec<(Duration, String)>,
    end: BodyEnd,
) -> ScriptedResponse {
    let pieces = stream::iter(pieces).then(|(pause, piece)| async move {
        tokio::time::sleep(pause).await;
        Ok(Frame::data(Bytes::from(piece)))
    });
    let end = match end {
        BodyEnd::Complete => stream::empty().boxed(),
        BodyEnd::Broken => stream::iter([Err(io::ErrorKind::ConnectionReset.into())]).boxed(),
        BodyEnd::Never => stream::pending().boxed(),
    };
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    Ok(response
        .body(StreamBody::new(pieces.chain(end).boxed()))
        .expect("the headers must be valid"))
}

/// A page of a list. `next` is the token of the next page.
pub(crate) fn page_response(version: u32, items: &[Value], next: Option<&str>) -> ScriptedResponse {
    let metadata =
        json!({ "resourceVersion": version.to_string(), "continue": next.unwrap_or_default() });
    let list = json!({ "kind": "SomeList", "metadata": metadata, "items": items });
    respond(
        200,
        &[],
        vec![(Duration::ZERO, list.to_string())],
        BodyEnd::Complete,
    )
}

/// A response with a single object.
pub(crate) fn object_response(object: &Value) -> ScriptedResponse {
    respond(
        200,
        &[],
        vec![(Duration::ZERO, object.to_string())],
        BodyEnd::Complete,
    )
}

/// A response with this status code and a `Status` object.
pub(crate) fn error_response(code: u16) -> ScriptedResponse {
    let status = json!({ "kind": "Status", "code": code, "message": format!("code {code}") });
    respond(
        code,
        &[],
        vec![(Duration::ZERO, status.to_string())],
        BodyEnd::Complete,
    )
}

/// An error response with a Retry-After header.
pub(crate) fn busy_response(code: u16, retry_after: &str) -> ScriptedResponse {
    respond(
        code,
        &[("Retry-After", retry_after)],
        Vec::new(),
        BodyEnd::Complete,
    )
}

/// A connection that fails before any response.
pub(crate) fn refused_connection() -> ScriptedResponse {
    Err(io::ErrorKind::ConnectionRefused.into())
}

/// The response to a watch. Each event is paired with a pause: the server waits that long before it
/// sends the event.
pub(crate) fn watch_response(events: Vec<(Duration, Value)>, end: BodyEnd) -> ScriptedResponse {
    let line = |(pause, event): (Duration, Value)| (pause, format!("{event}\n"));
    respond(200, &[], events.into_iter().map(line).collect(), end)
}

/// A watch event about an object.
pub(crate) fn event(r#type: &str, object: &Value) -> Value {
    json!({ "type": r#type, "object": object })
}

/// The watch event for an expired resource version.
pub(crate) fn expired() -> Value {
    event(
        "ERROR",
        &json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" }),
    )
}

/// A bookmark.
pub(crate) fn bookmark(version: u32) -> Value {
    event(
        "BOOKMARK",
        &json!({ "metadata": { "resourceVersion": version.to_string() } }),
    )
}

/// The object with this resource version.
pub(crate) fn versioned(mut object: Value, version: u32) -> Value {
    object["metadata"]["resourceVersion"] = version.to_string().into();
    object
}
