//! One request and its response, piece by piece, with a limit on every wait and every size.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::error_chain::brief;
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::timeout;
use warp::http::HeaderMap;
use warp::http::header::RETRY_AFTER;

use super::collection::Collection;
use super::failure::Failure;
use crate::connect::Connection;

/// The most of an error response that is read.
const MAX_ERROR: usize = 64 << 10;
/// The most a page of a list may take. Larger pages are asked for again in smaller portions.
const MAX_PAGE: usize = 32 << 20;

/// Asks for one collection.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) connection: Arc<Connection>,
    pub(super) collection: Collection,
    /// How long the head of a response, and each next piece of a list, may take.
    pub(super) patience: Duration,
}

impl Exchange {
    /// A page of a list, as received, in place of what is in `page`.
    pub(super) async fn page(
        &self,
        limit: u32,
        continued: Option<String>,
        page: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let parameters = self.collection.list(limit, continued);
        let request = self.collection.request().list(&parameters).map_err(|error| unaskable(&error))?;
        let mut pieces = self.ask(request.map(Body::from)).await?;
        page.clear();
        while let Some(piece) = pieces.next(self.patience).await? {
            if page.len() + piece.len() > MAX_PAGE {
                return Err(Failure::TooLarge(MAX_PAGE));
            }
            page.extend_from_slice(&piece);
        }
        Ok(())
    }

    /// The response to a watch from `version` that is to last `seconds`.
    pub(super) async fn watch(&self, version: &str, seconds: u32) -> Result<Pieces, Failure> {
        let parameters = self.collection.watch(seconds);
        let request =
            self.collection.request().watch(&parameters, version).map_err(|error| unaskable(&error))?;
        self.ask(request.map(Body::from)).await
    }

    async fn ask(&self, request: warp::http::Request<Body>) -> Result<Pieces, Failure> {
        let response = timeout(self.patience, self.connection.client().send(request))
            .await
            .map_err(|_| Failure::Silent(self.patience))?
            .map_err(|error| unreachable(&error))?;
        let status = response.status();
        let retry_after = retry_after(response.headers());
        let mut pieces = Pieces { body: response.into_body() };
        if status.is_success() {
            return Ok(pieces);
        }
        let mut text = Vec::new();
        // Whatever can be had of the explanation will do.
        while let Ok(Some(piece)) = pieces.next(self.patience).await {
            text.extend_from_slice(&piece);
            if text.len() > MAX_ERROR {
                break;
            }
        }
        Err(Failure::of_response(status.as_u16(), retry_after, &text))
    }
}

/// The body of a response as it comes in.
#[derive(Debug)]
pub(super) struct Pieces {
    body: Body,
}

impl Pieces {
    /// The next piece, `None` at the end.
    pub(super) async fn next(&mut self, patience: Duration) -> Result<Option<Bytes>, Failure> {
        let received = async {
            loop {
                match self.body.frame().await {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(Failure::Broken(brief(&error))),
                    Some(Ok(frame)) => {
                        // Anything else is trailers, which say nothing to us.
                        if let Ok(data) = frame.into_data() {
                            return Ok(Some(data));
                        }
                    }
                }
            }
        };
        timeout(patience, received).await.unwrap_or(Err(Failure::Silent(patience)))
    }
}

/// `Retry-After` in seconds. API servers send no dates.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn unreachable(error: &kube::Error) -> Failure {
    Failure::Unreachable(match error {
        // kube wraps what the connection says, with nothing to add.
        kube::Error::Service(cause) => brief(cause.as_ref()),
        other => brief(other),
    })
}

/// A path that is none, from a flag.
fn unaskable(error: &kube::core::request::Error) -> Failure {
    Failure::Unreachable(format!("cannot ask: {}", brief(error)))
}
