//! Node ports of Services that have them.

use serde_json::{Map, Value, json};

use super::Refusal;
use super::families::refuse;
use super::keep::has_node_ports;
use crate::allocate::{Ledger, node_port_in_range};
use crate::object::text;
use crate::status::FieldError;

/// Gives a node port to every port that has none, and checks those chosen.
pub(super) fn assign(
    spec: &mut Map<String, Value>,
    before: Option<&Map<String, Value>>,
    ledger: &Ledger,
) -> Result<(), Refusal> {
    if !has_node_ports(spec) {
        return Ok(());
    }
    let held = node_ports(before);
    let mut taken = node_ports(Some(spec));
    check(&taken, &held, ledger)?;
    if spec.get("allocateLoadBalancerNodePorts") != Some(&json!(false)) {
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(port) = port.as_object_mut().filter(|port| !port.contains_key("nodePort")) else {
                continue;
            };
            let number = next(ledger, &taken)?;
            taken.push(number);
            port.insert("nodePort".to_owned(), json!(number));
        }
    }
    let local = text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local";
    if local && !spec.contains_key("healthCheckNodePort") {
        spec.insert("healthCheckNodePort".to_owned(), json!(next(ledger, &taken)?));
    }
    Ok(())
}

fn next(ledger: &Ledger, taken: &[u16]) -> Result<u16, Refusal> {
    ledger.next_node_port(taken).ok_or(Refusal::Exhausted("failed to allocate a nodePort: range is full"))
}

fn check(chosen: &[u16], held: &[u16], ledger: &Ledger) -> Result<(), Refusal> {
    let mut errors = Vec::new();
    for (index, port) in chosen.iter().enumerate().filter(|(_, port)| !held.contains(port)) {
        let field = format!("spec.ports[{index}].nodePort");
        if !node_port_in_range(*port) {
            let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
            errors.push(FieldError::invalid(field, &json!(port), why));
        } else if ledger.has_node_port(*port) {
            errors.push(FieldError::invalid(field, &json!(port), "provided port is already allocated"));
        }
    }
    refuse(errors)
}

fn node_ports(spec: Option<&Map<String, Value>>) -> Vec<u16> {
    let ports = spec.and_then(|spec| spec.get("ports")).and_then(Value::as_array).into_iter().flatten();
    ports.filter_map(|port| u16::try_from(port.get("nodePort")?.as_u64()?).ok()).collect()
}
