//! `spec` of a Service.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::names;
use crate::object::text;
use crate::service::{has_cluster_ip, is_headless, kind, texts};
use crate::status::FieldError;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];

/// Everything wrong with a defaulted spec; `before` is that of the Service it replaces.
pub(crate) fn spec(spec: &Map<String, Value>, before: Option<&Map<String, Value>>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    one_of(spec, "type", &TYPES, &mut errors);
    one_of(spec, "sessionAffinity", &["ClientIP", "None"], &mut errors);
    ports(spec, &mut errors);
    if kind(spec) == "ExternalName" {
        external_name(spec, &mut errors);
    } else {
        one_of(spec, "internalTrafficPolicy", &["Cluster", "Local"], &mut errors);
        cluster_ips(spec, &mut errors);
        if let Some(before) = before {
            unchanged(spec, before, &mut errors);
        }
    }
    errors
}

fn one_of(spec: &Map<String, Value>, field: &str, allowed: &[&str], errors: &mut Vec<FieldError>) {
    if let Some(value) = spec.get(field)
        && !value.as_str().is_some_and(|value| allowed.contains(&value))
    {
        errors.push(FieldError::not_supported(format!("spec.{field}"), value, allowed));
    }
}

fn external_name(spec: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if spec.contains_key(field) {
            let field = if field == "clusterIPs" { "clusterIPs[0]" } else { field };
            let why = "may not be set for ExternalName services";
            errors.push(FieldError::forbidden(format!("spec.{field}"), why));
        }
    }
    let name = text(spec, "externalName");
    if name.is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    } else if let Err(why) = names::subdomain(name.strip_suffix('.').unwrap_or(name)) {
        errors.push(FieldError::invalid("spec.externalName", &json!(name), why));
    }
}

fn cluster_ips(spec: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "spec.clusterIPs";
    let list = spec.get("clusterIPs").cloned().unwrap_or_else(|| json!([]));
    let addresses = texts(spec, "clusterIPs");
    let first = text(spec, "clusterIP");
    if first.is_empty() && !addresses.is_empty() {
        errors.push(FieldError::invalid(FIELD, &list, "must be empty when `clusterIP` is not specified"));
    } else if !first.is_empty() && addresses.first() != Some(&first) {
        errors.push(FieldError::invalid(FIELD, &list, "first value must match `clusterIP`"));
    }
    if addresses.len() > 2 {
        errors.push(FieldError::invalid(FIELD, &list, "may only hold up to 2 values"));
    }
    if addresses.contains(&"None") && addresses.len() > 1 {
        errors.push(FieldError::invalid(FIELD, &list, "'None' must be the first and only value"));
    }
    if is_headless(spec) && matches!(kind(spec), "NodePort" | "LoadBalancer") {
        let why = format!("may not be set to 'None' for {} services", kind(spec));
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &json!("None"), why));
    }
    for (index, address) in addresses.iter().enumerate().filter(|(_, address)| **address != "None") {
        if address.parse::<IpAddr>().is_err() {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(format!("spec.clusterIPs[{index}]"), &json!(address), why));
        }
    }
    one_of(spec, "ipFamilyPolicy", &POLICIES, errors);
    ip_families(spec, &addresses, errors);
}

fn ip_families(spec: &Map<String, Value>, addresses: &[&str], errors: &mut Vec<FieldError>) {
    let families = texts(spec, "ipFamilies");
    for (index, family) in families.iter().enumerate() {
        let field = format!("spec.ipFamilies[{index}]");
        if !FAMILIES.contains(family) {
            errors.push(FieldError::not_supported(&field, &json!(family), &FAMILIES));
        }
        if families.iter().take(index).any(|earlier| earlier == family) {
            errors.push(FieldError::duplicate(field, &json!(family)));
        }
    }
    for (index, (address, family)) in addresses.iter().zip(&families).enumerate() {
        if let Ok(parsed) = address.parse::<IpAddr>()
            && parsed.is_ipv4() != (*family == "IPv4")
        {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.push(FieldError::invalid(format!("spec.clusterIPs[{index}]"), &json!(address), why));
        }
    }
    if let [first, second] = addresses
        && first.contains(':') == second.contains(':')
    {
        let why = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid("spec.clusterIPs", &json!(addresses), why));
    }
}

/// The first address and family stay, unless the type changes to or from one without.
fn unchanged(spec: &Map<String, Value>, before: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    if !has_cluster_ip(before) {
        return;
    }
    let (now, old) = (texts(spec, "clusterIPs"), texts(before, "clusterIPs"));
    for (index, old) in old.iter().enumerate() {
        if now.get(index).is_some_and(|now| now != old) {
            let value = spec.get("clusterIPs").cloned().unwrap_or_default();
            let field = format!("spec.clusterIPs[{index}]");
            errors.push(FieldError::invalid(field, &value, "may not change once set"));
        }
    }
    let (now, old) = (texts(spec, "ipFamilies"), texts(before, "ipFamilies"));
    if let (Some(now), Some(old)) = (now.first(), old.first())
        && now != old
        && !is_headless(before)
    {
        let value = spec.get("ipFamilies").cloned().unwrap_or_default();
        errors.push(FieldError::invalid("spec.ipFamilies[0]", &value, "may not change once set"));
    }
}

fn ports(spec: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let list = match spec.get("ports") {
        None => &[],
        Some(Value::Array(list)) => list.as_slice(),
        Some(other) => return errors.push(FieldError::invalid("spec.ports", other, "must be a list")),
    };
    if list.is_empty() && !is_headless(spec) && kind(spec) != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    let mut names: Vec<&str> = Vec::new();
    let mut numbers: Vec<(u64, &str)> = Vec::new();
    for (index, port) in list.iter().enumerate() {
        let at = format!("spec.ports[{index}]");
        let Some(port) = port.as_object() else {
            errors.push(FieldError::invalid(at, port, "must be an object"));
            continue;
        };
        let name = text(port, "name");
        port_name(&format!("{at}.name"), name, list.len() > 1, &names, errors);
        names.push(name);
        protocol(&format!("{at}.protocol"), port, errors);
        port_number(&format!("{at}.port"), port.get("port"), errors);
        target_port(&format!("{at}.targetPort"), port.get("targetPort"), errors);
        let key = (port.get("port").and_then(Value::as_u64).unwrap_or(0), text(port, "protocol"));
        if numbers.contains(&key) {
            errors.push(FieldError::duplicate(at, &json!({ "port": key.0, "protocol": key.1 })));
        }
        numbers.push(key);
    }
}

fn port_name(field: &str, name: &str, required: bool, earlier: &[&str], errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        if required {
            errors.push(FieldError::required(field, ""));
        }
        return;
    }
    if let Err(why) = names::label_1123(name) {
        errors.push(FieldError::invalid(field, &json!(name), why));
    }
    if earlier.contains(&name) {
        errors.push(FieldError::duplicate(field, &json!(name)));
    }
}

/// `protocol` of a port of a Service, an Endpoints object or an `EndpointSlice`.
pub(super) fn protocol(field: &str, port: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let value = port.get("protocol").cloned().unwrap_or_default();
    if !value.as_str().is_some_and(|value| PROTOCOLS.contains(&value)) {
        errors.push(FieldError::not_supported(field, &value, &PROTOCOLS));
    }
}

/// A port number.
pub(super) fn port_number(field: &str, value: Option<&Value>, errors: &mut Vec<FieldError>) {
    let number = value.and_then(Value::as_u64).unwrap_or(0);
    if !(1..=65_535).contains(&number) {
        let value = value.cloned().unwrap_or_else(|| json!(0));
        errors.push(FieldError::invalid(field, &value, "must be between 1 and 65535, inclusive"));
    }
}

fn target_port(field: &str, value: Option<&Value>, errors: &mut Vec<FieldError>) {
    match value {
        None => {}
        Some(Value::String(name)) => {
            let legal = name.len() <= 15 && names::label_1123(name).is_ok() && !name.contains("--");
            if !legal || !name.contains(|c: char| c.is_ascii_lowercase()) {
                let why =
                    "must be an IANA service name: at most 15 of a-z, 0-9 and '-', with at least one letter";
                errors.push(FieldError::invalid(field, &json!(name), why));
            }
        }
        value => port_number(field, value, errors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(value: &Value) -> String {
        let errors = spec(value.as_object().unwrap(), None);
        crate::status::Status::invalid(crate::Resource::Services.kind(), "x", &errors).message().to_owned()
    }

    #[test]
    fn problems_read_like_those_of_a_real_server() {
        let port = json!({ "port": 80, "protocol": "TCP" });
        let cases = [
            (json!({}), "spec.ports: Required value"),
            (
                json!({ "type": "Wrong", "ports": [port] }),
                "spec.type: Unsupported value: \"Wrong\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
            ),
            (
                json!({ "ports": [{ "port": 70000, "protocol": "TCP" }] }),
                "spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ),
            (
                json!({ "ports": [{ "port": 80, "protocol": "HTTP" }] }),
                "spec.ports[0].protocol: Unsupported value: \"HTTP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ),
            (json!({ "ports": [port, port] }), "spec.ports[0].name: Required value"),
            (
                json!({ "ports": [{ "port": 80, "protocol": "TCP", "name": "a" }, { "port": 80, "protocol": "TCP", "name": "a" }] }),
                "spec.ports[1].name: Duplicate value: \"a\"",
            ),
            (json!({ "type": "ExternalName" }), "spec.externalName: Required value"),
            (
                json!({ "type": "ExternalName", "externalName": "a_b" }),
                "spec.externalName: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain",
            ),
            (
                json!({ "type": "ExternalName", "externalName": "a.b", "clusterIPs": ["1.2.3.4"] }),
                "spec.clusterIPs[0]: Forbidden: may not be set for ExternalName services",
            ),
            (
                json!({ "type": "NodePort", "clusterIP": "None", "clusterIPs": ["None"], "ports": [port] }),
                "may not be set to 'None' for NodePort services",
            ),
            (
                json!({ "clusterIP": "x", "clusterIPs": ["x"], "ports": [port] }),
                "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address",
            ),
            (
                json!({ "clusterIP": "1.2.3.4", "clusterIPs": ["4.3.2.1"], "ports": [port] }),
                "first value must match `clusterIP`",
            ),
            (
                json!({ "clusterIPs": ["4.3.2.1"], "ports": [port] }),
                "must be empty when `clusterIP` is not specified",
            ),
            (
                json!({ "ipFamilies": ["IPv4", "IPv4"], "ports": [port] }),
                "spec.ipFamilies[1]: Duplicate value: \"IPv4\"",
            ),
            (json!({ "ports": "http" }), "spec.ports: Invalid value: \"http\": must be a list"),
        ];
        for (value, message) in cases {
            let text = problems(&value);
            assert!(text.contains(message), "{value}\n  {text}");
        }
    }

    #[test]
    fn what_is_right_passes() {
        for value in [
            json!({ "clusterIP": "None", "clusterIPs": ["None"] }),
            json!({ "ports": [{ "port": 80, "protocol": "TCP", "targetPort": "http" }] }),
            json!({ "type": "ExternalName", "externalName": "www.outside.test." }),
        ] {
            assert!(spec(value.as_object().unwrap(), None).is_empty(), "{value}");
        }
    }
}
