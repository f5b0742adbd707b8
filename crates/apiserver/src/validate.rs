//! Which objects a real server would refuse, and in which words. Only the fields that matter to a DNS server are looked at.

pub(crate) mod endpoints;
pub(crate) mod names;
pub(crate) mod service;

use serde_json::{Map, Value, json};

use crate::kinds::{Kind, Resource};
use crate::object::text;
use crate::status::FieldError;
use names::{is_label_value, is_qualified_name};

/// Everything wrong with an object of `kind` that is about to be stored; `before` is the one it replaces.
pub(crate) fn object(kind: &Kind, value: &Value, before: Option<&Value>) -> Vec<FieldError> {
    let Some(map) = value.as_object() else { return vec![FieldError::required("metadata", "")] };
    let mut errors = Vec::new();
    if before.is_none() {
        metadata_name(kind, map, &mut errors);
    }
    label_values(map, &mut errors);
    match kind.resource {
        Resource::Endpoints => endpoints::endpoints(map, &mut errors),
        Resource::EndpointSlices => endpoints::slice(map, before, &mut errors),
        Resource::ConfigMaps | Resource::Secrets => config_keys(map, &mut errors),
        Resource::Pods => pod(map, &mut errors),
        _ => {}
    }
    errors
}

fn metadata_name(kind: &Kind, map: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let Some(meta) = map.get("metadata").and_then(Value::as_object) else { return };
    if let Err(why) = names::check(kind.name_rule, text(meta, "name")) {
        errors.push(FieldError::invalid("metadata.name", &json!(text(meta, "name")), why));
    }
    let namespace = text(meta, "namespace");
    if kind.namespaced
        && let Err(why) = names::check(crate::kinds::NameRule::Label1123, namespace)
    {
        errors.push(FieldError::invalid("metadata.namespace", &json!(namespace), why));
    }
}

fn label_values(map: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let labels = map.get("metadata").and_then(|meta| meta.get("labels"));
    for (label, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        if let Err(why) = is_qualified_name(label) {
            errors.push(FieldError::invalid("metadata.labels", &json!(label), why));
        }
        match value.as_str() {
            Some(value) => {
                if let Err(why) = is_label_value(value) {
                    errors.push(FieldError::invalid("metadata.labels", &json!(value), why));
                }
            }
            None => errors.push(FieldError::invalid("metadata.labels", value, "must be a string")),
        }
    }
}

fn config_keys(map: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    for field in ["data", "binaryData"] {
        for (key, value) in map.get(field).and_then(Value::as_object).into_iter().flatten() {
            if let Err(why) = names::is_config_key(key) {
                errors.push(FieldError::invalid(format!("{field}[{key}]"), &json!(key), why));
            }
            if !value.is_string() {
                errors.push(FieldError::invalid(format!("{field}[{key}]"), value, "must be a string"));
            }
        }
    }
}

fn pod(map: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let containers = map.get("spec").and_then(|spec| spec.get("containers")).and_then(Value::as_array);
    if containers.is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.containers", ""));
    }
}
