//! Corruption of response bodies.

use std::io;
use std::pin::Pin;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use serde_json::{Value, json};

use crate::encode::{self, Format};
use crate::status::Status;

/// The chunks of a body.
pub(crate) type Body = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send + Sync>>;

const GARBAGE: &[u8] = b"<html>this is not what you asked for</html>\n";

/// A corruption of a body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Corruption {
    /// A watch sends an error event and nothing else. Other bodies are not changed.
    Error(Status),
    /// The body, or the first line of a watch, is not JSON.
    Garbage,
    /// In an uncompressed JSON list, one field of the first object has the wrong type. Other bodies
    /// keep their content.
    Malformed,
    /// The connection closes after this number of octets of the body, or at the end of a shorter
    /// body.
    Cut(usize),
}

/// Corrupts a whole body.
pub(crate) fn whole(body: Bytes, corruption: &Corruption) -> Body {
    match corruption {
        Corruption::Error(_) => once(body),
        Corruption::Garbage => once(Bytes::from_static(GARBAGE)),
        Corruption::Malformed => once(malformed(&body)),
        Corruption::Cut(after) => cut(once(body), *after),
    }
}

/// Corrupts the events of a watch, which are in `format`.
pub(crate) fn events(body: Body, corruption: &Corruption, format: Format) -> Body {
    match corruption {
        Corruption::Error(status) => once(encode::error(format, status)),
        Corruption::Garbage => Box::pin(once(Bytes::from_static(GARBAGE)).chain(body)),
        Corruption::Malformed => body,
        Corruption::Cut(after) => cut(body, *after),
    }
}

fn once(body: Bytes) -> Body {
    Box::pin(stream::once(async { Ok(body) }))
}

fn cut(body: Body, after: usize) -> Body {
    let closed = || io::Error::new(io::ErrorKind::ConnectionAborted, "cut by a fault");
    Box::pin(stream::unfold(
        (body, Some(after)),
        move |(mut body, left)| async move {
            let left = left?;
            if left == 0 {
                // The octets so far must be sent before the error closes the connection.
                tokio::task::yield_now().await;
                return Some((Err(closed()), (body, None)));
            }
            match body.next().await {
                Some(Ok(mut chunk)) => {
                    chunk.truncate(left);
                    let left = left - chunk.len();
                    Some((Ok(chunk), (body, Some(left))))
                }
                Some(Err(_)) | None => Some((Err(closed()), (body, None))),
            }
        },
    ))
}

/// Sets one field of the first object of a JSON list to a string.
fn malformed(list: &[u8]) -> Bytes {
    let Ok(mut value) = serde_json::from_slice::<Value>(list) else {
        return Bytes::copy_from_slice(list);
    };
    let object = value.pointer_mut("/items/0").and_then(Value::as_object_mut);
    if let Some(object) = object {
        let spoilt = ["spec", "subsets", "data", "endpoints"]
            .into_iter()
            .find(|field| object.contains_key(*field));
        object.insert(spoilt.unwrap_or("spec").to_owned(), json!("malformed"));
    }
    encode::json_line(&value)
}
