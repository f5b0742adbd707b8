//! Synchronization, validation and allocation of `clusterIP` and `clusterIPs`.
//!
//! The cluster is dual-stack: `10.96.0.0/16` is the first range, and `fd00:10:96::/112` is the
//! second.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_openapi::api::core::v1::ServiceSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;
use serde_json::json;

use super::{is_headless, reject_if};
use crate::object::Objects;
use crate::status::invalid;

const V4: u32 = u32::from_be_bytes([10, 96, 0, 0]);
const V6: u128 = 0xfd00_0010_0096 << 80;
/// The number of the last allocatable address in each range. The next number is the broadcast
/// address of the IPv4 range.
const LAST: u32 = 0xfffe;
/// Size of the lower part of each range. As on a real server, this part is allocated last, so that
/// clients can choose addresses there.
const STATIC_BAND: u32 = 256;

/// Sets `clusterIPs` from `clusterIP` if only `clusterIP` was set or changed.
pub(super) fn follow_first(spec: &mut ServiceSpec, before: Option<&ServiceSpec>) {
    let changed = before.is_some_and(|before| {
        before.cluster_ip != spec.cluster_ip && before.cluster_ips == spec.cluster_ips
    });
    if changed || spec.cluster_ips.is_none() {
        spec.cluster_ips = spec.cluster_ip.clone().map(|first| vec![first]);
    }
}

/// Allocates a missing address of each family, and validates addresses that the client set.
pub(super) fn assign(
    spec: &mut ServiceSpec,
    before: Option<&ServiceSpec>,
    services: &Objects,
) -> Result<(), Vec<StatusCause>> {
    if is_headless(spec) {
        return Ok(());
    }
    let taken: HashSet<IpAddr> = services
        .iter()
        .flat_map(|service| service.addresses())
        .copied()
        .collect();
    let held = before
        .and_then(|before| before.cluster_ips.as_deref())
        .unwrap_or_default();
    let mut addresses = spec.cluster_ips.clone().unwrap_or_default();
    let mut causes = Vec::new();
    let mut wrong =
        |why: &str, all: &[String]| causes.push(invalid("spec.clusterIPs", &json!(all), why));
    for (index, family) in spec.ip_families.iter().flatten().enumerate() {
        match addresses.get(index) {
            Some(chosen) if held.contains(chosen) => {}
            Some(chosen) => {
                if let Err(why) = check(chosen, family, &taken) {
                    wrong(
                        &format!("failed to allocate IP {chosen}: {why}"),
                        &addresses,
                    );
                }
            }
            None => match free(family, &taken) {
                Some(address) => addresses.push(address.to_string()),
                None => wrong("failed to allocate a serviceIP: range is full", &addresses),
            },
        }
    }
    reject_if(causes)?;
    spec.cluster_ip = addresses.first().cloned();
    spec.cluster_ips = Some(addresses);
    Ok(())
}

/// The address with this number in the range of an IP family.
pub(crate) fn nth(family: &str, number: u32) -> IpAddr {
    if family == "IPv6" {
        Ipv6Addr::from(V6 + u128::from(number)).into()
    } else {
        Ipv4Addr::from(V4 + number).into()
    }
}

/// The first free address of an IP family.
fn free(family: &str, taken: &HashSet<IpAddr>) -> Option<IpAddr> {
    let numbers = (STATIC_BAND + 1..=LAST).chain(1..=STATIC_BAND);
    numbers
        .map(|number| nth(family, number))
        .find(|address| !taken.contains(address))
}

fn check(chosen: &str, family: &str, taken: &HashSet<IpAddr>) -> Result<(), String> {
    let address: IpAddr = chosen.parse().map_err(|_| "not an address".to_owned())?;
    let number = match address {
        IpAddr::V4(address) => address.to_bits() & 0xffff,
        IpAddr::V6(address) => address.segments()[7].into(),
    };
    if number == 0 || number > LAST || nth(family, number) != address {
        let range = if family == "IPv6" {
            "fd00:10:96::/112"
        } else {
            "10.96.0.0/16"
        };
        return Err(format!(
            "the provided IP ({chosen}) is not in the valid range. The range of valid IPs is {range}"
        ));
    }
    if taken.contains(&address) {
        return Err("provided IP is already allocated".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_prefers_dynamic_band() {
        let mut taken = HashSet::new();
        assert_eq!(free("IPv4", &taken), Some("10.96.1.1".parse().unwrap()));
        let next = free("IPv6", &taken);
        assert_eq!(next, Some("fd00:10:96::101".parse().unwrap()));
        taken.extend((STATIC_BAND + 1..=LAST).map(|number| nth("IPv4", number)));
        assert_eq!(free("IPv4", &taken), Some("10.96.0.1".parse().unwrap()));
        taken.extend((1..=STATIC_BAND).map(|number| nth("IPv4", number)));
        assert_eq!(free("IPv4", &taken), None);
    }
}
