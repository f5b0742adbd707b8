//! What an updated Service keeps of the one before when the writer does not say, and what a change of type drops.

use serde_json::{Map, Value};

use super::{has_cluster_ip, kind};
use crate::object::text;

/// Carries over what was allocated, then drops what the type no longer has.
pub(super) fn carry_over(spec: &mut Map<String, Value>, before: Option<&Map<String, Value>>) {
    if let Some(before) = before {
        if has_cluster_ip(before) && has_cluster_ip(spec) {
            carry_cluster_ips(spec, before);
        }
        if has_node_ports(before) && has_node_ports(spec) {
            carry_node_ports(spec, before);
        }
        drop_of_other_types(spec, before);
    }
    if !has_cluster_ip(spec) && before.is_none_or(|before| !has_cluster_ip(before)) {
        // Nothing to drop: what an ExternalName Service says about addresses is for validation to refuse.
        return;
    }
    if !has_cluster_ip(spec) {
        spec.remove("internalTrafficPolicy");
    }
}

fn carry_cluster_ips(spec: &mut Map<String, Value>, before: &Map<String, Value>) {
    if text(spec, "clusterIP").is_empty() {
        copy(spec, before, "clusterIP");
    }
    if !spec.contains_key("clusterIPs") && spec.get("clusterIP") == before.get("clusterIP") {
        copy(spec, before, "clusterIPs");
    }
}

fn carry_node_ports(spec: &mut Map<String, Value>, before: &Map<String, Value>) {
    let known: Vec<&Map<String, Value>> = before
        .get("ports")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .collect();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(port) = port.as_object_mut() else { continue };
        if port.contains_key("nodePort") {
            continue;
        }
        let same = |other: &&&Map<String, Value>| {
            other.get("port") == port.get("port") && other.get("protocol") == port.get("protocol")
        };
        if let Some(number) = known.iter().find(same).and_then(|other| other.get("nodePort")).cloned() {
            port.insert("nodePort".to_owned(), number);
        }
    }
    if !spec.contains_key("healthCheckNodePort") {
        copy(spec, before, "healthCheckNodePort");
    }
}

/// Fields that stay only because the writer did not touch them do not survive a change of type.
fn drop_of_other_types(spec: &mut Map<String, Value>, before: &Map<String, Value>) {
    if has_cluster_ip(before) && !has_cluster_ip(spec) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            drop_unchanged(spec, before, field);
        }
    }
    if has_node_ports(before) && !has_node_ports(spec) {
        let known = before.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(port) = port.as_object_mut() else { continue };
            if known.iter().any(|other| other.get("nodePort") == port.get("nodePort")) {
                port.remove("nodePort");
            }
        }
        drop_unchanged(spec, before, "externalTrafficPolicy");
    }
    if kind(before) == "LoadBalancer" && kind(spec) != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"] {
            drop_unchanged(spec, before, field);
        }
    }
    if kind(before) == "ExternalName" && kind(spec) != "ExternalName" {
        drop_unchanged(spec, before, "externalName");
    }
}

pub(super) fn has_node_ports(spec: &Map<String, Value>) -> bool {
    matches!(kind(spec), "NodePort" | "LoadBalancer")
}

fn copy(spec: &mut Map<String, Value>, before: &Map<String, Value>, field: &str) {
    if let Some(value) = before.get(field) {
        spec.insert(field.to_owned(), value.clone());
    }
}

fn drop_unchanged(spec: &mut Map<String, Value>, before: &Map<String, Value>, field: &str) {
    if spec.get(field) == before.get(field) {
        spec.remove(field);
    }
}
