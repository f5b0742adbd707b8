//! Strategic merge patch: like JSON merge patch, but lists whose elements have a key are merged element by element, and
//! `$patch` and `$setElementOrder` steer the merge.

use serde_json::{Map, Value};

use crate::kinds::Resource;
use crate::status::Status;

/// How deep objects may nest.
const DEPTH: usize = 64;

/// Merges `patch` into `target`.
pub(super) fn apply(resource: Resource, target: &mut Value, patch: Value) -> Result<(), Status> {
    let Value::Object(patch) = patch else {
        return Err(Status::bad_request("error decoding patch: it is not an object"));
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    match target {
        Value::Object(map) => merge_maps(resource, "", map, patch, DEPTH),
        _ => Ok(()),
    }
}

/// The field that identifies an element of a list, `None` for lists that are replaced whole. Service ports are keyed by
/// number alone, as by kube-apiserver.
fn merge_key(resource: Resource, at: &str) -> Option<&'static str> {
    match (resource, at) {
        (Resource::Services, "spec.ports") => Some("port"),
        (_, "metadata.ownerReferences") => Some("uid"),
        (_, "status.conditions") | (Resource::Nodes, "status.addresses") => Some("type"),
        _ => None,
    }
}

fn merge_maps(
    resource: Resource,
    within: &str,
    target: &mut Map<String, Value>,
    mut patch: Map<String, Value>,
    depth: usize,
) -> Result<(), Status> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Status::bad_request("the patch nests too deep"));
    };
    match patch.remove("$patch").as_ref().map(Value::as_str) {
        Some(Some("replace")) => {
            *target = patch;
            return Ok(());
        }
        Some(Some("delete")) => {
            target.clear();
            return Ok(());
        }
        Some(Some("merge")) | None => {}
        Some(_) => return Err(Status::bad_request("unknown $patch directive")),
    }
    let orders = take_directives(&mut patch, "$setElementOrder/");
    for (field, value) in patch {
        let at = join(within, &field);
        merge_field(resource, &at, target, field, value, depth)?;
    }
    for (field, order) in orders {
        let at = join(within, &field);
        if let (Some(list), Some(order)) =
            (target.get_mut(&field).and_then(Value::as_array_mut), order.as_array())
        {
            sort(list, order, merge_key(resource, &at));
        }
    }
    Ok(())
}

fn merge_field(
    resource: Resource,
    at: &str,
    target: &mut Map<String, Value>,
    field: String,
    value: Value,
    depth: usize,
) -> Result<(), Status> {
    match value {
        Value::Null => drop(target.remove(&field)),
        Value::Object(patch) => {
            let inner = target.entry(field).or_insert_with(|| Value::Object(Map::new()));
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            if let Value::Object(map) = inner {
                merge_maps(resource, at, map, patch, depth)?;
            }
        }
        Value::Array(patch) => {
            let inner = target.entry(field).or_insert_with(|| Value::Array(Vec::new()));
            match (inner, merge_key(resource, at)) {
                (Value::Array(list), Some(key)) => merge_lists(resource, at, key, list, patch, depth)?,
                (inner, _) => *inner = Value::Array(patch),
            }
        }
        plain => drop(target.insert(field, plain)),
    }
    Ok(())
}

fn merge_lists(
    resource: Resource,
    at: &str,
    key: &str,
    list: &mut Vec<Value>,
    patch: Vec<Value>,
    depth: usize,
) -> Result<(), Status> {
    let directive = |value: &Value| value.get("$patch").and_then(Value::as_str).map(ToOwned::to_owned);
    if patch.iter().any(|element| directive(element).as_deref() == Some("replace")) {
        *list = patch.into_iter().filter(|element| directive(element).is_none()).collect();
        return Ok(());
    }
    for element in patch {
        let Value::Object(element) = element else {
            return Err(Status::bad_request(format!("an element of {at} is not an object")));
        };
        let Some(id) = element.get(key).cloned() else {
            let message =
                format!("map: {} does not contain declared merge key: {key}", Value::Object(element));
            return Err(Status::bad_request(message));
        };
        let position = list.iter().position(|other| other.get(key) == Some(&id));
        if element.get("$patch").and_then(Value::as_str) == Some("delete") {
            list.retain(|other| other.get(key) != Some(&id));
            continue;
        }
        if let Some(old) = position.and_then(|position| list.get_mut(position)?.as_object_mut()) {
            merge_maps(resource, at, old, element, depth)?;
        } else {
            let mut fresh = Map::new();
            merge_maps(resource, at, &mut fresh, element, depth)?;
            list.push(Value::Object(fresh));
        }
    }
    Ok(())
}

fn join(within: &str, field: &str) -> String {
    if within.is_empty() { field.to_owned() } else { format!("{within}.{field}") }
}

fn take_directives(patch: &mut Map<String, Value>, prefix: &str) -> Vec<(String, Value)> {
    let names: Vec<String> = patch.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
    names
        .into_iter()
        .filter_map(|name| {
            let value = patch.remove(&name)?;
            Some((name.strip_prefix(prefix)?.to_owned(), value))
        })
        .collect()
}

/// Puts the elements named in `order` into that order; those not named keep their place relative to the one before.
fn sort(list: &mut [Value], order: &[Value], key: Option<&str>) {
    let rank = |value: &Value| match key {
        Some(key) => {
            order.iter().position(|other| other.get(key).is_some() && other.get(key) == value.get(key))
        }
        None => order.iter().position(|other| other == value),
    };
    let mut current = 0;
    let mut ranked: Vec<(usize, Value)> = list
        .iter()
        .map(|value| {
            current = rank(value).unwrap_or(current);
            (current, value.clone())
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    for (place, (_, value)) in list.iter_mut().zip(ranked) {
        *place = value;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(target: Value, patch: Value) -> Value {
        let mut target = target;
        apply(Resource::Services, &mut target, patch).unwrap();
        target
    }

    #[test]
    fn service_ports_are_merged_by_number() {
        let service =
            json!({ "spec": { "ports": [{ "port": 80, "name": "http" }, { "port": 53, "name": "dns" }] } });
        let cases = [
            (
                json!({ "spec": { "ports": [{ "port": 80, "name": "web" }] } }),
                json!([{ "port": 80, "name": "web" }, { "port": 53, "name": "dns" }]),
            ),
            (
                json!({ "spec": { "ports": [{ "port": 80, "$patch": "delete" }, { "port": 81 }] } }),
                json!([{ "port": 53, "name": "dns" }, { "port": 81 }]),
            ),
            (
                json!({ "spec": { "$setElementOrder/ports": [{ "port": 53 }, { "port": 80 }] } }),
                json!([{ "port": 53, "name": "dns" }, { "port": 80, "name": "http" }]),
            ),
            (
                json!({ "spec": { "ports": [{ "$patch": "replace" }, { "port": 9 }] } }),
                json!([{ "port": 9 }]),
            ),
            (
                json!({ "spec": { "ports": [{ "port": 80, "name": null }] } }),
                json!([{ "port": 80 }, { "port": 53, "name": "dns" }]),
            ),
        ];
        for (patch, ports) in cases {
            assert_eq!(patched(service.clone(), patch)["spec"]["ports"], ports);
        }
    }

    #[test]
    fn maps_merge_and_other_lists_are_replaced() {
        let target = json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "spec": { "externalIPs": ["1", "2"] } });
        let patch =
            json!({ "metadata": { "labels": { "a": null, "c": "3" } }, "spec": { "externalIPs": ["3"] } });
        assert_eq!(
            patched(target, patch),
            json!({ "metadata": { "labels": { "b": "2", "c": "3" } }, "spec": { "externalIPs": ["3"] } })
        );
        let target = json!({ "spec": { "a": 1, "b": 2 } });
        assert_eq!(
            patched(target, json!({ "spec": { "$patch": "replace", "c": 3 } })),
            json!({ "spec": { "c": 3 } })
        );
    }

    #[test]
    fn what_cannot_be_merged_is_rejected() {
        let mut deep = json!({});
        for _ in 0..80 {
            deep = json!({ "a": deep });
        }
        let cases = [
            json!([]),
            json!({ "$patch": "other" }),
            json!({ "spec": { "ports": [{ "name": "x" }] } }),
            deep,
        ];
        for patch in cases {
            assert_eq!(apply(Resource::Services, &mut json!({}), patch).unwrap_err().code(), 400);
        }
    }
}
