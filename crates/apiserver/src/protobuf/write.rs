//! Encoding of protobuf messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::DateTime;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Value, json};

use super::MAGIC;
use super::fields::{self, Field, Message, Type};

/// An object without an envelope; empty if [`fields`] lacks the kind.
pub(crate) fn message(kind: &str, object: &Value) -> Vec<u8> {
    fields::of(kind).map_or_else(Vec::new, |schema| of_fields(schema, object))
}

/// The encoded object `raw` in its envelope, a `runtime.Unknown`.
pub(crate) fn enveloped(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = json!({ "apiVersion": api_version, "kind": kind });
    let mut text = MAGIC.to_vec();
    write(&mut text, &fields::ENVELOPE[0], &type_meta);
    octets(&mut text, 2, raw);
    octets(&mut text, 3, b"");
    octets(&mut text, 4, b"");
    text
}

/// A list without an envelope.
pub(crate) fn list<'o>(
    version: u64,
    token: &str,
    objects: impl Iterator<Item = &'o [u8]>,
) -> Vec<u8> {
    let mut meta = Vec::new();
    octets(&mut meta, 1, b"");
    octets(&mut meta, 2, version.to_string().as_bytes());
    octets(&mut meta, 3, token.as_bytes());
    let mut text = Vec::new();
    octets(&mut text, 1, &meta);
    for object in objects {
        octets(&mut text, 2, object);
    }
    text
}

/// A watch event with an enveloped object. Four octets with the event's length precede the event.
pub(crate) fn event(event_type: &str, object: &[u8]) -> Vec<u8> {
    let (mut extension, mut event) = (Vec::new(), Vec::new());
    octets(&mut extension, 1, object);
    octets(&mut event, 1, event_type.as_bytes());
    octets(&mut event, 2, &extension);
    let mut frame = u32::try_from(event.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes()
        .to_vec();
    frame.append(&mut event);
    frame
}

fn of_fields(schema: &Message, object: &Value) -> Vec<u8> {
    let mut text = Vec::new();
    for field in schema {
        let value = object.get(field.name).unwrap_or(&Value::Null);
        write(&mut text, field, value);
    }
    text
}

/// Writes the value of a field. Omits a value of the wrong JSON type. For any other invalid value,
/// writes 0 or an empty field.
fn write(text: &mut Vec<u8>, field: &Field, value: &Value) {
    let number = field.number;
    match (field.kind, value) {
        (Type::Text, Value::String(value)) => octets(text, number, value.as_bytes()),
        (Type::Octets, Value::String(value)) => {
            octets(text, number, &STANDARD.decode(value).unwrap_or_default());
        }
        (Type::Number, Value::Number(value)) => {
            let value = value.as_i64().unwrap_or_default();
            varint(text, number, value.cast_unsigned());
        }
        (Type::Flag, Value::Bool(value)) => {
            varint(text, number, u64::from(*value));
        }
        (Type::Time, Value::String(value)) => {
            let seconds = DateTime::parse_from_rfc3339(value).map_or(0, |time| time.timestamp());
            let time = json!({ "seconds": seconds });
            octets(text, number, &of_fields(&fields::TIME, &time));
        }
        (Type::NumberOrText, Value::Number(_)) => {
            let chosen = json!({ "type": 0, "number": value });
            octets(text, number, &of_fields(&fields::NUMBER_OR_TEXT, &chosen));
        }
        (Type::NumberOrText, Value::String(_)) => {
            let chosen = json!({ "type": 1, "text": value });
            octets(text, number, &of_fields(&fields::NUMBER_OR_TEXT, &chosen));
        }
        (Type::Message(schema), Value::Object(_)) => {
            octets(text, number, &of_fields(schema, value));
        }
        (Type::List(element), Value::Array(values)) => {
            for value in values {
                let element = Field {
                    kind: *element,
                    ..*field
                };
                write(text, &element, value);
            }
        }
        (Type::Map(values), Value::Object(map)) => {
            for (key, value) in map {
                let entry = json!({ "key": key, "value": value });
                octets(text, number, &of_fields(&fields::entry(values), &entry));
            }
        }
        _ => {}
    }
}

fn octets(text: &mut Vec<u8>, number: u32, content: &[u8]) {
    encode_key(number, WireType::LengthDelimited, text);
    encode_varint(content.len() as u64, text);
    text.extend_from_slice(content);
}

fn varint(text: &mut Vec<u8>, number: u32, value: u64) {
    encode_key(number, WireType::Varint, text);
    encode_varint(value, text);
}
