//! Inference of missing `ipFamilies` and `ipFamilyPolicy`.

use k8s_openapi::api::core::v1::ServiceSpec;

use super::is_headless;

/// Sets `ipFamilies` and `ipFamilyPolicy` of a Service that is not of the type `ExternalName`. With
/// `SingleStack`, the second cluster IP and family are removed.
pub(super) fn settle(spec: &mut ServiceSpec, before: Option<&ServiceSpec>) {
    let is_headless_without_selector = is_headless(spec) && spec.selector.is_none();
    let policy = spec.ip_family_policy.take();
    let policy = policy.or_else(|| before.and_then(|before| before.ip_family_policy.clone()));
    let policy = policy.unwrap_or_else(|| {
        if is_headless_without_selector {
            "RequireDualStack"
        } else {
            "SingleStack"
        }
        .to_owned()
    });
    let mut families = infer(spec);
    if families.is_empty() {
        families.push("IPv4".to_owned());
    }
    if policy == "SingleStack" {
        families.truncate(1);
        spec.cluster_ips
            .iter_mut()
            .for_each(|list| list.truncate(1));
    } else if let [only] = families.as_slice() {
        let other = if only == "IPv4" { "IPv6" } else { "IPv4" };
        families.push(other.to_owned());
    }
    spec.ip_family_policy = Some(policy);
    spec.ip_families = Some(families);
}

/// The families in `ipFamilies`. If the Service has more cluster IPs than families, the families of
/// the remaining cluster IPs follow.
fn infer(spec: &ServiceSpec) -> Vec<String> {
    let given = spec.ip_families.iter().flatten().cloned();
    let addresses = spec
        .cluster_ips
        .iter()
        .flatten()
        .filter(|address| *address != "None");
    let of_addresses = addresses.map(|address| {
        if address.contains(':') {
            "IPv6"
        } else {
            "IPv4"
        }
        .to_owned()
    });
    given
        .chain(of_addresses.skip(spec.ip_families.as_ref().map_or(0, Vec::len)))
        .collect()
}
