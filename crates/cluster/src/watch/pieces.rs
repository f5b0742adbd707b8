//! The body of a response, piece by piece and decompressed, with bounds on every wait and size.

use std::io::Write as _;
use std::time::Duration;

use bytes::buf::Writer;
use bytes::{BufMut as _, Bytes, BytesMut};
use daemon::error_chain::brief;
use flate2::write::GzDecoder;
use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::timeout;

use super::failure::Failure;

/// Number of compressed octets that are decompressed at a time, because the result may be a
/// thousand times as large.
const PORTION: usize = 4 << 10;

/// The incoming body of a response.
pub(super) struct Pieces {
    body: Body,
    /// Whether the body is protobuf rather than JSON.
    pub(super) protobuf: bool,
    /// The decoder of a compressed body. It is boxed because it is large and only lists are
    /// compressed.
    gzip: Option<Box<Gzip>>,
}

/// The decoder of a compressed body.
struct Gzip {
    decoder: GzDecoder<Writer<BytesMut>>,
    /// Received octets that are not decompressed yet.
    received: Bytes,
}

impl Pieces {
    pub(super) fn new(response: Response<Body>) -> Self {
        let header = |name| {
            response
                .headers()
                .get(name)
                .map(HeaderValue::as_bytes)
                .unwrap_or_default()
        };
        let packed = header(CONTENT_ENCODING) == b"gzip";
        let decoder = || GzDecoder::new(BytesMut::new().writer());
        let gzip = || {
            Box::new(Gzip {
                decoder: decoder(),
                received: Bytes::new(),
            })
        };
        Self {
            protobuf: header(CONTENT_TYPE).starts_with(b"application/vnd.kubernetes.protobuf"),
            gzip: packed.then(gzip),
            body: response.into_body(),
        }
    }

    /// The next piece; `None` at the end. `patience` is the timeout of each wait for the network.
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
        self.decoder
            .write_all(&portion)
            .map_err(|error| Failure::Broken(brief(&error)))?;
        Ok(self.unpacked())
    }

    /// The rest of the decompressed octets, after the end of the body.
    fn finish(&mut self) -> Result<Bytes, Failure> {
        self.decoder
            .try_finish()
            .map_err(|error| Failure::Broken(brief(&error)))?;
        Ok(self.unpacked())
    }

    fn unpacked(&mut self) -> Bytes {
        self.decoder.get_mut().get_mut().split().freeze()
    }
}

/// The failure of a body. kube adds the word `ServiceError` to the error of the connection.
fn interrupted(error: &kube::Error) -> Failure {
    let text = brief(error);
    Failure::Broken(
        text.strip_prefix("ServiceError: ")
            .unwrap_or(&text)
            .to_owned(),
    )
}

async fn receive(body: &mut Body, patience: Duration) -> Result<Option<Bytes>, Failure> {
    let received = async {
        loop {
            match body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(interrupted(&error)),
                Some(Ok(frame)) => {
                    // Other frames are trailers, which are ignored.
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    };
    timeout(patience, received)
        .await
        .unwrap_or(Err(Failure::Silent(patience)))
}
