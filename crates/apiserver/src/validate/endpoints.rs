//! Endpoints and EndpointSlices.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::names;
use super::service::{port_number, protocol};
use crate::object::text;
use crate::status::FieldError;

const BAD_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];

/// `subsets` of an Endpoints object.
pub(super) fn endpoints(map: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    for (index, subset) in list(map, "subsets").iter().enumerate() {
        let at = format!("subsets[{index}]");
        let Some(subset) = subset.as_object() else {
            errors.push(FieldError::invalid(at, subset, "must be an object"));
            continue;
        };
        let (ready, not_ready) = (list(subset, "addresses"), list(subset, "notReadyAddresses"));
        if ready.is_empty() && not_ready.is_empty() {
            errors.push(FieldError::required(&at, "must specify `addresses` or `notReadyAddresses`"));
        }
        for (field, addresses) in [("addresses", ready), ("notReadyAddresses", not_ready)] {
            for (index, address) in addresses.iter().enumerate() {
                endpoint_address(&format!("{at}.{field}[{index}]"), address, errors);
            }
        }
        let ports = list(subset, "ports");
        for (index, port) in ports.iter().enumerate() {
            endpoint_port(&format!("{at}.ports[{index}]"), port, ports.len() > 1, errors);
        }
    }
}

/// An `EndpointSlice`.
pub(super) fn slice(map: &Map<String, Value>, before: Option<&Value>, errors: &mut Vec<FieldError>) {
    let family = text(map, "addressType");
    if family.is_empty() {
        errors.push(FieldError::required("addressType", ""));
    } else if !ADDRESS_TYPES.contains(&family) {
        errors.push(FieldError::not_supported("addressType", &json!(family), &ADDRESS_TYPES));
    }
    if before.and_then(|before| before.get("addressType")).is_some_and(|old| *old != json!(family)) {
        errors.push(FieldError::invalid("addressType", &json!(family), "field is immutable"));
    }
    for (index, endpoint) in list(map, "endpoints").iter().enumerate() {
        slice_endpoint(&format!("endpoints[{index}]"), endpoint, family, errors);
    }
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in list(map, "ports").iter().enumerate() {
        let at = format!("ports[{index}]");
        let Some(port) = port.as_object() else {
            errors.push(FieldError::invalid(at, port, "must be an object"));
            continue;
        };
        let name = text(port, "name");
        if !name.is_empty()
            && let Err(why) = names::label_1123(name)
        {
            errors.push(FieldError::invalid(format!("{at}.name"), &json!(name), why));
        }
        if names.contains(&name) {
            errors.push(FieldError::duplicate(format!("{at}.name"), &json!(name)));
        }
        names.push(name);
        protocol(&format!("{at}.protocol"), port, errors);
    }
}

fn slice_endpoint(at: &str, endpoint: &Value, family: &str, errors: &mut Vec<FieldError>) {
    let Some(endpoint) = endpoint.as_object() else {
        return errors.push(FieldError::invalid(at, endpoint, "must be an object"));
    };
    let addresses = list(endpoint, "addresses");
    if addresses.is_empty() {
        errors.push(FieldError::required(format!("{at}.addresses"), "must contain at least 1 address"));
    }
    for (index, address) in addresses.iter().enumerate() {
        let legal = match (family, address.as_str()) {
            ("FQDN", Some(name)) => names::subdomain(name).map_err(ToOwned::to_owned),
            ("IPv4" | "IPv6", Some(text)) => match text.parse::<IpAddr>() {
                Ok(parsed) if parsed.is_ipv4() == (family == "IPv4") => Ok(()),
                _ => Err(format!("must be an {family} address")),
            },
            (_, Some(_)) => Ok(()),
            (_, None) => Err("must be a string".to_owned()),
        };
        if let Err(why) = legal {
            errors.push(FieldError::invalid(format!("{at}.addresses[{index}]"), address, why));
        }
    }
    hostname(at, endpoint, errors);
}

fn endpoint_address(at: &str, address: &Value, errors: &mut Vec<FieldError>) {
    let Some(address) = address.as_object() else {
        return errors.push(FieldError::invalid(at, address, "must be an object"));
    };
    let ip = text(address, "ip");
    match ip.parse::<IpAddr>() {
        Err(_) => errors.push(FieldError::invalid(format!("{at}.ip"), &json!(ip), BAD_ADDRESS)),
        Ok(parsed) if parsed.is_unspecified() => {
            errors.push(FieldError::invalid(
                format!("{at}.ip"),
                &json!(ip),
                "may not be unspecified (0.0.0.0)",
            ));
        }
        Ok(parsed) if parsed.is_loopback() => {
            let why = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
            errors.push(FieldError::invalid(format!("{at}.ip"), &json!(ip), why));
        }
        Ok(_) => {}
    }
    hostname(at, address, errors);
}

fn hostname(at: &str, map: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let name = text(map, "hostname");
    if !name.is_empty()
        && let Err(why) = names::label_1123(name)
    {
        errors.push(FieldError::invalid(format!("{at}.hostname"), &json!(name), why));
    }
}

fn endpoint_port(at: &str, port: &Value, name_required: bool, errors: &mut Vec<FieldError>) {
    let Some(port) = port.as_object() else {
        return errors.push(FieldError::invalid(at, port, "must be an object"));
    };
    let name = text(port, "name");
    if name.is_empty() {
        if name_required {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        }
    } else if let Err(why) = names::label_1123(name) {
        errors.push(FieldError::invalid(format!("{at}.name"), &json!(name), why));
    }
    port_number(&format!("{at}.port"), port.get("port"), errors);
    protocol(&format!("{at}.protocol"), port, errors);
}

fn list<'a>(map: &'a Map<String, Value>, field: &str) -> &'a [Value] {
    map.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Resource;

    fn problems(resource: Resource, mut value: Value) -> String {
        value["metadata"] = json!({ "name": "x", "namespace": "n" });
        let errors = super::super::object(resource.kind(), &value, None);
        crate::status::Status::invalid(resource.kind(), "x", &errors).message().to_owned()
    }

    #[test]
    fn endpoints_are_checked() {
        let port = json!({ "port": 80, "protocol": "TCP" });
        let cases = [
            (json!([{}]), "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"),
            (
                json!([{ "addresses": [{ "ip": "x" }] }]),
                "subsets[0].addresses[0].ip: Invalid value: \"x\": must be a valid IP",
            ),
            (json!([{ "addresses": [{ "ip": "127.0.0.1" }] }]), "may not be in the loopback range"),
            (
                json!([{ "addresses": [{ "ip": "10.0.0.1", "hostname": "A" }] }]),
                "subsets[0].addresses[0].hostname: Invalid value",
            ),
            (
                json!([{ "addresses": [{ "ip": "10.0.0.1" }], "ports": [port, port] }]),
                "subsets[0].ports[0].name: Required value",
            ),
            (
                json!([{ "addresses": [{ "ip": "10.0.0.1" }], "ports": [{ "port": 0, "protocol": "TCP" }] }]),
                "subsets[0].ports[0].port",
            ),
            (json!([5]), "subsets[0]: Invalid value: 5: must be an object"),
        ];
        for (subsets, message) in cases {
            let text = problems(Resource::Endpoints, json!({ "subsets": subsets }));
            assert!(text.contains(message), "{text}");
        }
    }

    #[test]
    fn slices_are_checked() {
        let cases = [
            (json!({}), "EndpointSlice.discovery.k8s.io \"x\" is invalid: addressType: Required value"),
            (json!({ "addressType": "IP" }), "addressType: Unsupported value: \"IP\""),
            (json!({ "addressType": "IPv4", "endpoints": [{}] }), "endpoints[0].addresses: Required value"),
            (
                json!({ "addressType": "IPv4", "endpoints": [{ "addresses": ["fd00::1"] }] }),
                "must be an IPv4 address",
            ),
            (
                json!({ "addressType": "IPv4", "ports": [{ "protocol": "X" }] }),
                "ports[0].protocol: Unsupported value: \"X\"",
            ),
        ];
        for (value, message) in cases {
            let text = problems(Resource::EndpointSlices, value);
            assert!(text.contains(message), "{text}");
        }
    }
}
