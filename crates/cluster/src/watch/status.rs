//! `metav1.Status` of a failure, and the envelope of protobuf objects.

use bytes::Bytes;
use prost::Message;
use serde::Deserialize;

use crate::objects::MAGIC;

/// The fields of a `metav1.Status` that describe a failure.
#[derive(Clone, PartialEq, Message, Deserialize)]
pub(super) struct Status {
    #[prost(string, optional, tag = "3")]
    pub(super) message: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) reason: Option<String>,
    #[prost(int32, optional, tag = "6")]
    pub(super) code: Option<i32>,
}

/// `runtime.Unknown`, the envelope of an object.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

/// The message in `envelope`; `None` if the octets are not an envelope.
pub(super) fn open(envelope: &Bytes) -> Option<Bytes> {
    let envelope = envelope
        .strip_prefix(MAGIC)
        .map(|message| envelope.slice_ref(message))?;
    Some(Envelope::decode(envelope).ok()?.raw)
}

impl Status {
    /// The status in the body of an error response, if there is one.
    pub(super) fn of_body(body: &[u8]) -> Option<Self> {
        if !body.starts_with(MAGIC) {
            return serde_json::from_slice(body).ok();
        }
        Self::decode(open(&Bytes::copy_from_slice(body))?).ok()
    }
}
