//! Requests for lists and watches, with readers of their responses.

use std::sync::Arc;
use std::time::Duration;

use daemon::error_chain::brief;
use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Request};
use kube::client::Body;
use tokio::time::timeout;

use super::collection::{Collection, Extent};
use super::encoding::{self, ListPart};
use super::events::EventReader;
use super::failure::Failure;
use super::list::ListReader;
use super::pieces::Pieces;
use crate::connect::Connection;
use crate::objects::FromApi;

/// Bound of the octets that are read of an error response.
const MAX_ERROR: usize = 64 << 10;
/// The largest document that [`get`] returns, in octets.
const MAX_DOCUMENT: usize = 8 << 20;

/// Sends requests for one collection.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) connection: Arc<Connection>,
    pub(super) collection: Collection,
    /// Timeout of the head of a response and of each piece of a list.
    pub(super) patience: Duration,
}

impl Exchange {
    /// Requests a list, or a page of a list.
    pub(super) async fn list(&self, extent: &Extent) -> Result<ListReader, Failure> {
        let parameters = self.collection.list(extent);
        let mut request = self
            .collection
            .request()
            .list(&parameters)
            .map_err(|error| unaskable(&error))?;
        request
            .headers_mut()
            .insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        Ok(ListReader::new(self.ask(request).await?, self.patience))
    }

    /// Requests a watch from `version` that lasts `seconds`.
    pub(super) async fn watch(&self, version: &str, seconds: u32) -> Result<EventReader, Failure> {
        let parameters = self.collection.watch(seconds);
        let request = self.collection.request().watch(&parameters, version);
        let request = request.map_err(|error| unaskable(&error))?;
        Ok(EventReader::new(self.ask(request).await?))
    }

    async fn ask(&self, mut request: Request<Vec<u8>>) -> Result<Pieces, Failure> {
        request
            .headers_mut()
            .insert(ACCEPT, HeaderValue::from_static(encoding::ACCEPT));
        // The future is boxed, because it would otherwise enlarge futures that live as long as a
        // watch.
        Box::pin(send(&self.connection, request, self.patience)).await
    }
}

/// Gets the JSON document at `path`, of at most 8 MiB. `patience` is the timeout of the response's
/// head and of each piece.
///
/// # Errors
///
/// [`Failure`], with the API server's message if there is one.
pub async fn get(
    connection: &Connection,
    path: &str,
    patience: Duration,
) -> Result<serde_json::Value, Failure> {
    let request = Request::get(path)
        .header(ACCEPT, "application/json")
        .body(Vec::new());
    let request =
        request.map_err(|error| Failure::Unreachable(format!("cannot ask: {}", brief(&error))))?;
    let mut pieces = send(connection, request, patience).await?;
    let mut document = Vec::new();
    while let Some(piece) = pieces.next(patience).await? {
        document.extend_from_slice(&piece);
        if document.len() > MAX_DOCUMENT {
            return Err(Failure::TooLarge(MAX_DOCUMENT));
        }
    }
    serde_json::from_slice(&document).map_err(|error| Failure::Garbage(error.to_string()))
}

/// Lists the first `limit` objects of a collection from the watch cache of the API server, without
/// malformed objects. `patience` is the timeout of the response's head and of each piece of its
/// body.
///
/// # Errors
///
/// [`Failure`], with the API server's message if there is one.
pub async fn list<T: FromApi>(
    connection: &Arc<Connection>,
    collection: Collection,
    limit: usize,
    patience: Duration,
) -> Result<Vec<T>, Failure> {
    let exchange = Exchange {
        connection: Arc::clone(connection),
        collection,
        patience,
    };
    let mut reader = exchange.list(&Extent::Cached("0".to_owned())).await?;
    let mut objects = Vec::new();
    while objects.len() < limit
        && let ListPart::Object(encoded) = reader.next().await?
    {
        objects.extend(T::read(&encoded).map(|parsed| parsed.object).ok());
    }
    Ok(objects)
}

/// Sends a request and returns the body of a successful response.
async fn send(
    connection: &Connection,
    request: Request<Vec<u8>>,
    patience: Duration,
) -> Result<Pieces, Failure> {
    let response = timeout(patience, connection.client().send(request.map(Body::from)))
        .await
        .map_err(|_| Failure::Silent(patience))?
        .map_err(|error| unreachable(&error))?;
    let status = response.status();
    let retry_after = retry_after(response.headers());
    let mut pieces = Pieces::new(response);
    if status.is_success() {
        return Ok(pieces);
    }
    let mut text = Vec::new();
    // If reading fails, the error message received so far is used.
    while let Ok(Some(piece)) = pieces.next(patience).await {
        text.extend_from_slice(&piece);
        if text.len() > MAX_ERROR {
            break;
        }
    }
    Err(Failure::of_response(status.as_u16(), retry_after, &text))
}

/// `Retry-After` in seconds. API servers never send a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

fn unreachable(error: &kube::Error) -> Failure {
    Failure::Unreachable(match error {
        // kube wraps the connection's error without adding information.
        kube::Error::Service(cause) => brief(cause.as_ref()),
        other => brief(other),
    })
}

/// The failure of a request that cannot be built, because the value of a flag makes the path
/// invalid.
fn unaskable(error: &kube::core::request::Error) -> Failure {
    Failure::Unreachable(format!("cannot ask: {}", brief(error)))
}
