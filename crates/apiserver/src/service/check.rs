//! The spec of a Service as far as kube-apiserver rejects it and a DNS server would notice.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;
use serde_json::json;

use super::{has_cluster_ip, is_headless};
use crate::names;
use crate::status::{duplicate, invalid, not_supported, required};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Everything wrong with a defaulted spec; `before` is that of the Service it replaces.
pub(super) fn spec(spec: &ServiceSpec, before: Option<&ServiceSpec>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    one_of("spec.type", spec.type_.as_deref(), &TYPES, &mut causes);
    one_of("spec.ipFamilyPolicy", spec.ip_family_policy.as_deref(), &POLICIES, &mut causes);
    for family in spec.ip_families.iter().flatten() {
        one_of("spec.ipFamilies", Some(family), &FAMILIES, &mut causes);
    }
    ports(spec, &mut causes);
    if has_cluster_ip(spec) {
        cluster_ips(spec, before, &mut causes);
    } else {
        external_name(spec, &mut causes);
    }
    causes
}

fn one_of(field: &str, value: Option<&str>, allowed: &[&str], causes: &mut Vec<StatusCause>) {
    if let Some(value) = value.filter(|value| !allowed.contains(value)) {
        causes.push(not_supported(field, value, allowed));
    }
}

fn external_name(spec: &ServiceSpec, causes: &mut Vec<StatusCause>) {
    match spec.external_name.as_deref() {
        None => causes.push(required("spec.externalName", "")),
        Some(name) => {
            if let Err(why) = names::subdomain(name.strip_suffix('.').unwrap_or(name)) {
                causes.push(invalid("spec.externalName", &json!(name), why));
            }
        }
    }
}

/// The addresses and the first family stay, unless the type changes to or from one without.
fn cluster_ips(spec: &ServiceSpec, before: Option<&ServiceSpec>, causes: &mut Vec<StatusCause>) {
    let addresses = spec.cluster_ips.as_deref().unwrap_or_default();
    let mut wrong = |field: &str, why: &str| causes.push(invalid(field, &json!(addresses), why));
    if spec.cluster_ip.as_ref() != addresses.first() {
        wrong("spec.clusterIPs", "first value must match `clusterIP`");
    }
    if addresses.len() > 2 {
        wrong("spec.clusterIPs", "may only hold up to 2 values");
    }
    let families = spec.ip_families.as_deref().unwrap_or_default();
    let before = before.filter(|before| has_cluster_ip(before));
    let old = before.and_then(|before| before.cluster_ips.as_deref()).unwrap_or_default();
    for (index, address) in addresses.iter().enumerate() {
        let field = format!("spec.clusterIPs[{index}]");
        match (address.parse::<IpAddr>(), families.get(index)) {
            (Err(_), _) if !is_headless(spec) => {
                wrong(&field, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
            }
            (Ok(ip), Some(family)) if ip.is_ipv4() != (family == "IPv4") => {
                wrong(&field, &format!("expected an {family} value as indicated by `ipFamilies[{index}]`"));
            }
            _ => {}
        }
        if old.get(index).is_some_and(|old| old != address) {
            wrong(&field, "may not change once set");
        }
    }
    let first = before.and_then(|before| before.ip_families.as_ref()?.first());
    if before.is_some_and(|before| !is_headless(before))
        && let (Some(now), Some(old)) = (families.first(), first)
        && now != old
    {
        causes.push(invalid("spec.ipFamilies[0]", &json!(families), "may not change once set"));
    }
}

fn ports(spec: &ServiceSpec, causes: &mut Vec<StatusCause>) {
    let ports = spec.ports.as_deref().unwrap_or_default();
    if ports.is_empty() && !is_headless(spec) && has_cluster_ip(spec) {
        causes.push(required("spec.ports", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        let at = format!("spec.ports[{index}]");
        let earlier = ports.get(..index).unwrap_or_default();
        one_of(&format!("{at}.protocol"), port.protocol.as_deref(), &PROTOCOLS, causes);
        if !(1..=65_535).contains(&port.port) {
            let why = "must be between 1 and 65535, inclusive";
            causes.push(invalid(format!("{at}.port"), &json!(port.port), why));
        }
        port_name(&format!("{at}.name"), port, earlier, ports.len() > 1, causes);
        if earlier.iter().any(|other| other.port == port.port && other.protocol == port.protocol) {
            let value = json!({ "port": port.port, "protocol": port.protocol });
            causes.push(duplicate(at, &value));
        }
    }
}

fn port_name(
    field: &str,
    port: &ServicePort,
    earlier: &[ServicePort],
    is_required: bool,
    causes: &mut Vec<StatusCause>,
) {
    match port.name.as_deref() {
        None if is_required => causes.push(required(field, "")),
        None => {}
        Some(name) => {
            if let Err(why) = names::label_1123(name) {
                causes.push(invalid(field, &json!(name), why));
            }
            if earlier.iter().any(|other| other.name == port.name) {
                causes.push(duplicate(field, &json!(name)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_read_like_those_of_a_real_server() {
        let port = json!({ "port": 80, "protocol": "TCP" });
        let cases = [
            (json!({}), "spec.ports: Required value"),
            (
                json!({ "type": "Wrong", "ports": [port] }),
                "spec.type: Unsupported value: \"Wrong\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
            ),
            (
                json!({ "ports": [{ "port": 70000, "protocol": "TCP" }] }),
                "spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ),
            (json!({ "ports": [port, port] }), "spec.ports[0].name: Required value"),
            (json!({ "ports": [port, port] }), "spec.ports[1]: Duplicate value"),
            (json!({ "type": "ExternalName" }), "spec.externalName: Required value"),
            (
                json!({ "type": "ExternalName", "externalName": "a_b" }),
                "spec.externalName: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain",
            ),
            (
                json!({ "clusterIP": "x", "clusterIPs": ["x"], "ports": [port] }),
                "spec.clusterIPs[0]: Invalid value: [\"x\"]: must be a valid IP address",
            ),
            (
                json!({ "clusterIP": "1.2.3.4", "clusterIPs": ["4.3.2.1"], "ports": [port] }),
                "first value must match `clusterIP`",
            ),
            (
                json!({ "ipFamilies": ["IPv5"], "ports": [port] }),
                "spec.ipFamilies: Unsupported value: \"IPv5\"",
            ),
        ];
        for (value, message) in cases {
            let wrong = spec(&serde_json::from_value(value.clone()).unwrap(), None);
            let text =
                crate::status::Status::invalid(crate::Resource::Services.kind(), "x", wrong).to_string();
            assert!(text.contains(message), "{value}\n  {text}");
        }
    }

    #[test]
    fn valid_specs_pass() {
        for value in [
            json!({ "clusterIP": "None", "clusterIPs": ["None"] }),
            json!({ "ports": [{ "port": 80, "protocol": "TCP", "targetPort": "http" }] }),
            json!({ "type": "ExternalName", "externalName": "www.outside.test." }),
        ] {
            assert!(spec(&serde_json::from_value(value.clone()).unwrap(), None).is_empty(), "{value}");
        }
    }
}
