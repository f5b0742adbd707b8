//! The slices that say the same as an Endpoints object.

use serde_json::{Map, Value, json};

use super::{MANAGER, MANAGER_LABEL, SERVICE_LABEL};
use crate::object::{Object, text};

/// Their names and contents: one per subset and family.
pub(super) fn of(endpoints: &Object) -> Vec<(String, Value)> {
    let value = endpoints.value();
    let mut slices = Vec::new();
    for (index, subset) in list(&value, "subsets").iter().enumerate() {
        for family in ["IPv4", "IPv6"] {
            let found = addresses(subset, family);
            if found.is_empty() {
                continue;
            }
            let name = format!("{}-{}-{index}", endpoints.name(), family.to_lowercase());
            let slice = json!({
                "metadata": metadata(&name, endpoints, &value),
                "addressType": family,
                "endpoints": found,
                "ports": subset.get("ports"),
            });
            slices.push((name, slice));
        }
    }
    slices
}

fn metadata(name: &str, endpoints: &Object, value: &Value) -> Value {
    let mut labels =
        value.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default();
    labels.insert(SERVICE_LABEL.to_owned(), json!(endpoints.name()));
    labels.insert(MANAGER_LABEL.to_owned(), json!(MANAGER));
    json!({
        "name": name,
        "labels": labels,
        "ownerReferences": [{
            "apiVersion": "v1", "kind": "Endpoints", "name": endpoints.name(), "uid": endpoints.uid(),
            "blockOwnerDeletion": true, "controller": true,
        }],
    })
}

fn addresses(subset: &Value, family: &str) -> Vec<Value> {
    let ready = list(subset, "addresses").iter().map(|address| (address, true));
    let not_ready = list(subset, "notReadyAddresses").iter().map(|address| (address, false));
    ready
        .chain(not_ready)
        .filter_map(|(address, ready)| endpoint(address.as_object()?, family, ready))
        .collect()
}

fn endpoint(address: &Map<String, Value>, family: &str, ready: bool) -> Option<Value> {
    let ip = text(address, "ip");
    if ip.contains(':') != (family == "IPv6") {
        return None;
    }
    let mut endpoint = json!({ "addresses": [ip], "conditions": { "ready": ready } });
    for field in ["hostname", "nodeName", "targetRef"] {
        if let Some(value) = address.get(field) {
            endpoint[field] = value.clone();
        }
    }
    Some(endpoint)
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
