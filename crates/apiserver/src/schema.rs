//! The schema of each kind: the typed objects of k8s-openapi. An object that goes through its type has no field of the
//! wrong type, and none that the kind does not have.

use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Namespace, Node, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kinds::{Kind, Resource};
use crate::status::Status;

/// What becomes of fields that a kind does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The object is rejected.
    Reject,
    /// They are left out.
    Drop,
}

/// An object of `resource` as its type writes it, or 400.
pub(crate) fn check(resource: Resource, mut value: Value, unknown: Unknown) -> Result<Value, Status> {
    // The type and the name of an object are not the schema's business, and rejected in other words.
    let kind = resource.kind();
    if let Some(map) = value.as_object_mut() {
        map.entry("metadata").or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    let typed = match resource {
        Resource::ConfigMaps => through::<ConfigMap>(&value),
        Resource::Endpoints => through::<Endpoints>(&value),
        Resource::Namespaces => through::<Namespace>(&value),
        Resource::Nodes => through::<Node>(&value),
        Resource::ServiceAccounts => through::<ServiceAccount>(&value),
        Resource::Services => through::<Service>(&value),
        Resource::EndpointSlices => through::<EndpointSlice>(&value),
    };
    let typed = typed.map_err(|error| reject(kind, &error.to_string()))?;
    if unknown == Unknown::Reject {
        let mut fields = Vec::new();
        compare("", &value, &typed, &mut fields);
        if !fields.is_empty() {
            return Err(reject(kind, &format!("strict decoding error: {}", fields.join(", "))));
        }
    }
    Ok(typed)
}

/// Reads a value as its type.
pub(crate) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, serde_json::Error> {
    T::deserialize(value)
}

fn through<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(read::<T>(value)?)
}

/// Notes the fields of `given` that got lost on the way through the type.
fn compare(at: &str, given: &Value, typed: &Value, lost: &mut Vec<String>) {
    match (given, typed) {
        (Value::Object(given), Value::Object(typed)) => {
            for (field, value) in given.iter().filter(|(_, value)| !value.is_null()) {
                let at = if at.is_empty() { field.clone() } else { format!("{at}.{field}") };
                match typed.get(field) {
                    Some(typed) => compare(&at, value, typed, lost),
                    None => lost.push(format!("unknown field \"{at}\"")),
                }
            }
        }
        (Value::Array(given), Value::Array(typed)) => {
            for (index, (given, typed)) in given.iter().zip(typed).enumerate() {
                compare(&format!("{at}[{index}]"), given, typed, lost);
            }
        }
        _ => {}
    }
}

fn reject(kind: &Kind, why: &str) -> Status {
    let (name, version) = (kind.name, kind.api_version());
    Status::bad_request(format!("{name} in version \"{version}\" cannot be handled as a {name}: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(value: Value, unknown: Unknown) -> Result<Value, String> {
        check(Resource::Services, value, unknown).map_err(|status| status.message().to_owned())
    }

    #[test]
    fn unknown_fields_are_rejected_or_dropped() {
        let service = json!({
            "kind": "Service", "apiVersion": "v1",
            "metadata": { "name": "a", "creationTimestamp": null },
            "spec": { "prots": [], "ports": [{ "port": 80, "nmae": "x", "targetPort": "http" }] },
        });
        assert_eq!(
            checked(service.clone(), Unknown::Reject).unwrap_err(),
            "Service in version \"v1\" cannot be handled as a Service: strict decoding error: unknown field \"spec.ports[0].nmae\", unknown field \"spec.prots\""
        );
        assert_eq!(
            checked(service, Unknown::Drop).unwrap(),
            json!({
                "kind": "Service", "apiVersion": "v1", "metadata": { "name": "a" },
                "spec": { "ports": [{ "port": 80, "targetPort": "http" }] },
            })
        );
    }

    #[test]
    fn wrong_types_are_rejected() {
        let cases = [
            (json!({ "spec": "x" }), "invalid type: string \"x\""),
            (json!({ "spec": { "ports": {} } }), "invalid type: map"),
            (json!({ "spec": { "ports": [{ "port": "80" }] } }), "invalid type: string \"80\", expected i32"),
            (json!({ "spec": { "ports": [{ "port": 8.5 }] } }), "invalid type: floating point `8.5`"),
            (json!({ "metadata": { "labels": { "a": 1 } } }), "invalid type: integer `1`, expected a string"),
            (json!({ "spec": { "publishNotReadyAddresses": "yes" } }), "expected a boolean"),
            (json!([]), "invalid"),
        ];
        for (value, message) in cases {
            let error = checked(value, Unknown::Drop).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
