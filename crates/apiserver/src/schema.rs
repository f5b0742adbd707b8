//! Each kind has its k8s-openapi type as its schema, except pods and custom resources, which have
//! no schema. Conversion through the type rejects values of the wrong type and finds unknown
//! fields. [`complete`] also sets the defaults of kube-apiserver.

use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Namespace, Node, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kinds::{Kind, Resource};
use crate::object::Objects;
use crate::service;
use crate::status::Status;

/// The treatment of unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The object is rejected.
    Reject,
    /// The fields are dropped.
    Drop,
}

/// An object to be written.
pub(crate) struct Write<'a> {
    pub(crate) resource: Resource,
    pub(crate) name: &'a str,
    pub(crate) value: Value,
    /// The stored object before the write; `None` for a new object.
    pub(crate) before: Option<&'a Value>,
    pub(crate) unknown: Unknown,
}

/// Validates the object, handles its unknown fields, and sets its defaults. A cluster IP that one
/// of `services` has is not allocated again.
pub(crate) fn complete(write: &Write<'_>, services: &Objects) -> Result<Value, Status> {
    match write.resource {
        Resource::ConfigMaps => complete_typed::<ConfigMap>(write, |_, _| Ok(())),
        Resource::Nodes => complete_typed::<Node>(write, |_, _| Ok(())),
        // Pods are not converted: their k8s-openapi type is larger than all others together, and
        // clients read only a few fields of a pod. Custom resources have no k8s-openapi type.
        Resource::Pods | Resource::ServiceImports => Ok(write.value.clone()),
        Resource::ServiceAccounts => complete_typed::<ServiceAccount>(write, |_, _| Ok(())),
        Resource::Endpoints => complete_typed(write, |endpoints, _| {
            default_endpoints(endpoints);
            Ok(())
        }),
        Resource::EndpointSlices => complete_typed(write, |slice, _| {
            default_slice(slice);
            Ok(())
        }),
        Resource::Namespaces => complete_typed(write, |namespace, _| {
            default_namespace(namespace);
            Ok(())
        }),
        Resource::Services => complete_typed(write, |service: &mut Service, before| {
            service::complete(service, before.as_ref(), services)
        }),
    }
}

/// Converts a value to the type `T`, runs `complete`, and converts the result back to a value.
fn complete_typed<T: DeserializeOwned + Serialize>(
    write: &Write<'_>,
    complete: impl FnOnce(&mut T, Option<T>) -> Result<(), Vec<StatusCause>>,
) -> Result<Value, Status> {
    let kind = write.resource.kind();
    let unreadable = |error: serde_json::Error| unreadable_object(kind, &error.to_string());
    let mut typed = T::deserialize(&write.value).map_err(unreadable)?;
    if write.unknown == Unknown::Reject {
        let mut lost = Vec::new();
        collect_lost_fields(
            "",
            &write.value,
            &serde_json::to_value(&typed).map_err(unreadable)?,
            &mut lost,
        );
        if !lost.is_empty() {
            return Err(unreadable_object(
                kind,
                &format!("strict decoding error: {}", lost.join(", ")),
            ));
        }
    }
    let before = write.before.and_then(|before| T::deserialize(before).ok());
    complete(&mut typed, before).map_err(|causes| Status::invalid(kind, write.name, causes))?;
    serde_json::to_value(&typed).map_err(unreadable)
}

/// Collects an error text for each field of `given` that is not null and that `typed` lacks.
fn collect_lost_fields(at: &str, given: &Value, typed: &Value, lost: &mut Vec<String>) {
    match (given, typed) {
        (Value::Object(given), Value::Object(typed)) => {
            for (field, value) in given.iter().filter(|(_, value)| !value.is_null()) {
                let at = if at.is_empty() {
                    field.clone()
                } else {
                    format!("{at}.{field}")
                };
                match typed.get(field) {
                    Some(typed) => collect_lost_fields(&at, value, typed, lost),
                    None => lost.push(format!("unknown field \"{at}\"")),
                }
            }
        }
        (Value::Array(given), Value::Array(typed)) => {
            for (index, (given, typed)) in given.iter().zip(typed).enumerate() {
                collect_lost_fields(&format!("{at}[{index}]"), given, typed, lost);
            }
        }
        _ => {}
    }
}

fn unreadable_object(kind: &Kind, why: &str) -> Status {
    let (name, version) = (kind.name, kind.api_version());
    Status::bad_request(format!(
        "{name} in version \"{version}\" cannot be handled as a {name}: {why}"
    ))
}

fn default_endpoints(endpoints: &mut Endpoints) {
    endpoints.subsets.take_if(|subsets| subsets.is_empty());
    for subset in endpoints.subsets.iter_mut().flatten() {
        for port in subset.ports.iter_mut().flatten() {
            port.protocol.get_or_insert_with(default_protocol);
        }
    }
}

fn default_slice(slice: &mut EndpointSlice) {
    for port in slice.ports.iter_mut().flatten() {
        port.protocol.get_or_insert_with(default_protocol);
        port.name.get_or_insert_default();
    }
}

fn default_namespace(namespace: &mut Namespace) {
    let meta = &mut namespace.metadata;
    let name = meta.name.clone().unwrap_or_default();
    meta.labels
        .get_or_insert_default()
        .insert("kubernetes.io/metadata.name".to_owned(), name);
    let finalizers = &mut namespace.spec.get_or_insert_default().finalizers;
    finalizers.get_or_insert_with(|| vec!["kubernetes".to_owned()]);
    namespace
        .status
        .get_or_insert_default()
        .phase
        .get_or_insert_with(|| "Active".to_owned());
}

fn default_protocol() -> String {
    "TCP".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testkit::table;

    use super::*;

    fn completed(resource: Resource, mut value: Value, unknown: Unknown) -> Result<Value, String> {
        if let Some(map) = value.as_object_mut() {
            map.entry("metadata")
                .or_insert_with(|| json!({ "name": "x", "namespace": "n" }));
        }
        let write = Write {
            resource,
            name: "x",
            value,
            before: None,
            unknown,
        };
        complete(&write, &Objects::default()).map_err(|status| status.to_string())
    }

    /// `apiVersion` and `kind` of an object, its fields, and the path and value of one field of the
    /// completed object.
    const DEFAULTS: &str = r#"
        v1 | Endpoints | {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}]} | /subsets/0/ports | [{"port": 1, "protocol": "TCP"}]
        discovery.k8s.io/v1 | EndpointSlice | {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]} | /endpoints/0 | {"addresses": ["10.0.0.1"]}
        discovery.k8s.io/v1 | EndpointSlice | {"addressType": "IPv4", "ports": [{"port": 1}]} | /ports | [{"port": 1, "protocol": "TCP", "name": ""}]
        v1 | Service   | {"spec": {"clusterIP": "None"}} | /status          | {"loadBalancer": {}}
        v1 | Namespace | {}                              | /spec            | {"finalizers": ["kubernetes"]}
        v1 | Namespace | {}                              | /status          | {"phase": "Active"}
        v1 | Namespace | {}                              | /metadata/labels | {"kubernetes.io/metadata.name": "x"}
    "#;

    #[test]
    fn defaults_match_kube_apiserver() {
        for [version, kind, given, at, expected] in table::rows(DEFAULTS) {
            let resource = Resource::from_object(version, kind).unwrap();
            let [given, expected] =
                [given, expected].map(|json| serde_json::from_str(json).unwrap());
            let value = completed(resource, given, Unknown::Drop).unwrap();
            assert_eq!(value.pointer(at), Some(&expected), "{resource} {at}");
        }
    }

    #[test]
    fn unknown_fields_are_rejected_or_dropped() {
        let service = json!({ "spec": { "prots": [], "ports": [{ "port": 80, "nmae": "x" }] } });
        assert_eq!(
            completed(Resource::Services, service.clone(), Unknown::Reject).unwrap_err(),
            "Service in version \"v1\" cannot be handled as a Service: strict decoding error: unknown field \"spec.ports[0].nmae\", unknown field \"spec.prots\""
        );
        let service = completed(Resource::Services, service, Unknown::Drop).unwrap();
        assert_eq!(
            service["spec"]["ports"],
            json!([{ "port": 80, "protocol": "TCP", "targetPort": 80 }])
        );
        assert!(service["spec"].get("prots").is_none());
    }
}
