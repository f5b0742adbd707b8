//! Completion of Services as in kube-apiserver: defaults, IP families, cluster IPs. Node ports are
//! stored, not allocated.
//!
//! [`complete`] sets the defaults, keeps the cluster IPs and the IP family policy if an update
//! omits them, validates the spec, and assigns IP families and cluster IPs. The errors use the
//! field paths of kube-apiserver, such as `spec.clusterIPs`.

mod addresses;
mod check;
mod families;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

pub(crate) use self::addresses::nth;
use crate::object::Objects;

/// Completes a Service, or returns its invalid fields. `before` is the stored Service that an
/// update replaces; `services` are all stored Services.
pub(crate) fn complete(
    service: &mut Service,
    before: Option<&Service>,
    services: &Objects,
) -> Result<(), Vec<StatusCause>> {
    let spec = service.spec.get_or_insert_default();
    let before = before.and_then(|before| before.spec.as_ref());
    fill_defaults(spec);
    carry_over(spec, before);
    addresses::follow_first(spec, before);
    reject_if(check::spec(spec, before))?;
    if has_cluster_ip(spec) {
        families::settle(spec, before);
        addresses::assign(spec, before, services)?;
    }
    service
        .status
        .get_or_insert_default()
        .load_balancer
        .get_or_insert_default();
    Ok(())
}

fn fill_defaults(spec: &mut ServiceSpec) {
    let texts = [
        &mut spec.cluster_ip,
        &mut spec.external_name,
        &mut spec.ip_family_policy,
        &mut spec.type_,
    ];
    for text in texts {
        text.take_if(|text| text.is_empty());
    }
    spec.cluster_ips.take_if(|list| list.is_empty());
    spec.ip_families.take_if(|list| list.is_empty());
    spec.ports.take_if(|list| list.is_empty());
    spec.selector.take_if(|map| map.is_empty());
    spec.type_.get_or_insert_with(|| "ClusterIP".to_owned());
    spec.session_affinity
        .get_or_insert_with(|| "None".to_owned());
    if has_cluster_ip(spec) {
        spec.internal_traffic_policy
            .get_or_insert_with(|| "Cluster".to_owned());
    }
    for port in spec.ports.iter_mut().flatten() {
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
        port.target_port
            .take_if(|target| *target == IntOrString::Int(0));
        port.target_port.get_or_insert(IntOrString::Int(port.port));
        port.node_port.take_if(|number| *number == 0);
        port.name.take_if(|name| name.is_empty());
    }
}

/// Keeps the cluster IPs that an update omits, and drops fields that a Service of this type does
/// not have.
fn carry_over(spec: &mut ServiceSpec, before: Option<&ServiceSpec>) {
    if !has_cluster_ip(spec) {
        (spec.cluster_ip, spec.cluster_ips) = (None, None);
        (spec.ip_families, spec.ip_family_policy) = (None, None);
        spec.internal_traffic_policy = None;
        return;
    }
    spec.external_name = None;
    let Some(before) = before else { return };
    if spec.cluster_ip.is_none() {
        spec.cluster_ip.clone_from(&before.cluster_ip);
    }
    if spec.cluster_ips.is_none() && spec.cluster_ip == before.cluster_ip {
        spec.cluster_ips.clone_from(&before.cluster_ips);
    }
}

/// Whether a Service with this spec has a `clusterIP`. A headless Service has one too: the string
/// `"None"`.
fn has_cluster_ip(spec: &ServiceSpec) -> bool {
    spec.type_.as_deref() != Some("ExternalName")
}

/// Whether the Service is headless: its `clusterIP` is the string `"None"`.
fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ip.as_deref() == Some("None")
}

fn reject_if(causes: Vec<StatusCause>) -> Result<(), Vec<StatusCause>> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(causes)
    }
}

#[cfg(test)]
mod tests;
