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

/// Reads an object; nothing if the body is malformed or of a kind that nobody sends.
pub(super) fn object(body: &[u8]) -> Option<Value> {
    let envelope = message(body.strip_prefix(MAGIC)?, &fields::ENVELOPE)?;
    let type_meta = envelope.get("typeMeta")?;
    let kind = type_meta.get("kind")?;
    let raw = STANDARD.decode(envelope.get("raw")?.as_str()?).ok()?;
    let mut object = message(&raw, fields::of(kind.as_str()?)?)?;
    object.insert("kind".to_owned(), kind.clone());
    object.insert("apiVersion".to_owned(), type_meta.get("apiVersion")?.clone());
    Some(Value::Object(object))
}

/// Reads a message; as in Go's JSON, fields that are empty are left out.
fn message(octets: &[u8], schema: &Message) -> Option<Map<String, Value>> {
    let mut map = Map::new();
    let mut reader = Reader::new(octets);
    while !reader.is_empty() {
        let (number, wire) = reader.field()?;
        let Some(field) = schema.iter().find(|field| field.number == number) else { continue };
        add(&mut map, field, &wire)?;
    }
    Some(map)
}

fn add(map: &mut Map<String, Value>, field: &Field, wire: &Wire<'_>) -> Option<()> {
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
            let value = value(element, wire)?;
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

/// A single value, null if it is empty.
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
            let both = message(wire.octets()?, &fields::NUMBER_OR_TEXT)?;
            let chosen = if both.contains_key("type") { "text" } else { "number" };
            both.get(chosen).cloned().unwrap_or_default()
        }
        Type::Message(schema) => {
            let inner = message(wire.octets()?, schema)?;
            if inner.is_empty() { Value::Null } else { Value::Object(inner) }
        }
        Type::List(_) | Type::Map(_) => Value::Null,
    })
}

#[cfg(test)]
mod tests;
