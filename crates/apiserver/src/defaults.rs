//! Fields that objects other than Services get when they do not say otherwise.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::kinds::Resource;

/// Fills in what is missing in an object about to be stored. Services are completed by [`crate::service`].
pub(crate) fn fill(resource: Resource, value: &mut Value) {
    let Some(map) = value.as_object_mut() else { return };
    match resource {
        Resource::Endpoints => endpoints(map),
        Resource::EndpointSlices => slice(map),
        Resource::Namespaces => namespace(map),
        Resource::Pods => pod(map),
        Resource::Secrets => secret(map),
        Resource::Services => service_status(map),
        _ => {}
    }
}

fn endpoints(map: &mut Map<String, Value>) {
    map.retain(|field, value| field != "subsets" || value.as_array().is_none_or(|list| !list.is_empty()));
    for subset in objects(map.get_mut("subsets")) {
        ports(subset);
    }
}

fn slice(map: &mut Map<String, Value>) {
    map.entry("endpoints").or_insert(Value::Null);
    map.entry("ports").or_insert(Value::Null);
    for endpoint in objects(map.get_mut("endpoints")) {
        let conditions = endpoint.entry("conditions").or_insert_with(|| json!({}));
        if let Some(conditions) = conditions.as_object_mut() {
            fill_in(conditions, "ready", json!(true));
        }
    }
    ports(map);
    for port in objects(map.get_mut("ports")) {
        fill_in(port, "name", json!(""));
    }
}

fn namespace(map: &mut Map<String, Value>) {
    let name = map.get("metadata").and_then(|meta| meta.get("name")).cloned().unwrap_or_default();
    if let Some(meta) = map.get_mut("metadata").and_then(Value::as_object_mut) {
        let labels = meta.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert("kubernetes.io/metadata.name".to_owned(), name);
        }
    }
    fill_in(map, "spec", json!({ "finalizers": ["kubernetes"] }));
    fill_in(map, "status", json!({ "phase": "Active" }));
}

fn pod(map: &mut Map<String, Value>) {
    if let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) {
        fill_in(spec, "restartPolicy", json!("Always"));
        fill_in(spec, "dnsPolicy", json!("ClusterFirst"));
    }
    fill_in(map, "status", json!({}));
    if let Some(status) = map.get_mut("status").and_then(Value::as_object_mut) {
        fill_in(status, "phase", json!("Pending"));
    }
}

/// `stringData` is only for writing: it ends up in `data`.
fn secret(map: &mut Map<String, Value>) {
    fill_in(map, "type", json!("Opaque"));
    let Some(Value::Object(plain)) = map.remove("stringData") else { return };
    fill_in(map, "data", json!({}));
    if let Some(data) = map.get_mut("data").and_then(Value::as_object_mut) {
        let encoded = |value: Value| json!(STANDARD.encode(value.as_str().unwrap_or_default()));
        data.extend(plain.into_iter().map(|(key, value)| (key, encoded(value))));
    }
}

fn service_status(map: &mut Map<String, Value>) {
    let status = map.entry("status").or_insert_with(|| json!({}));
    if let Some(status) = status.as_object_mut() {
        fill_in(status, "loadBalancer", json!({}));
    }
}

fn ports(map: &mut Map<String, Value>) {
    for port in objects(map.get_mut("ports")) {
        fill_in(port, "protocol", json!("TCP"));
    }
}

fn objects(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

fn fill_in(map: &mut Map<String, Value>, field: &str, value: Value) {
    let current = map.entry(field).or_insert(Value::Null);
    if current.is_null() {
        *current = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_in_like_a_real_server() {
        let cases = [
            (
                Resource::Endpoints,
                json!({ "subsets": [{ "ports": [{ "port": 1 }] }] }),
                json!({ "subsets": [{ "ports": [{ "port": 1, "protocol": "TCP" }] }] }),
            ),
            (
                Resource::EndpointSlices,
                json!({ "endpoints": [{ "addresses": ["a"] }], "ports": [{ "port": 1 }] }),
                json!({
                    "endpoints": [{ "addresses": ["a"], "conditions": { "ready": true } }],
                    "ports": [{ "port": 1, "protocol": "TCP", "name": "" }],
                }),
            ),
            (
                Resource::Secrets,
                json!({ "stringData": { "a": "b" } }),
                json!({ "type": "Opaque", "data": { "a": "Yg==" } }),
            ),
            (Resource::Services, json!({}), json!({ "status": { "loadBalancer": {} } })),
            (
                Resource::Namespaces,
                json!({ "metadata": { "name": "a" } }),
                json!({
                    "metadata": { "name": "a", "labels": { "kubernetes.io/metadata.name": "a" } },
                    "spec": { "finalizers": ["kubernetes"] },
                    "status": { "phase": "Active" },
                }),
            ),
        ];
        for (resource, mut given, expected) in cases {
            fill(resource, &mut given);
            assert_eq!(given, expected);
        }
    }
}
