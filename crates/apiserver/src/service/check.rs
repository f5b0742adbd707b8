//! Validation of a Service's spec, with the rules of kube-apiserver that matter to a DNS server.

use k8s_openapi::api::core::v1::ServiceSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;
use serde_json::json;

use super::{has_cluster_ip, is_headless};
use crate::names;
use crate::status::{invalid, not_supported, required};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

/// Returns the invalid fields of a spec. The defaults of the spec are already set. `before` is the
/// stored spec that an update replaces; `None` for a new Service.
pub(super) fn spec(spec: &ServiceSpec, before: Option<&ServiceSpec>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if let Some(other) = spec.type_.as_deref().filter(|name| !TYPES.contains(name)) {
        causes.push(not_supported("spec.type", other, &TYPES));
    }
    if has_cluster_ip(spec) {
        cluster_ips(spec, before, &mut causes);
    } else {
        external_name(spec, &mut causes);
    }
    ports(spec, &mut causes);
    causes
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

/// Checks that an update replaces no cluster IP with another one.
fn cluster_ips(spec: &ServiceSpec, before: Option<&ServiceSpec>, causes: &mut Vec<StatusCause>) {
    let now = spec.cluster_ips.as_deref().unwrap_or_default();
    let old = before
        .and_then(|before| before.cluster_ips.as_deref())
        .unwrap_or_default();
    let pairs = now.iter().zip(old).enumerate();
    for (index, _) in pairs.filter(|(_, (now, old))| now != old) {
        let field = format!("spec.clusterIPs[{index}]");
        causes.push(invalid(field, &json!(now), "may not change once set"));
    }
}

fn ports(spec: &ServiceSpec, causes: &mut Vec<StatusCause>) {
    let ports = spec.ports.as_deref().unwrap_or_default();
    if ports.is_empty() && !is_headless(spec) && has_cluster_ip(spec) {
        causes.push(required("spec.ports", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        if !(1..=65_535).contains(&port.port) {
            let why = "must be between 1 and 65535, inclusive";
            causes.push(invalid(
                format!("spec.ports[{index}].port"),
                &json!(port.port),
                why,
            ));
        }
        if port.name.is_none() && ports.len() > 1 {
            causes.push(required(format!("spec.ports[{index}].name"), ""));
        }
    }
}
