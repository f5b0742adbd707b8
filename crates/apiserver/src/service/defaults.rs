//! Fields that a Service gets when it does not say otherwise.

use serde_json::{Map, Value, json};

use crate::object::text;

/// Seconds a client sticks to an address with `sessionAffinity: ClientIP`.
const CLIENT_IP_SECONDS: u32 = 10_800;

/// Fills in what is missing.
pub(super) fn fill(spec: &mut Map<String, Value>) {
    spec.retain(|_, value| !is_empty(value));
    fill_text(spec, "type", "ClusterIP");
    fill_text(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "ClientIP" => {
            spec.entry("sessionAffinityConfig")
                .or_insert_with(|| json!({ "clientIP": { "timeoutSeconds": CLIENT_IP_SECONDS } }));
        }
        _ => drop(spec.remove("sessionAffinityConfig")),
    }
    let kind = text(spec, "type").to_owned();
    if kind != "ExternalName" {
        fill_text(spec, "internalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        fill_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        spec.entry("allocateLoadBalancerNodePorts").or_insert(json!(true));
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            fill_port(port);
        }
    }
}

fn fill_port(port: &mut Map<String, Value>) {
    port.retain(|_, value| !is_empty(value));
    fill_text(port, "protocol", "TCP");
    let unset = matches!(port.get("targetPort"), None | Some(Value::Null))
        || port.get("targetPort") == Some(&json!(0));
    if unset && let Some(number) = port.get("port").cloned() {
        port.insert("targetPort".to_owned(), number);
    }
    if port.get("nodePort") == Some(&json!(0)) {
        port.remove("nodePort");
    }
}

fn fill_text(map: &mut Map<String, Value>, field: &str, value: &str) {
    map.entry(field).or_insert_with(|| json!(value));
}

/// What Go leaves out when it writes an object.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}
