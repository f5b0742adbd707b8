//! `ipFamilies` and `ipFamilyPolicy`: what is inferred, and what contradicts itself or the cluster.

use ipnet::IpNet;
use k8s_openapi::api::core::v1::ServiceSpec;
use serde_json::json;

use super::{Rejection, is_headless, reject_if};
use crate::status::FieldError;

const POLICY: &str = "spec.ipFamilyPolicy";

/// Settles both fields of a Service that has cluster IPs.
pub(super) fn settle(
    spec: &mut ServiceSpec,
    before: Option<&ServiceSpec>,
    ranges: &[IpNet],
) -> Result<(), Rejection> {
    let anything_goes = is_headless(spec) && spec.selector.is_none();
    let policy = spec.ip_family_policy.take();
    let policy = policy.or_else(|| before.and_then(|before| before.ip_family_policy.clone()));
    let policy =
        policy.unwrap_or_else(|| if anything_goes { "RequireDualStack" } else { "SingleStack" }.to_owned());
    let single = policy == "SingleStack";
    if let Some(before) = before.filter(|_| single) {
        release_second(spec, before);
    }
    let mut families = infer(spec);
    reject_if(contradictions(spec, &policy, &families, if anything_goes { None } else { Some(ranges) }))?;
    if families.is_empty() {
        families.push(ranges.first().map_or("IPv4", |range| family_of_range(*range)).to_owned());
    }
    if let [only] = families.as_slice()
        && !single
        && (anything_goes || ranges.len() > 1)
    {
        let other = if only == "IPv4" { "IPv6" } else { "IPv4" };
        families.push(other.to_owned());
    }
    spec.ip_family_policy = Some(policy);
    spec.ip_families = Some(families);
    Ok(())
}

/// The range of a family.
pub(super) fn range_of(ranges: &[IpNet], family: &str) -> Option<IpNet> {
    ranges.iter().copied().find(|range| family_of_range(*range) == family)
}

fn family_of_range(range: IpNet) -> &'static str {
    if range.network().is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Going to a single stack releases the second address and family.
fn release_second(spec: &mut ServiceSpec, before: &ServiceSpec) {
    if spec.cluster_ips == before.cluster_ips {
        spec.cluster_ips.iter_mut().for_each(|list| list.truncate(1));
    }
    if spec.ip_families == before.ip_families {
        spec.ip_families.iter_mut().for_each(|list| list.truncate(1));
    }
}

/// Families as given, completed with those of the addresses given.
fn infer(spec: &ServiceSpec) -> Vec<String> {
    let mut families = spec.ip_families.clone().unwrap_or_default();
    let addresses = spec.cluster_ips.iter().flatten().skip(families.len());
    let inferred: Vec<String> = addresses
        .filter(|address| *address != "None")
        .map(|address| if address.contains(':') { "IPv6" } else { "IPv4" }.to_owned())
        .collect();
    families.extend(inferred);
    families
}

/// What is wrong with the policy and the families; `ranges` are those of the cluster, if it has to have them.
fn contradictions(
    spec: &ServiceSpec,
    policy: &str,
    families: &[String],
    ranges: Option<&[IpNet]>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let two_addresses = spec.cluster_ips.as_ref().is_some_and(|list| list.len() > 1);
    for (two, what) in [(two_addresses, "cluster IPs"), (families.len() > 1, "IP families")] {
        if two && policy == "SingleStack" {
            let why =
                format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.push(FieldError::invalid(POLICY, &json!(policy), why));
        }
    }
    let Some(ranges) = ranges else { return errors };
    if policy == "RequireDualStack" && ranges.len() < 2 {
        let why = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid(POLICY, &json!(policy), why));
    }
    for (index, family) in families.iter().enumerate() {
        if range_of(ranges, family).is_none() {
            let why = "not configured on this cluster";
            errors.push(FieldError::invalid(format!("spec.ipFamilies[{index}]"), &json!(family), why));
        }
    }
    errors
}
