//! Reads request bodies, with limits on size and time, and decodes the bodies.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use serde_json::Value;
use warp::Buf;
use warp::http::HeaderMap;

use crate::protobuf;
use crate::status::Status;

/// Maximum size of a body in octets.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// Timeout for reading a body.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Reads a whole body.
pub(super) async fn read_body<B: Buf>(
    body: impl Stream<Item = Result<B, warp::Error>>,
) -> Result<Bytes, Status> {
    tokio::time::timeout(READ_TIMEOUT, read_all(body))
        .await
        .unwrap_or_else(|_| {
            Err(Status::failure(
                408,
                Some("Timeout"),
                format!("Timeout: the body did not arrive within {READ_TIMEOUT:?}"),
            ))
        })
}

async fn read_all<B: Buf>(
    body: impl Stream<Item = Result<B, warp::Error>>,
) -> Result<Bytes, Status> {
    let mut whole = BytesMut::new();
    let mut body = std::pin::pin!(body);
    while let Some(part) = body.next().await {
        let part =
            part.map_err(|error| Status::bad_request(format!("cannot read the body: {error}")))?;
        if whole.len().saturating_add(part.remaining()) > MAX_BODY {
            let message = format!("Request entity too large: limit is {MAX_BODY}");
            return Err(Status::failure(413, Some("RequestEntityTooLarge"), message));
        }
        whole.put(part);
    }

    Ok(whole.freeze())
}

/// The media type of a body, without parameters.
pub(super) fn media_type(headers: &HeaderMap) -> &str {
    let value = headers
        .get("content-type")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// Decodes an object in JSON or protobuf.
pub(super) fn decode_object(headers: &HeaderMap, body: &[u8]) -> Result<Value, Status> {
    match media_type(headers) {
        "" | "application/json" => serde_json::from_slice(body).map_err(|error| {
            Status::bad_request(format!(
                "couldn't get version/kind; json parse error: {error}"
            ))
        }),
        protobuf::MEDIA_TYPE => protobuf::read_object(body).ok_or_else(|| {
            Status::bad_request(
                "the body is not a protobuf object that this server can decode; send the object as application/json",
            )
        }),
        _ => {
            let message = format!(
                "the body of the request was in an unknown format - accepted media types include: application/json, \
                 {}",
                protobuf::MEDIA_TYPE
            );
            Err(Status::failure(415, Some("UnsupportedMediaType"), message))
        }
    }
}
