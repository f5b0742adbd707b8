//! `ipFamilies` and `ipFamilyPolicy`: inferred where they are missing, rejected where they contradict the addresses.

use k8s_openapi::api::core::v1::ServiceSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;
use serde_json::json;

use super::{is_headless, reject_if};
use crate::status::invalid;

/// Settles both fields of a Service that has cluster IPs.
pub(super) fn settle(spec: &mut ServiceSpec, before: Option<&ServiceSpec>) -> Result<(), Vec<StatusCause>> {
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
    if single {
        reject_if(contradictions(spec, &families))?;
    }
    if families.is_empty() {
        families.push("IPv4".to_owned());
    }
    if let [only] = families.as_slice()
        && !single
    {
        let other = if only == "IPv4" { "IPv6" } else { "IPv4" };
        families.push(other.to_owned());
    }
    spec.ip_family_policy = Some(policy);
    spec.ip_families = Some(families);
    Ok(())
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

/// The reasons why a Service of these families cannot be single-stack.
fn contradictions(spec: &ServiceSpec, families: &[String]) -> Vec<StatusCause> {
    let two_addresses = spec.cluster_ips.as_ref().is_some_and(|list| list.len() > 1);
    let both = [(two_addresses, "cluster IPs"), (families.len() > 1, "IP families")];
    let cause = |(_, what)| {
        let why =
            format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
        invalid("spec.ipFamilyPolicy", &json!("SingleStack"), &why)
    };
    both.into_iter().filter(|(two, _)| *two).map(cause).collect()
}
