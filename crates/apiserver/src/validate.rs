//! What kube-apiserver makes of an object before it stores it: the fields of its type, defaults, checks. Only what matters
//! to a DNS server is looked at.

mod endpoints;
pub(crate) mod names;
pub(crate) mod ports;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::allocate::Ledger;
use crate::kinds::{Kind, NameRule, Resource};
use crate::schema::{self, Unknown};
use crate::service::{self, Rejection};
use crate::status::{FieldError, Status};

/// The object as it is to be stored; `before` is the one it replaces.
pub(crate) fn complete(
    resource: Resource,
    value: Value,
    before: Option<&Value>,
    unknown: Unknown,
    (ranges, ledger): (&[IpNet], &mut Ledger),
) -> Result<Value, Status> {
    let kind = resource.kind();
    let value = schema::check(resource, value, unknown)?;
    let meta: ObjectMeta = value.get("metadata").and_then(|meta| schema::read(meta).ok()).unwrap_or_default();
    let name = meta.name.as_deref().unwrap_or_default();
    let invalid = |errors: &[FieldError]| Status::invalid(kind, name, errors);
    let errors = metadata(kind, &meta, before.is_none());
    if !errors.is_empty() {
        return Err(invalid(&errors));
    }
    let completed = match resource {
        Resource::Services => change(&value, |service: &mut Service| {
            let before = before.and_then(|before| schema::read(before).ok());
            service::complete(service, before.as_ref(), ranges, ledger)
        }),
        Resource::Endpoints => change(&value, endpoints::endpoints),
        Resource::EndpointSlices => change(&value, |slice| {
            let before = before.and_then(|before| schema::read(before).ok());
            endpoints::slice(slice, before.as_ref())
        }),
        Resource::Namespaces => change(&value, |object| {
            complete_namespace(object);
            Ok(())
        }),
        Resource::ConfigMaps => change(&value, config_map),
        Resource::Nodes | Resource::ServiceAccounts => Ok(value),
    };
    completed.map_err(|rejection| match rejection {
        Rejection::Fields(errors) => invalid(&errors),
        Rejection::Exhausted(why) => {
            Status::failure(500, Some("InternalError"), format!("Internal error occurred: {why}"))
        }
    })
}

/// Changes a value in the shape of its type.
fn change<T: DeserializeOwned + Serialize>(
    value: &Value,
    change: impl FnOnce(&mut T) -> Result<(), Rejection>,
) -> Result<Value, Rejection> {
    let unreadable = |error: serde_json::Error| {
        Rejection::Fields(vec![FieldError::invalid("object", &Value::Null, error.to_string())])
    };
    let mut typed: T = schema::read(value).map_err(unreadable)?;
    change(&mut typed)?;
    serde_json::to_value(&typed).map_err(unreadable)
}

fn metadata(kind: &Kind, meta: &ObjectMeta, new: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut check = |field: &str, text: &str, outcome: Result<(), &str>| {
        if let Err(why) = outcome {
            errors.push(FieldError::invalid(field, &json!(text), why));
        }
    };
    if new {
        let name = meta.name.as_deref().unwrap_or_default();
        check("metadata.name", name, names::check(kind.name_rule, name));
        if let Some(namespace) = &meta.namespace {
            check("metadata.namespace", namespace, names::check(NameRule::Label1123, namespace));
        }
    }
    for (label, value) in meta.labels.iter().flatten() {
        check("metadata.labels", label, names::is_qualified_name(label));
        check("metadata.labels", value, names::is_label_value(value));
    }
    errors
}

fn config_map(map: &mut ConfigMap) -> Result<(), Rejection> {
    let texts = map.data.iter().flatten().map(|(key, _)| ("data", key));
    let keys = texts.chain(map.binary_data.iter().flatten().map(|(key, _)| ("binaryData", key)));
    let wrong = keys.filter_map(|(field, key)| {
        let why = names::is_config_key(key).err()?;
        Some(FieldError::invalid(format!("{field}[{key}]"), &json!(key), why))
    });
    let errors: Vec<FieldError> = wrong.collect();
    if errors.is_empty() { Ok(()) } else { Err(Rejection::Fields(errors)) }
}

fn complete_namespace(namespace: &mut Namespace) {
    let meta = &mut namespace.metadata;
    let name = meta.name.clone().unwrap_or_default();
    meta.labels.get_or_insert_default().insert("kubernetes.io/metadata.name".to_owned(), name);
    let spec = namespace.spec.get_or_insert_default();
    spec.finalizers.get_or_insert_with(|| vec!["kubernetes".to_owned()]);
    let status = namespace.status.get_or_insert_default();
    status.phase.get_or_insert_with(|| "Active".to_owned());
}

#[cfg(test)]
mod tests;
