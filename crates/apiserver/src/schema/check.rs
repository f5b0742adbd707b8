//! Comparing an object with the fields its kind has.

use serde_json::{Map, Value};

use super::{Message, Type, of};
use crate::kinds::Kind;
use crate::status::Status;

/// What becomes of fields that a kind does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The object is refused.
    Refuse,
    /// They are left out.
    Drop,
}

/// Checks an object of `kind`, which must not have fields of the wrong type. Kinds whose fields are not known pass.
pub(crate) fn check(kind: &Kind, value: &mut Value, unknown: Unknown) -> Result<(), Status> {
    let (Some(schema), Some(map)) = (of(kind.kind), value.as_object_mut()) else { return Ok(()) };
    let types = (map.remove("apiVersion"), map.remove("kind"));
    let mut walk = Walk { unknown: Vec::new() };
    let outcome = walk.message("", map, schema);
    for (field, value) in [("apiVersion", types.0), ("kind", types.1)] {
        map.extend(value.map(|value| (field.to_owned(), value)));
    }
    outcome.map_err(|wrong| refuse(kind, &wrong))?;
    if unknown == Unknown::Refuse && !walk.unknown.is_empty() {
        let fields: Vec<String> =
            walk.unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect();
        return Err(refuse(kind, &format!("strict decoding error: {}", fields.join(", "))));
    }
    Ok(())
}

fn refuse(kind: &Kind, why: &str) -> Status {
    let (name, version) = (kind.kind, kind.api_version());
    Status::bad_request(format!("{name} in version \"{version}\" cannot be handled as a {name}: {why}"))
}

struct Walk {
    unknown: Vec<String>,
}

impl Walk {
    fn message(&mut self, at: &str, map: &mut Map<String, Value>, schema: &Message) -> Result<(), String> {
        let mut outcome = Ok(());
        map.retain(|name, value| {
            let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
            let Some(field) = schema.iter().find(|field| field.name == name) else {
                self.unknown.push(at);
                return false;
            };
            if outcome.is_ok() {
                outcome = self.value(&at, value, &field.kind);
            }
            true
        });
        outcome
    }

    /// Checks one value; null is as good as absent.
    fn value(&mut self, at: &str, value: &mut Value, kind: &Type) -> Result<(), String> {
        match (kind, value) {
            (Type::Any, _)
            | (_, Value::Null)
            | (Type::Text | Type::Octets | Type::NumberOrText, Value::String(_))
            | (Type::Bool | Type::Flag, Value::Bool(_)) => Ok(()),
            (Type::Number | Type::NumberOrText, Value::Number(number)) if number.is_i64() => Ok(()),
            (Type::Message(schema), Value::Object(map)) => self.message(at, map, schema),
            (Type::List(element), Value::Array(list)) => list
                .iter_mut()
                .enumerate()
                .try_for_each(|(index, value)| self.value(&format!("{at}[{index}]"), value, element)),
            (Type::Map(values), Value::Object(map)) => {
                map.iter_mut().try_for_each(|(key, value)| self.value(&format!("{at}.{key}"), value, values))
            }
            (kind, value) => Err(format!(
                "json: cannot unmarshal {} into field {at} of type {}",
                name_of(value),
                expected(kind)
            )),
        }
    }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn expected(kind: &Type) -> &'static str {
    match kind {
        Type::Text | Type::Octets => "string",
        Type::Number => "integer",
        Type::Bool | Type::Flag => "bool",
        Type::NumberOrText => "integer or string",
        Type::Message(_) | Type::Map(_) => "object",
        Type::List(_) => "array",
        Type::Any => "anything",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Resource;

    fn checked(value: Value, unknown: Unknown) -> Result<Value, String> {
        let mut value = value;
        let outcome = check(Resource::Services.kind(), &mut value, unknown);
        outcome.map(|()| value).map_err(|status| status.message().to_owned())
    }

    #[test]
    fn unknown_fields_are_refused_or_dropped() {
        let service = json!({
            "kind": "Service", "apiVersion": "v1",
            "metadata": { "name": "a", "creationTimestamp": null },
            "spec": { "prots": [], "ports": [{ "port": 80, "nmae": "x", "targetPort": "http" }] },
        });
        assert_eq!(
            checked(service.clone(), Unknown::Refuse).unwrap_err(),
            "Service in version \"v1\" cannot be handled as a Service: strict decoding error: unknown field \"spec.ports[0].nmae\", unknown field \"spec.prots\""
        );
        assert_eq!(
            checked(service, Unknown::Drop).unwrap(),
            json!({
                "kind": "Service", "apiVersion": "v1",
                "metadata": { "name": "a", "creationTimestamp": null },
                "spec": { "ports": [{ "port": 80, "targetPort": "http" }] },
            })
        );
    }

    #[test]
    fn wrong_types_are_refused() {
        let cases = [
            (json!({ "spec": "x" }), "cannot unmarshal string into field spec of type object"),
            (
                json!({ "spec": { "ports": {} } }),
                "cannot unmarshal object into field spec.ports of type array",
            ),
            (
                json!({ "spec": { "ports": [{ "port": "80" }] } }),
                "string into field spec.ports[0].port of type integer",
            ),
            (
                json!({ "spec": { "ports": [{ "port": 8.5 }] } }),
                "number into field spec.ports[0].port of type integer",
            ),
            (json!({ "spec": { "ports": [{ "targetPort": true }] } }), "of type integer or string"),
            (
                json!({ "metadata": { "labels": { "a": 1 } } }),
                "number into field metadata.labels.a of type string",
            ),
            (json!({ "spec": { "publishNotReadyAddresses": "yes" } }), "of type bool"),
        ];
        for (value, message) in cases {
            let error = checked(value, Unknown::Drop).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
