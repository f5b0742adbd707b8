//! The messages of the Kubernetes API that contain objects, in protobuf and in JSON. The protobuf
//! tags come from `generated.proto` in `k8s.io/apimachinery`.

use bytes::{Buf as _, Bytes, BytesMut};
use prost::Message;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::{Failure, excerpt};
use super::status;
use crate::objects::{Encoded, MAGIC};

/// The `Accept` header: protobuf, or else JSON.
pub(super) const ACCEPT: &str = "application/vnd.kubernetes.protobuf,application/json";
/// Bound of a single object or event in octets. API servers store no object of more than a few
/// megabytes.
pub(super) const MAX_OBJECT: usize = 8 << 20;

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
    /// Checks that the list has a version. A watch without a version would begin anywhere.
    fn check(&self) -> Result<(), Failure> {
        if self.resource_version.is_empty() {
            return Err(Failure::Garbage("a list without a version".to_owned()));
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

/// `runtime.TypeMeta`.
#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "2")]
    kind: String,
}

/// A `metav1.WatchEvent` in protobuf.
#[derive(Clone, PartialEq, Message)]
struct WatchMessage {
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

#[derive(Deserialize)]
struct JsonList<'a> {
    kind: String,
    metadata: ListMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

fn garbage(why: &dyn std::fmt::Display, received: &[u8]) -> Failure {
    Failure::Garbage(format!("{why}: {}", excerpt(received)))
}

/// The message in `envelope`; [`Failure::Garbage`] if the octets are not an envelope.
fn open(envelope: &Bytes) -> Result<Bytes, Failure> {
    status::open(envelope).ok_or_else(|| garbage(&"not the protobuf of Kubernetes", envelope))
}

impl WatchEvent {
    /// Reads an event from a line of JSON.
    pub(super) fn of_line(line: &Bytes) -> Result<Self, Failure> {
        let event: JsonEvent<'_> =
            serde_json::from_slice(line).map_err(|error| garbage(&error, line))?;
        let object = Encoded::Json(line.slice_ref(event.object.get().as_bytes()));
        Ok(Self {
            r#type: event.r#type,
            object,
        })
    }

    /// Reads an event from a protobuf frame.
    pub(super) fn of_frame(frame: &Bytes) -> Result<Self, Failure> {
        let event: WatchMessage = decode(frame)?;
        let object = event
            .object
            .ok_or_else(|| garbage(&"an event without an object", frame))?;
        Ok(Self {
            r#type: event.r#type,
            object: Encoded::Protobuf(open(&object.raw)?),
        })
    }
}

/// Reads a whole list in JSON. A body that is not a list must not be taken for an empty list.
pub(super) fn read_list(body: &Bytes) -> Result<(ListMeta, Vec<Encoded>), Failure> {
    let list: JsonList<'_> = serde_json::from_slice(body).map_err(|error| garbage(&error, body))?;
    if !list.kind.ends_with("List") {
        return Err(garbage(&"not a list", list.kind.as_bytes()));
    }
    list.metadata.check()?;
    let encoded = |item: &RawValue| Encoded::Json(body.slice_ref(item.get().as_bytes()));
    Ok((
        list.metadata,
        list.items
            .unwrap_or_default()
            .into_iter()
            .map(encoded)
            .collect(),
    ))
}

/// A streaming reader of a list in protobuf. An envelope contains the list, and the fields of the
/// list are the metadata and the objects.
#[derive(Debug, Default)]
pub(super) struct ListMessage {
    within: Within,
    meta: ListMeta,
}

/// The element that a [`ListMessage`] expects next.
#[derive(Debug, Default, Clone, Copy)]
enum Within {
    /// The magic number.
    #[default]
    Start,
    /// Fields of the envelope.
    Envelope,
    /// Fields of the list, of which this number of octets is left.
    List(usize),
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
    pub(super) fn next(&mut self, received: &mut BytesMut) -> Result<Option<ListPart>, Failure> {
        loop {
            let complete = match self.within {
                Within::Start => self.start(received)?,
                Within::Envelope => self.field_of_envelope(received)?,
                Within::List(0) => return self.end().map(Some),
                Within::List(left) => match self.field_of_list(left, received)? {
                    Some((2, object)) => {
                        return Ok(Some(ListPart::Object(Encoded::Protobuf(object))));
                    }
                    Some((1, meta)) => {
                        self.meta = decode(&meta)?;
                        true
                    }
                    other => other.is_some(),
                },
            };
            if !complete {
                return Ok(None);
            }
        }
    }

    /// Takes the magic number. Returns false if the magic number is incomplete.
    fn start(&mut self, received: &mut BytesMut) -> Result<bool, Failure> {
        if received.len() < MAGIC.len() {
            return Ok(false);
        }
        if !received.starts_with(MAGIC) {
            return Err(garbage(&"not the protobuf of Kubernetes", received));
        }
        received.advance(MAGIC.len());
        self.within = Within::Envelope;
        Ok(true)
    }

    /// Takes a field of the envelope. If the field is the list, takes only the head of the field.
    /// Returns false if the field is incomplete.
    fn field_of_envelope(&mut self, received: &mut BytesMut) -> Result<bool, Failure> {
        let Some(field) = Field::at_front(received)? else {
            return Ok(false);
        };
        if field.number == 2 {
            received.advance(field.head);
            self.within = Within::List(field.length);
            return Ok(true);
        }
        let Some(content) = field.split_off(received)? else {
            return Ok(false);
        };
        if field.number == 1 {
            check_kind(&content)?;
        }
        Ok(true)
    }

    /// Takes a field of the list and returns its number and content; `None` if the field is
    /// incomplete. `left` is the number of octets that are left of the list.
    fn field_of_list(
        &mut self,
        left: usize,
        received: &mut BytesMut,
    ) -> Result<Option<(u64, Bytes)>, Failure> {
        let Some(field) = Field::at_front(received)? else {
            return Ok(None);
        };
        let Some(content) = field.split_off(received)? else {
            return Ok(None);
        };
        let left = left.checked_sub(field.head + field.length);
        let cut = || Failure::Garbage("an object reaches beyond its list".to_owned());
        self.within = Within::List(left.ok_or_else(cut)?);
        Ok(Some((field.number, content)))
    }

    fn end(&mut self) -> Result<ListPart, Failure> {
        self.meta.check()?;
        Ok(ListPart::End(std::mem::take(&mut self.meta)))
    }
}

fn decode<M: Message + Default>(message: &Bytes) -> Result<M, Failure> {
    M::decode(message.clone()).map_err(|error| garbage(&error, message))
}

/// Checks that the body is a list: another body must not be taken for an empty list.
fn check_kind(type_meta: &Bytes) -> Result<(), Failure> {
    let TypeMeta { kind } = decode(type_meta)?;
    if kind.ends_with("List") {
        Ok(())
    } else {
        Err(garbage(&"not a list", kind.as_bytes()))
    }
}

/// A field of a protobuf message.
#[derive(Debug, Clone, Copy)]
struct Field {
    number: u64,
    /// The number of octets before the content.
    head: usize,
    /// The number of octets of the content.
    length: usize,
}

impl Field {
    /// The field at the front of `received`; `None` if the head of the field is incomplete.
    fn at_front(received: &[u8]) -> Result<Option<Self>, Failure> {
        let Some((key, key_length)) = varint(received)? else {
            return Ok(None);
        };
        let rest = received.get(key_length..).unwrap_or_default();
        let (head, length) = match key & 7 {
            0 => (key_length, varint(rest)?.map(|(_, length)| length)),
            1 => (key_length, Some(8)),
            2 => match varint(rest)? {
                Some((length, octets)) => (key_length + octets, usize::try_from(length).ok()),
                None => (0, None),
            },
            5 => (key_length, Some(4)),
            other => return Err(Failure::Garbage(format!("protobuf of wire type {other}"))),
        };
        Ok(length.map(|length| Self {
            number: key >> 3,
            head,
            length,
        }))
    }

    /// Takes this field out of `received` and returns its content; `None` if the field is
    /// incomplete.
    fn split_off(self, received: &mut BytesMut) -> Result<Option<Bytes>, Failure> {
        if self.length > MAX_OBJECT {
            return Err(Failure::TooLarge(MAX_OBJECT));
        }
        if received.len() < self.head + self.length {
            return Ok(None);
        }
        received.advance(self.head);
        Ok(Some(received.split_to(self.length).freeze()))
    }
}

/// A varint of up to ten octets, and its length; `None` if the varint is incomplete.
fn varint(octets: &[u8]) -> Result<Option<(u64, usize)>, Failure> {
    let mut number = 0;
    for (index, octet) in octets.iter().enumerate().take(10) {
        number |= u64::from(octet & 0x7f) << (7 * index);
        if octet & 0x80 == 0 {
            return Ok(Some((number, index + 1)));
        }
    }
    if octets.len() < 10 {
        Ok(None)
    } else {
        Err(Failure::Garbage("a number without end".to_owned()))
    }
}

#[cfg(test)]
mod tests;
