//! Objects sent as protobuf: `kubectl create` sends what it builds itself (config maps, namespaces, Services...) that way and
//! takes no refusal. Only reading, and only the kinds somebody sends; answers are JSON, which every client takes.

mod fields;
mod wire;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use self::fields::{Field, Message, Type};
use self::wire::{Reader, Wire};

/// The first octets of every message.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body is not an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtobufError {
    #[error("the body does not begin like a Kubernetes protobuf message")]
    NoMagic,
    #[error("the message ends early or is not well-formed")]
    Malformed,
    #[error("no kind {kind:?} in version {api_version:?} is known to come as protobuf")]
    UnknownKind { api_version: String, kind: String },
}

/// Reads an object.
pub(super) fn object(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::NoMagic)?;
    let envelope = message(envelope, &fields::ENVELOPE)?;
    let type_meta = envelope.get("typeMeta");
    let text = |field: &str| {
        let found = type_meta.and_then(|meta| meta.get(field)).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let raw = envelope.get("raw").and_then(Value::as_str).unwrap_or_default();
    let raw = STANDARD.decode(raw).map_err(|_| ProtobufError::Malformed)?;
    let Some(schema) = fields::of(&kind) else {
        return Err(ProtobufError::UnknownKind { api_version, kind });
    };
    let mut object = message(&raw, schema)?;
    object.insert("kind".to_owned(), json!(kind));
    object.insert("apiVersion".to_owned(), json!(api_version));
    Ok(Value::Object(object))
}

/// Reads a message; as in Go's JSON, fields that are empty are left out.
fn message(octets: &[u8], schema: &Message) -> Result<Map<String, Value>, ProtobufError> {
    let mut map = Map::new();
    let mut reader = Reader::new(octets);
    while let Some((number, wire)) = reader.field()? {
        let Some(field) = schema.iter().find(|field| field.number == number) else { continue };
        add(&mut map, field, &wire)?;
    }
    Ok(map)
}

fn add(map: &mut Map<String, Value>, field: &Field, wire: &Wire<'_>) -> Result<(), ProtobufError> {
    let name = field.name.to_owned();
    match field.kind {
        Type::Map(values) => {
            let entry = message(wire.octets()?, &fields::entry(values))?;
            let key = entry.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
            let value = entry.get("value").cloned().unwrap_or_else(|| json!(""));
            if let Some(inner) = map.entry(name).or_insert_with(|| json!({})).as_object_mut() {
                inner.insert(key, value);
            }
        }
        Type::List(element) => {
            let value = value(element, wire)?.unwrap_or_default();
            if let Some(list) = map.entry(name).or_insert_with(|| json!([])).as_array_mut() {
                list.push(value);
            }
        }
        kind => {
            if let Some(value) = value(&kind, wire)? {
                map.insert(name, value);
            }
        }
    }
    Ok(())
}

/// A single value; nothing if it is empty.
fn value(kind: &Type, wire: &Wire<'_>) -> Result<Option<Value>, ProtobufError> {
    Ok(match kind {
        Type::Text => {
            let text = std::str::from_utf8(wire.octets()?).map_err(|_| ProtobufError::Malformed)?;
            (!text.is_empty()).then(|| json!(text))
        }
        Type::Octets => Some(json!(STANDARD.encode(wire.octets()?))),
        Type::Number => Some(wire.number()?).filter(|number| *number != 0).map(|number| json!(number)),
        Type::Flag => Some(json!(wire.number()? != 0)),
        Type::NumberOrText => {
            let both = message(wire.octets()?, &fields::NUMBER_OR_TEXT)?;
            let text = both.get("type").is_some();
            both.get(if text { "text" } else { "number" }).cloned()
        }
        Type::Message(schema) => {
            let inner = message(wire.octets()?, schema)?;
            (!inner.is_empty()).then_some(Value::Object(inner))
        }
        Type::List(_) | Type::Map(_) => None,
    })
}

#[cfg(test)]
mod tests;
