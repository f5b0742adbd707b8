//! The protobuf encoding of the API, for the fields in [`fields`]. If `kubectl create` makes an
//! object from its arguments, it sends the object in protobuf. Clients such as kubedns request
//! lists and watches in protobuf.

mod fields;
mod wire;
mod write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::DateTime;
use serde_json::{Map, Value, json};

use self::fields::{Field, Message, Type};
use self::wire::{Wire, take_field};

pub(crate) use self::write::{enveloped, event, list, message};

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The first octets of every envelope.
const MAGIC: &[u8] = b"k8s\0";

/// Reads an object; `None` if the body is malformed or [`fields`] lacks the kind.
pub(crate) fn read_object(body: &[u8]) -> Option<Value> {
    let envelope = read(body.strip_prefix(MAGIC)?, &fields::ENVELOPE)?;
    let type_meta = envelope.get("typeMeta")?;
    let kind = type_meta.get("kind")?;
    let raw = STANDARD.decode(envelope.get("raw")?.as_str()?).ok()?;
    let mut object = read(&raw, fields::of(kind.as_str()?)?)?;
    object.insert("kind".to_owned(), kind.clone());
    object.insert(
        "apiVersion".to_owned(),
        type_meta.get("apiVersion")?.clone(),
    );
    Some(Value::Object(object))
}

/// Reads a message; `None` if malformed. A field is omitted if [`value`] returns null for it, like
/// an empty field with `omitempty` in Go.
fn read(mut octets: &[u8], schema: &Message) -> Option<Map<String, Value>> {
    let mut map = Map::new();
    while !octets.is_empty() {
        let (number, wire) = take_field(&mut octets)?;
        let Some(field) = schema.iter().find(|field| field.number == number) else {
            continue;
        };
        add(&mut map, field, &wire)?;
    }
    Some(map)
}

/// Adds the value of a field; `None` if the field is malformed. The values of lists and maps are
/// added one by one.
fn add(map: &mut Map<String, Value>, field: &Field, wire: &Wire<'_>) -> Option<()> {
    let name = field.name.to_owned();
    match field.kind {
        Type::Map(values) => {
            let entry = read(wire.octets()?, &fields::entry(values))?;
            let key = entry
                .get("key")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            let value = entry.get("value").cloned().unwrap_or_else(|| json!(""));
            if let Some(inner) = map.entry(name).or_insert_with(|| json!({})).as_object_mut() {
                inner.insert(key, value);
            }
        }
        Type::List(element) => {
            // Unlike an empty field, an empty element is kept.
            let value = match (value(element, wire)?, element) {
                (Value::Null, Type::Text) => json!(""),
                (Value::Null, Type::Message(_)) => json!({}),
                (value, _) => value,
            };
            if let Some(list) = map.entry(name).or_insert_with(|| json!([])).as_array_mut() {
                list.push(value);
            }
        }
        kind => {
            let value = value(&kind, wire)?;
            if !value.is_null() {
                map.insert(name, value);
            }
        }
    }
    Some(())
}

/// Reads a single value. An empty string, a zero and an empty message become null. A false flag
/// stays, because flags may be optional, and false then differs from a missing flag.
fn value(kind: &Type, wire: &Wire<'_>) -> Option<Value> {
    Some(match kind {
        Type::Text => match std::str::from_utf8(wire.octets()?).ok()? {
            "" => Value::Null,
            text => json!(text),
        },
        Type::Octets => json!(STANDARD.encode(wire.octets()?)),
        Type::Number => match wire.number()? {
            0 => Value::Null,
            number => json!(number),
        },
        Type::Flag => json!(wire.number()? != 0),
        Type::NumberOrText => {
            let both = read(wire.octets()?, &fields::NUMBER_OR_TEXT)?;
            // If the value is a number, `type` is 0, and `read` omits a field that is 0.
            let chosen = if both.contains_key("type") {
                "text"
            } else {
                "number"
            };
            both.get(chosen).cloned().unwrap_or_default()
        }
        Type::Time => {
            let seconds = read(wire.octets()?, &fields::TIME)?
                .get("seconds")
                .and_then(Value::as_i64);
            let time = seconds.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
            time.map_or(Value::Null, |time| json!(time.to_rfc3339()))
        }
        Type::Message(schema) => {
            let inner = read(wire.octets()?, schema)?;
            if inner.is_empty() {
                Value::Null
            } else {
                Value::Object(inner)
            }
        }
        // `add` reads lists and maps.
        Type::List(_) | Type::Map(_) => Value::Null,
    })
}

#[cfg(test)]
mod tests;
