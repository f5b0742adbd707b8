//! `clusterIP` and `clusterIPs`: kept in step, and given to whoever has none.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::families::{range_of, refuse};
use super::{Refusal, has_cluster_ip, is_headless, texts};
use crate::allocate::{Ledger, assignable};
use crate::object::text;
use crate::status::FieldError;

/// Makes `clusterIPs` follow `clusterIP` where only that was set or changed.
pub(super) fn normalise(spec: &mut Map<String, Value>, before: Option<&Map<String, Value>>) {
    let first = text(spec, "clusterIP").to_owned();
    let changed = before.is_some_and(|before| text(before, "clusterIP") != first);
    let list_untouched = before.is_some_and(|before| before.get("clusterIPs") == spec.get("clusterIPs"));
    if first.is_empty() {
        if changed && list_untouched {
            spec.remove("clusterIPs");
        }
    } else if !spec.contains_key("clusterIPs") || (changed && list_untouched) {
        spec.insert("clusterIPs".to_owned(), json!([first]));
    }
}

/// Gives an address of each family to a Service that wants one, and checks those it chose itself.
pub(super) fn assign(
    spec: &mut Map<String, Value>,
    before: Option<&Map<String, Value>>,
    ranges: &[IpNet],
    ledger: &mut Ledger,
) -> Result<(), Refusal> {
    if !has_cluster_ip(spec) || is_headless(spec) {
        return Ok(());
    }
    let held: Vec<String> = before
        .map(|before| texts(before, "clusterIPs"))
        .into_iter()
        .flatten()
        .map(ToOwned::to_owned)
        .collect();
    let mut addresses: Vec<String> = texts(spec, "clusterIPs").into_iter().map(ToOwned::to_owned).collect();
    let mut errors = Vec::new();
    for (index, family) in texts(spec, "ipFamilies").into_iter().enumerate() {
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
                None => return Err(Refusal::Exhausted("failed to allocate a serviceIP: range is full")),
            },
        }
    }
    refuse(errors)?;
    if let Some(first) = addresses.first() {
        spec.insert("clusterIP".to_owned(), json!(first));
        spec.insert("clusterIPs".to_owned(), json!(addresses));
    }
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
