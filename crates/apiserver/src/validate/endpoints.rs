//! Endpoints and EndpointSlices: defaults, and what kube-apiserver rejects.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use serde_json::json;

use super::names;
use super::ports::{check_name, check_number, check_protocol};
use crate::service::Rejection;
use crate::status::FieldError;

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];

/// Completes and checks an Endpoints object.
pub(super) fn endpoints(endpoints: &mut Endpoints) -> Result<(), Rejection> {
    endpoints.subsets.take_if(|subsets| subsets.is_empty());
    let mut errors = Vec::new();
    for (index, subset) in endpoints.subsets.iter_mut().flatten().enumerate() {
        for port in subset.ports.iter_mut().flatten() {
            port.protocol.get_or_insert_with(|| "TCP".to_owned());
        }
        check_subset(&format!("subsets[{index}]"), subset, &mut errors);
    }
    if errors.is_empty() { Ok(()) } else { Err(Rejection::Fields(errors)) }
}

/// Completes and checks an `EndpointSlice`; `before` is the one it replaces.
pub(super) fn slice(slice: &mut EndpointSlice, before: Option<&EndpointSlice>) -> Result<(), Rejection> {
    let family = slice.address_type.as_str();
    let mut errors = Vec::new();
    if family.is_empty() {
        errors.push(FieldError::required("addressType", ""));
    } else if !ADDRESS_TYPES.contains(&family) {
        errors.push(FieldError::not_supported("addressType", &json!(family), &ADDRESS_TYPES));
    }
    if before.is_some_and(|before| before.address_type != family) {
        errors.push(FieldError::invalid("addressType", &json!(family), "field is immutable"));
    }
    for (index, endpoint) in slice.endpoints.iter_mut().enumerate() {
        endpoint.conditions.get_or_insert_default().ready.get_or_insert(true);
        check_endpoint(&format!("endpoints[{index}]"), endpoint, family, &mut errors);
    }
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in slice.ports.iter_mut().flatten().enumerate() {
        let at = format!("ports[{index}]");
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
        let name = port.name.get_or_insert_default().as_str();
        check_name(&at, Some(name), names.contains(&""), &names, &mut errors);
        check_protocol(&at, port.protocol.as_deref(), &mut errors);
        names.push(name);
    }
    if errors.is_empty() { Ok(()) } else { Err(Rejection::Fields(errors)) }
}

fn check_subset(at: &str, subset: &EndpointSubset, errors: &mut Vec<FieldError>) {
    let (ready, not_ready) = (subset.addresses.as_deref(), subset.not_ready_addresses.as_deref());
    let (ready, not_ready) = (ready.unwrap_or_default(), not_ready.unwrap_or_default());
    if ready.is_empty() && not_ready.is_empty() {
        errors.push(FieldError::required(at, "must specify `addresses` or `notReadyAddresses`"));
    }
    for (field, addresses) in [("addresses", ready), ("notReadyAddresses", not_ready)] {
        for (index, address) in addresses.iter().enumerate() {
            check_address(&format!("{at}.{field}[{index}]"), address, errors);
        }
    }
    let ports = subset.ports.as_deref().unwrap_or_default();
    for (index, port) in ports.iter().enumerate() {
        let at = format!("{at}.ports[{index}]");
        check_name(&at, port.name.as_deref(), ports.len() > 1, &[], errors);
        check_number(&format!("{at}.port"), port.port, errors);
        check_protocol(&at, port.protocol.as_deref(), errors);
    }
}

fn check_address(at: &str, address: &EndpointAddress, errors: &mut Vec<FieldError>) {
    let wrong = match address.ip.parse::<IpAddr>() {
        Err(_) => Some("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        Ok(ip) if ip.is_unspecified() => Some("may not be unspecified (0.0.0.0)"),
        Ok(ip) if ip.is_loopback() => Some("may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        Ok(_) => None,
    };
    if let Some(why) = wrong {
        errors.push(FieldError::invalid(format!("{at}.ip"), &json!(address.ip), why));
    }
    check_hostname(at, address.hostname.as_deref(), errors);
}

fn check_endpoint(at: &str, endpoint: &Endpoint, family: &str, errors: &mut Vec<FieldError>) {
    if endpoint.addresses.is_empty() {
        errors.push(FieldError::required(format!("{at}.addresses"), "must contain at least 1 address"));
    }
    for (index, address) in endpoint.addresses.iter().enumerate() {
        let legal = match (family, address.parse::<IpAddr>()) {
            ("IPv4", parsed) => parsed.is_ok_and(|ip| ip.is_ipv4()),
            ("IPv6", parsed) => parsed.is_ok_and(|ip| ip.is_ipv6()),
            _ => names::subdomain(address).is_ok(),
        };
        if !legal {
            let why = format!("must be an {family} address");
            errors.push(FieldError::invalid(format!("{at}.addresses[{index}]"), &json!(address), why));
        }
    }
    check_hostname(at, endpoint.hostname.as_deref(), errors);
}

fn check_hostname(at: &str, hostname: Option<&str>, errors: &mut Vec<FieldError>) {
    if let Some(name) = hostname.filter(|name| !name.is_empty())
        && let Err(why) = names::label_1123(name)
    {
        errors.push(FieldError::invalid(format!("{at}.hostname"), &json!(name), why));
    }
}
