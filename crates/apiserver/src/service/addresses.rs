//! `clusterIP` and `clusterIPs`: kept in step, and given to a Service that has none.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::ServiceSpec;
use serde_json::json;

use super::families::range_of;
use super::{Rejection, is_headless, reject_if};
use crate::allocate::{Ledger, assignable};
use crate::status::FieldError;

/// Makes `clusterIPs` follow `clusterIP` where only that was set or changed.
pub(super) fn follow_first(spec: &mut ServiceSpec, before: Option<&ServiceSpec>) {
    let changed = before
        .is_some_and(|before| before.cluster_ip != spec.cluster_ip && before.cluster_ips == spec.cluster_ips);
    if changed || spec.cluster_ips.is_none() {
        spec.cluster_ips = spec.cluster_ip.clone().map(|first| vec![first]);
    }
}

/// Gives an address of each family to a Service that wants one, and checks those it chose itself.
pub(super) fn assign(
    spec: &mut ServiceSpec,
    before: Option<&ServiceSpec>,
    ranges: &[IpNet],
    ledger: &mut Ledger,
) -> Result<(), Rejection> {
    if is_headless(spec) {
        return Ok(());
    }
    let held = before.and_then(|before| before.cluster_ips.as_deref()).unwrap_or_default();
    let mut addresses = spec.cluster_ips.clone().unwrap_or_default();
    let mut errors = Vec::new();
    for (index, family) in spec.ip_families.iter().flatten().enumerate() {
        let Some(range) = range_of(ranges, family) else { continue };
        match addresses.get(index) {
            Some(chosen) if held.contains(chosen) => {}
            Some(chosen) => {
                if let Err(why) = check(chosen, range, ledger) {
                    let why = format!("failed to allocate IP {chosen}: {why}");
                    errors.push(FieldError::invalid("spec.clusterIPs", &json!(addresses), why));
                }
            }
            None => match ledger.next_address(range) {
                Some(address) => addresses.push(address.to_string()),
                None => return Err(Rejection::Exhausted("failed to allocate a serviceIP: range is full")),
            },
        }
    }
    reject_if(errors)?;
    spec.cluster_ip = addresses.first().cloned();
    spec.cluster_ips = Some(addresses);
    Ok(())
}

fn check(chosen: &str, range: IpNet, ledger: &Ledger) -> Result<(), String> {
    let address: IpAddr = chosen.parse().map_err(|_| "not an address".to_owned())?;
    if !assignable(range, address) {
        return Err(format!(
            "the provided IP ({chosen}) is not in the valid range. The range of valid IPs is {range}"
        ));
    }
    if ledger.has_address(address) {
        return Err("provided IP is already allocated".to_owned());
    }
    Ok(())
}
