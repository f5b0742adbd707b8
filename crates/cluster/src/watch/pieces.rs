//! The body of a response, piece by piece and unpacked, with a limit on every wait and every size.

use std::io::Write as _;
use std::time::Duration;

use bytes::buf::Writer;
use bytes::{BufMut as _, Bytes, BytesMut};
use daemon::error_chain::brief;
use flate2::write::GzDecoder;
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::timeout;
use warp::http::Response;
use warp::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};

use super::failure::Failure;

/// Octets of compressed data that are unpacked at a time: a thousandfold of it may come out.
const PORTION: usize = 4 << 10;

/// The body of a response as it comes in.
pub(super) struct Pieces {
    body: Body,
    /// It is protobuf and not JSON.
    pub(super) protobuf: bool,
    /// Large, and only lists are compressed.
    gzip: Option<Box<Gzip>>,
}

/// The decoder of a compressed body.
struct Gzip {
    decoder: GzDecoder<Writer<BytesMut>>,
    /// Received and not unpacked yet.
    received: Bytes,
}

impl Pieces {
    pub(super) fn new(response: Response<Body>) -> Self {
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
