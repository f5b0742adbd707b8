//! The messages of the Kubernetes API that contain objects or the status of a failure, in protobuf
//! and in JSON. The protobuf tags come from `generated.proto` in `k8s.io/apimachinery`.

use std::fmt::Display;

use bytes::{Buf as _, Bytes, BytesMut};
use prost::Message;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::{RequestFailure, excerpt};
use crate::objects::{Encoded, MAGIC};

/// The `Accept` header: protobuf, or else JSON.
pub(super) const ACCEPT: &str = "application/vnd.kubernetes.protobuf,application/json";
/// Maximum size of a single object or event, in octets. API servers store no object of more than a
/// few megabytes.
pub(super) const MAX_OBJECT: usize = 8 << 20;
/// The error text for octets that are not in an envelope.
const NO_ENVELOPE: &str = "not a Kubernetes protobuf message";

/// The fields of a `metav1.Status` that describe a failure.
#[derive(Clone, PartialEq, Message, Deserialize)]
pub(super) struct FailureStatus {
    #[prost(string, optional, tag = "3")]
    pub(super) message: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) reason: Option<String>,
    #[prost(int32, optional, tag = "6")]
    pub(super) code: Option<i32>,
}

impl FailureStatus {
    /// The status in the body of an error response, if there is one.
    pub(super) fn of_body(body: &[u8]) -> Option<Self> {
        if !body.starts_with(MAGIC) {
            return serde_json::from_slice(body).ok();
        }

        let message = open_envelope(&Bytes::copy_from_slice(body))?;
        Self::decode(message).ok()
    }
}

/// `runtime.Unknown`, the envelope of an object.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

/// The message in `envelope`; `None` if the octets are not an envelope.
fn open_envelope(envelope: &Bytes) -> Option<Bytes> {
    let message = envelope.strip_prefix(MAGIC)?;
    let envelope = Envelope::decode(envelope.slice_ref(message)).ok()?;

    Some(envelope.raw)
}

/// `metav1.ListMeta`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta {
    #[prost(string, tag = "2")]
    #[serde(default)]
    pub(super) resource_version: String,
    /// The token of the next page; empty on the last page.
    #[prost(string, tag = "3")]
    #[serde(default)]
    pub(super) r#continue: String,
}

impl ListMeta {
    /// Checks that the list has a resourceVersion. Without it, a watch might not begin at the
    /// version of the list, and changes could be lost.
    fn check_version(&self) -> Result<(), RequestFailure> {
        if self.resource_version.is_empty() {
            let problem = "a list without a resourceVersion";
            return Err(RequestFailure::Garbage(problem.to_owned()));
        }
        Ok(())
    }
}

/// A `metav1.WatchEvent`.
#[derive(Debug)]
pub(super) struct WatchEvent {
    pub(super) r#type: String,
    pub(super) object: Encoded,
}

/// A `metav1.WatchEvent` in protobuf.
#[derive(Clone, PartialEq, Message)]
struct ProtobufEvent {
    #[prost(string, tag = "1")]
    r#type: String,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    raw: Bytes,
}

#[derive(Deserialize)]
struct JsonEvent<'a> {
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl WatchEvent {
    /// Reads an event from a line of JSON.
    pub(super) fn of_line(line: &Bytes) -> Result<Self, RequestFailure> {
        let event: JsonEvent<'_> =
            serde_json::from_slice(line).map_err(|error| garbage_failure(&error, line))?;
        // The object refers to the octets of the line and is not copied.
        let object = line.slice_ref(event.object.get().as_bytes());

        Ok(Self {
            r#type: event.r#type,
            object: Encoded::Json(object),
        })
    }

    /// Reads an event from a protobuf frame.
    pub(super) fn of_frame(frame: &Bytes) -> Result<Self, RequestFailure> {
        let event: ProtobufEvent = decode_message(frame)?;
        let envelope = event
            .object
            .ok_or_else(|| garbage_failure(&"an event without an object", frame))?
            .raw;
        let object =
            open_envelope(&envelope).ok_or_else(|| garbage_failure(&NO_ENVELOPE, &envelope))?;

        Ok(Self {
            r#type: event.r#type,
            object: Encoded::Protobuf(object),
        })
    }
}

/// A whole list.
#[derive(Debug)]
pub(super) struct ParsedList {
    pub(super) meta: ListMeta,
    pub(super) objects: Vec<Encoded>,
}

#[derive(Deserialize)]
struct JsonList<'a> {
    kind: String,
    metadata: ListMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// Reads a whole list in JSON. A body that is not a list must not be taken for an empty list.
pub(super) fn read_json_list(body: &Bytes) -> Result<ParsedList, RequestFailure> {
    let list: JsonList<'_> =
        serde_json::from_slice(body).map_err(|error| garbage_failure(&error, body))?;
    check_list_kind(&list.kind)?;
    list.metadata.check_version()?;

    let items = list.items.unwrap_or_default();
    let objects = items
        .into_iter()
        .map(|item| Encoded::Json(body.slice_ref(item.get().as_bytes())))
        .collect();
    Ok(ParsedList {
        meta: list.metadata,
        objects,
    })
}

/// `runtime.TypeMeta`.
#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "2")]
    kind: String,
}

/// A streaming reader of a list in protobuf. An envelope contains the list, and the fields of the
/// list are the metadata and the objects.
#[derive(Debug, Default)]
pub(super) struct ListMessage {
    next: NextElement,
    meta: ListMeta,
}

/// The element that a [`ListMessage`] expects next.
#[derive(Debug, Default, Clone, Copy)]
enum NextElement {
    #[default]
    MagicNumber,
    EnvelopeField,
    /// A field of the list. The number is how many octets of the list are left.
    ListField(usize),
}

/// A part of a list.
#[derive(Debug)]
pub(super) enum ListPart {
    Object(Encoded),
    /// The end of the list.
    End(ListMeta),
}

impl ListMessage {
    /// Takes the next part out of `received`; `None` if the part is incomplete.
    pub(super) fn take_part(
        &mut self,
        received: &mut BytesMut,
    ) -> Result<Option<ListPart>, RequestFailure> {
        loop {
            let is_complete = match self.next {
                NextElement::MagicNumber => self.take_magic_number(received)?,
                NextElement::EnvelopeField => self.take_envelope_field(received)?,
                // Fields of the envelope that follow the list are not parsed. `ListReader`
                // discards them with the rest of the response.
                NextElement::ListField(0) => return self.end_list().map(Some),
                NextElement::ListField(left) => match self.take_list_field(left, received)? {
                    Some(ListField { number: 2, content }) => {
                        return Ok(Some(ListPart::Object(Encoded::Protobuf(content))));
                    }
                    Some(ListField { number: 1, content }) => {
                        self.meta = decode_message(&content)?;
                        true
                    }
                    // A field that a later version of the API adds is skipped.
                    other => other.is_some(),
                },
            };

            if !is_complete {
                return Ok(None);
            }
        }
    }

    /// Takes the magic number. Returns false if the magic number is incomplete.
    fn take_magic_number(&mut self, received: &mut BytesMut) -> Result<bool, RequestFailure> {
        if received.len() < MAGIC.len() {
            return Ok(false);
        }
        if !received.starts_with(MAGIC) {
            return Err(garbage_failure(&NO_ENVELOPE, received));
        }

        received.advance(MAGIC.len());
        self.next = NextElement::EnvelopeField;
        Ok(true)
    }

    /// Takes a field of the envelope. If the field is the list, takes only the head of the field.
    /// Returns false if the field is incomplete.
    fn take_envelope_field(&mut self, received: &mut BytesMut) -> Result<bool, RequestFailure> {
        let Some(field) = FieldHead::parse(received)? else {
            return Ok(false);
        };
        // Only the head is taken: the objects are read one by one while the list arrives.
        if field.number == 2 {
            received.advance(field.head);
            self.next = NextElement::ListField(field.length);
            return Ok(true);
        }

        let Some(content) = field.take_content(received)? else {
            return Ok(false);
        };
        if field.number == 1 {
            let meta: TypeMeta = decode_message(&content)?;
            check_list_kind(&meta.kind)?;
        }
        Ok(true)
    }

    /// Takes a field of the list; `None` if the field is incomplete. `left` is the number of octets
    /// that are left of the list.
    fn take_list_field(
        &mut self,
        left: usize,
        received: &mut BytesMut,
    ) -> Result<Option<ListField>, RequestFailure> {
        let Some(field) = FieldHead::parse(received)? else {
            return Ok(None);
        };
        let Some(content) = field.take_content(received)? else {
            return Ok(None);
        };

        let Some(left) = left.checked_sub(field.head + field.length) else {
            let problem = "a field of a list reaches beyond the list";
            return Err(RequestFailure::Garbage(problem.to_owned()));
        };
        self.next = NextElement::ListField(left);
        Ok(Some(ListField {
            number: field.number,
            content,
        }))
    }

    fn end_list(&mut self) -> Result<ListPart, RequestFailure> {
        self.meta.check_version()?;
        Ok(ListPart::End(std::mem::take(&mut self.meta)))
    }
}

/// Checks that the body is a list: any other body must not be taken for an empty list.
fn check_list_kind(kind: &str) -> Result<(), RequestFailure> {
    if kind.ends_with("List") {
        Ok(())
    } else {
        Err(garbage_failure(&"not a list", kind.as_bytes()))
    }
}

fn decode_message<M: Message + Default>(message: &Bytes) -> Result<M, RequestFailure> {
    M::decode(message.clone()).map_err(|error| garbage_failure(&error, message))
}

fn garbage_failure(why: &dyn Display, received: &[u8]) -> RequestFailure {
    RequestFailure::Garbage(format!("{why}: {}", excerpt(received)))
}

/// A complete field of a list.
struct ListField {
    number: u64,
    content: Bytes,
}

/// The head of a field of a protobuf message.
#[derive(Debug, Clone, Copy)]
struct FieldHead {
    number: u64,
    /// The number of octets before the content.
    head: usize,
    /// The number of octets of the content.
    length: usize,
}

impl FieldHead {
    /// Parses the head of the first field in `received`; `None` if the head is incomplete. In a
    /// varint field, the content must be complete, too.
    fn parse(received: &[u8]) -> Result<Option<Self>, RequestFailure> {
        let Some(key) = Varint::parse(received)? else {
            return Ok(None);
        };
        let rest = received.get(key.octets..).unwrap_or_default();

        // The content of a varint field is the varint itself. In a field of wire type 2, the length
        // of the content precedes the content.
        let field = |head, length| Self {
            number: key.value >> 3,
            head,
            length,
        };
        match key.value & 7 {
            0 => Ok(Varint::parse(rest)?.map(|value| field(key.octets, value.octets))),
            1 => Ok(Some(field(key.octets, 8))),
            2 => Ok(Varint::parse(rest)?.and_then(|length| {
                let head = key.octets + length.octets;
                Some(field(head, usize::try_from(length.value).ok()?))
            })),
            5 => Ok(Some(field(key.octets, 4))),
            // Kubernetes uses no groups (wire types 3 and 4).
            other => {
                let problem = format!("a protobuf field of wire type {other}");
                Err(RequestFailure::Garbage(problem))
            }
        }
    }

    /// Takes this field out of `received` and returns its content; `None` if the field is
    /// incomplete.
    fn take_content(self, received: &mut BytesMut) -> Result<Option<Bytes>, RequestFailure> {
        // The length is checked before the octets are awaited: a wrong length must not fill the
        // memory.
        if self.length > MAX_OBJECT {
            return Err(RequestFailure::TooLarge(MAX_OBJECT));
        }
        if received.len() < self.head + self.length {
            return Ok(None);
        }

        received.advance(self.head);
        Ok(Some(received.split_to(self.length).freeze()))
    }
}

/// A varint of a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Varint {
    value: u64,
    /// The number of its octets.
    octets: usize,
}

impl Varint {
    /// Parses a varint of up to ten octets; `None` if the varint is incomplete.
    fn parse(octets: &[u8]) -> Result<Option<Self>, RequestFailure> {
        let mut value = 0;
        for (index, octet) in octets.iter().enumerate().take(10) {
            value |= u64::from(octet & 0x7f) << (7 * index);
            if octet & 0x80 == 0 {
                let octets = index + 1;
                return Ok(Some(Self { value, octets }));
            }
        }

        // Ten octets are enough for 64 bits, so a longer varint is malformed.
        if octets.len() < 10 {
            Ok(None)
        } else {
            let problem = "a protobuf varint of more than ten octets";
            Err(RequestFailure::Garbage(problem.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests;
