//! `ipFamilies` and `ipFamilyPolicy`: what is inferred, and what contradicts itself or the cluster.

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::{Refusal, has_cluster_ip, is_headless, texts};
use crate::object::text;
use crate::status::FieldError;

const POLICY: &str = "spec.ipFamilyPolicy";

/// Settles both fields. They are absent from ExternalName Services.
pub(super) fn settle(
    spec: &mut Map<String, Value>,
    before: Option<&Map<String, Value>>,
    ranges: &[IpNet],
) -> Result<(), Refusal> {
    if !has_cluster_ip(spec) {
        return Ok(());
    }
    infer_policy(spec, before);
    if let Some(before) = before {
        reduce(spec, before)?;
    }
    check_policy(spec)?;
    let mut families = infer_families(spec, ranges)?;
    let single = text(spec, "ipFamilyPolicy") == "SingleStack";
    let anything_goes = is_headless(spec) && !spec.contains_key("selector");
    if !anything_goes {
        check_cluster(spec, &families, ranges)?;
    }
    if families.is_empty() {
        families.push(default_family(ranges).to_owned());
    }
    if families.len() == 1 && !single && (anything_goes || ranges.len() > 1) {
        let other = if families.iter().any(|family| family == "IPv4") { "IPv6" } else { "IPv4" };
        families.push(other.to_owned());
    }
    spec.insert("ipFamilies".to_owned(), json!(families));
    Ok(())
}

/// The family of an address, as Kubernetes names it.
pub(crate) fn family_of(address: &str) -> &'static str {
    if address.contains(':') { "IPv6" } else { "IPv4" }
}

/// The range of a family.
pub(super) fn range_of(ranges: &[IpNet], family: &str) -> Option<IpNet> {
    ranges.iter().copied().find(|range| range_family(*range) == family)
}

fn range_family(range: IpNet) -> &'static str {
    if range.network().is_ipv4() { "IPv4" } else { "IPv6" }
}

fn default_family(ranges: &[IpNet]) -> &'static str {
    ranges.first().map_or("IPv4", |range| range_family(*range))
}

fn infer_policy(spec: &mut Map<String, Value>, before: Option<&Map<String, Value>>) {
    if spec.contains_key("ipFamilyPolicy") {
        return;
    }
    let kept = before.and_then(|before| before.get("ipFamilyPolicy")).cloned();
    let headless_without_selector = is_headless(spec) && !spec.contains_key("selector");
    let default = if headless_without_selector { "RequireDualStack" } else { "SingleStack" };
    spec.insert("ipFamilyPolicy".to_owned(), kept.unwrap_or_else(|| json!(default)));
}

/// Going to a single stack releases the second address and family; leaving one out without saying so is a mistake.
fn reduce(spec: &mut Map<String, Value>, before: &Map<String, Value>) -> Result<(), Refusal> {
    let mut errors = Vec::new();
    let single = text(spec, "ipFamilyPolicy") == "SingleStack";
    for (field, what) in [("clusterIPs", "secondary cluster IP"), ("ipFamilies", "secondary IP family")] {
        let (now, old) = (texts(spec, field).len(), texts(before, field).len());
        if single {
            if now > 1
                && spec.get(field) == before.get(field)
                && let Some(list) = spec.get_mut(field).and_then(Value::as_array_mut)
            {
                list.truncate(1);
            }
        } else if now > 0 && now < old && spec.get("clusterIP") == before.get("clusterIP") {
            let why = format!("must be 'SingleStack' to release the {what}");
            errors.push(FieldError::invalid(POLICY, &policy(spec), why));
        }
    }
    refuse(errors)
}

fn check_policy(spec: &Map<String, Value>) -> Result<(), Refusal> {
    let mut errors = Vec::new();
    if text(spec, "ipFamilyPolicy") == "SingleStack" {
        for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if texts(spec, field).len() == 2 {
                let why = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                );
                errors.push(FieldError::invalid(POLICY, &policy(spec), why));
            }
        }
    }
    refuse(errors)
}

/// Families as given, completed with those of the addresses given.
fn infer_families(spec: &Map<String, Value>, ranges: &[IpNet]) -> Result<Vec<String>, Refusal> {
    let mut families: Vec<String> = texts(spec, "ipFamilies").into_iter().map(ToOwned::to_owned).collect();
    let mut errors = Vec::new();
    for (index, address) in texts(spec, "clusterIPs").into_iter().enumerate().skip(families.len()) {
        if address == "None" {
            break;
        }
        let family = family_of(address);
        if range_of(ranges, family).is_none() {
            let value = spec.get("clusterIPs").cloned().unwrap_or_default();
            let why = format!("{family} is not configured on this cluster");
            errors.push(FieldError::invalid(format!("spec.clusterIPs[{index}]"), &value, why));
        }
        families.push(family.to_owned());
    }
    refuse(errors).map(|()| families)
}

fn check_cluster(spec: &Map<String, Value>, families: &[String], ranges: &[IpNet]) -> Result<(), Refusal> {
    let mut errors = Vec::new();
    if text(spec, "ipFamilyPolicy") == "RequireDualStack" && ranges.len() < 2 {
        let why = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid(POLICY, &policy(spec), why));
    }
    for (index, family) in families.iter().enumerate() {
        if range_of(ranges, family).is_none() {
            let why = "not configured on this cluster";
            errors.push(FieldError::invalid(format!("spec.ipFamilies[{index}]"), &json!(family), why));
        }
    }
    refuse(errors)
}

fn policy(spec: &Map<String, Value>) -> Value {
    spec.get("ipFamilyPolicy").cloned().unwrap_or_default()
}

pub(super) fn refuse(errors: Vec<FieldError>) -> Result<(), Refusal> {
    if errors.is_empty() { Ok(()) } else { Err(Refusal::Fields(errors)) }
}
