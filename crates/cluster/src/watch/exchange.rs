//! One request and its response, piece by piece, with a limit on every wait and every size.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::buf::Writer;
use bytes::{BufMut as _, Bytes, BytesMut};
use daemon::error_chain::brief;
use flate2::write::GzDecoder;
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::timeout;
use warp::http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use warp::http::{HeaderMap, Request, Response};

use super::collection::{Collection, Extent};
use super::encoding;
use super::events::EventReader;
use super::failure::Failure;
use super::list::ListReader;
use crate::connect::Connection;

/// The most of an error response that is read.
const MAX_ERROR: usize = 64 << 10;
/// How much compressed data is unpacked at a time: a thousandfold of it may come out.
const PORTION: usize = 4 << 10;

/// Asks for one collection.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) connection: Arc<Connection>,
    pub(super) collection: Collection,
    /// How long the head of a response, and each next piece of a list, may take.
    pub(super) patience: Duration,
}

impl Exchange {
    /// The response to a request for a list, or for a page of one.
    pub(super) async fn list(&self, extent: &Extent) -> Result<ListReader, Failure> {
        let parameters = self.collection.list(extent);
        let mut request = self.collection.request().list(&parameters).map_err(|error| unaskable(&error))?;
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        Ok(ListReader::new(self.ask(request).await?, self.patience))
    }

    /// The response to a watch from `version` that is to last `seconds`.
    pub(super) async fn watch(&self, version: &str, seconds: u32) -> Result<EventReader, Failure> {
        let parameters = self.collection.watch(seconds);
        let request = self.collection.request().watch(&parameters, version);
        let request = request.map_err(|error| unaskable(&error))?;
        Ok(EventReader::new(self.ask(request).await?))
    }

    async fn ask(&self, mut request: Request<Vec<u8>>) -> Result<Pieces, Failure> {
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(encoding::ACCEPT));
        let response = timeout(self.patience, self.connection.client().send(request.map(Body::from)))
            .await
            .map_err(|_| Failure::Silent(self.patience))?
            .map_err(|error| unreachable(&error))?;
        let status = response.status();
        let retry_after = retry_after(response.headers());
        let mut pieces = Pieces::new(response);
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
pub(super) struct Pieces {
    body: Body,
    /// It is protobuf and not JSON.
    pub(super) protobuf: bool,
    /// Large, and only lists are compressed.
    gzip: Option<Box<Gzip>>,
}

/// What unpacks a compressed body.
struct Gzip {
    decoder: GzDecoder<Writer<BytesMut>>,
    /// What was received and not unpacked yet.
    received: Bytes,
}

impl Pieces {
    fn new(response: Response<Body>) -> Self {
        let header = |name| response.headers().get(name).map(HeaderValue::as_bytes).unwrap_or_default();
        let packed = header(CONTENT_ENCODING) == b"gzip";
        let decoder = || GzDecoder::new(BytesMut::new().writer());
        let gzip = || Box::new(Gzip { decoder: decoder(), received: Bytes::new() });
        Self {
            protobuf: header(CONTENT_TYPE).starts_with(b"application/vnd.kubernetes.protobuf"),
            gzip: packed.then(gzip),
            body: response.into_body(),
        }
    }

    /// The next piece, `None` at the end. Each wait for the network lasts `patience` at most.
    pub(super) async fn next(&mut self, patience: Duration) -> Result<Option<Bytes>, Failure> {
        while let Some(gzip) = &mut self.gzip {
            let unpacked = if !gzip.received.is_empty() {
                gzip.unpack()?
            } else if let Some(piece) = receive(&mut self.body, patience).await? {
                gzip.received = piece;
                continue;
            } else {
                let rest = gzip.finish()?;
                self.gzip = None;
                rest
            };
            if !unpacked.is_empty() {
                return Ok(Some(unpacked));
            }
        }
        receive(&mut self.body, patience).await
    }
}

impl Gzip {
    fn unpack(&mut self) -> Result<Bytes, Failure> {
        let portion = self.received.split_to(self.received.len().min(PORTION));
        self.decoder.write_all(&portion).map_err(|error| Failure::Broken(brief(&error)))?;
        Ok(self.unpacked())
    }

    /// The rest, after all has been received.
    fn finish(&mut self) -> Result<Bytes, Failure> {
        self.decoder.try_finish().map_err(|error| Failure::Broken(brief(&error)))?;
        Ok(self.unpacked())
    }

    fn unpacked(&mut self) -> Bytes {
        self.decoder.get_mut().get_mut().split().freeze()
    }
}

async fn receive(body: &mut Body, patience: Duration) -> Result<Option<Bytes>, Failure> {
    let received = async {
        loop {
            match body.frame().await {
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
