//! What kube-apiserver rejects in the spec of a Service, apart from families and addresses that contradict the cluster.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

use super::{has_cluster_ip, is_headless};
use crate::status::FieldError;
use crate::validate::names;
use crate::validate::ports::{check_name, check_number, check_protocol};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];

/// Everything wrong with a defaulted spec; `before` is that of the Service it replaces.
pub(super) fn spec(spec: &ServiceSpec, before: Option<&ServiceSpec>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    one_of("spec.type", spec.type_.as_deref(), &TYPES, &mut errors);
    ports(spec, &mut errors);
    if !has_cluster_ip(spec) {
        external_name(spec, &mut errors);
        return errors;
    }
    one_of("spec.ipFamilyPolicy", spec.ip_family_policy.as_deref(), &POLICIES, &mut errors);
    for (index, family) in spec.ip_families.iter().flatten().enumerate() {
        let field = format!("spec.ipFamilies[{index}]");
        one_of(&field, Some(family), &FAMILIES, &mut errors);
        if spec.ip_families.iter().flatten().take(index).any(|earlier| earlier == family) {
            errors.push(FieldError::duplicate(field, &json!(family)));
        }
    }
    cluster_ips(spec, &mut errors);
    if let Some(before) = before {
        unchanged(spec, before, &mut errors);
    }
    errors
}

fn one_of(field: &str, value: Option<&str>, allowed: &[&str], errors: &mut Vec<FieldError>) {
    if let Some(value) = value.filter(|value| !allowed.contains(value)) {
        errors.push(FieldError::not_supported(field, &json!(value), allowed));
    }
}

fn external_name(spec: &ServiceSpec, errors: &mut Vec<FieldError>) {
    if spec.cluster_ips.is_some() {
        let why = "may not be set for ExternalName services";
        errors.push(FieldError::forbidden("spec.clusterIPs[0]", why));
    }
    match spec.external_name.as_deref() {
        None => errors.push(FieldError::required("spec.externalName", "")),
        Some(name) => {
            if let Err(why) = names::subdomain(name.strip_suffix('.').unwrap_or(name)) {
                errors.push(FieldError::invalid("spec.externalName", &json!(name), why));
            }
        }
    }
}

fn cluster_ips(spec: &ServiceSpec, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "spec.clusterIPs";
    let addresses = spec.cluster_ips.as_deref().unwrap_or_default();
    let mut wrong = |field: &str, why: &str| errors.push(FieldError::invalid(field, &json!(addresses), why));
    if spec.cluster_ip.is_none() && !addresses.is_empty() {
        wrong(FIELD, "must be empty when `clusterIP` is not specified");
    } else if spec.cluster_ip.as_ref() != addresses.first() {
        wrong(FIELD, "first value must match `clusterIP`");
    }
    if addresses.len() > 2 {
        wrong(FIELD, "may only hold up to 2 values");
    }
    if let [first, second] = addresses
        && first.contains(':') == second.contains(':')
    {
        wrong(FIELD, "may specify no more than one IP for each IP family");
    }
    if is_headless(spec) && matches!(spec.type_.as_deref(), Some("NodePort" | "LoadBalancer")) {
        wrong("spec.clusterIPs[0]", "may not be set to 'None' for NodePort and LoadBalancer services");
    }
    let headless = is_headless(spec) && addresses.len() == 1;
    let families = spec.ip_families.as_deref().unwrap_or_default();
    for (index, address) in addresses.iter().enumerate().filter(|_| !headless) {
        let field = format!("spec.clusterIPs[{index}]");
        match (address.parse::<IpAddr>(), families.get(index)) {
            (Err(_), _) => wrong(&field, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
            (Ok(ip), Some(family)) if ip.is_ipv4() != (family == "IPv4") => {
                wrong(&field, &format!("expected an {family} value as indicated by `ipFamilies[{index}]`"));
            }
            (Ok(_), _) => {}
        }
    }
}

/// The addresses and the first family stay, unless the type changes to or from one without.
fn unchanged(spec: &ServiceSpec, before: &ServiceSpec, errors: &mut Vec<FieldError>) {
    if !has_cluster_ip(before) {
        return;
    }
    let (now, old) = (spec.cluster_ips.as_deref(), before.cluster_ips.as_deref());
    let pairs = now.unwrap_or_default().iter().zip(old.unwrap_or_default());
    for (index, _) in pairs.enumerate().filter(|(_, (now, old))| now != old) {
        let field = format!("spec.clusterIPs[{index}]");
        errors.push(FieldError::invalid(field, &json!(now), "may not change once set"));
    }
    let first = |spec: &ServiceSpec| spec.ip_families.as_ref().and_then(|list| list.first().cloned());
    if let (Some(now), Some(old)) = (first(spec), first(before))
        && now != old
        && !is_headless(before)
    {
        let value = json!(spec.ip_families);
        errors.push(FieldError::invalid("spec.ipFamilies[0]", &value, "may not change once set"));
    }
}

fn ports(spec: &ServiceSpec, errors: &mut Vec<FieldError>) {
    let ports = spec.ports.as_deref().unwrap_or_default();
    if ports.is_empty() && !is_headless(spec) && has_cluster_ip(spec) {
        errors.push(FieldError::required("spec.ports", ""));
    }
    let same =
        |one: &ServicePort, other: &ServicePort| one.port == other.port && one.protocol == other.protocol;
    for (index, port) in ports.iter().enumerate() {
        let at = format!("spec.ports[{index}]");
        let earlier = ports.get(..index).unwrap_or_default();
        let names: Vec<&str> = earlier.iter().filter_map(|port| port.name.as_deref()).collect();
        check_name(&at, port.name.as_deref(), ports.len() > 1, &names, errors);
        check_protocol(&at, port.protocol.as_deref(), errors);
        check_number(&format!("{at}.port"), port.port, errors);
        match &port.target_port {
            Some(IntOrString::Int(number)) => check_number(&format!("{at}.targetPort"), *number, errors),
            Some(IntOrString::String(name)) if !names::is_service_name(name) => {
                let why =
                    "must be an IANA service name: at most 15 of a-z, 0-9 and '-', with at least one letter";
                errors.push(FieldError::invalid(format!("{at}.targetPort"), &json!(name), why));
            }
            Some(IntOrString::String(_)) | None => {}
        }
        if earlier.iter().any(|other| same(other, port)) {
            let value = json!({ "port": port.port, "protocol": port.protocol });
            errors.push(FieldError::duplicate(at, &value));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn problems(value: &Value) -> String {
        let errors = spec(&crate::schema::read(value).unwrap(), None);
        crate::status::Status::invalid(crate::Resource::Services.kind(), "x", &errors).message().to_owned()
    }

    fn assert_problems(cases: &[(Value, &str)]) {
        for (value, message) in cases {
            let text = problems(value);
            assert!(text.contains(message), "{value}\n  {text}");
        }
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
            (json!({ "ports": [port, port] }), "spec.ports[1]: Duplicate value"),
            (json!({ "ports": [{ "port": 80, "targetPort": "HTTP" }] }), "must be an IANA service name"),
            (
                json!({ "ports": [{ "port": 80, "protocol": "TCP", "name": "a" }, { "port": 81, "protocol": "TCP", "name": "a" }] }),
                "spec.ports[1].name: Duplicate value: \"a\"",
            ),
        ];
        assert_problems(&cases);
    }

    #[test]
    fn problems_of_names_and_addresses_do_too() {
        let port = json!({ "port": 80, "protocol": "TCP" });
        let cases = [
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
                "may not be set to 'None' for NodePort",
            ),
            (
                json!({ "clusterIP": "x", "clusterIPs": ["x"], "ports": [port] }),
                "spec.clusterIPs[0]: Invalid value: [\"x\"]: must be a valid IP address",
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
                json!({ "clusterIP": "1.2.3.4", "clusterIPs": ["1.2.3.4"], "ipFamilies": ["IPv6"], "ports": [port] }),
                "expected an IPv6 value as indicated by `ipFamilies[0]`",
            ),
            (
                json!({ "ipFamilies": ["IPv4", "IPv4"], "ports": [port] }),
                "spec.ipFamilies[1]: Duplicate value: \"IPv4\"",
            ),
            (
                json!({ "ipFamilies": ["IPv5"], "ports": [port] }),
                "spec.ipFamilies[0]: Unsupported value: \"IPv5\"",
            ),
        ];
        assert_problems(&cases);
    }

    #[test]
    fn what_is_right_passes() {
        for value in [
            json!({ "clusterIP": "None", "clusterIPs": ["None"] }),
            json!({ "ports": [{ "port": 80, "protocol": "TCP", "targetPort": "http" }] }),
            json!({ "type": "ExternalName", "externalName": "www.outside.test." }),
        ] {
            assert!(spec(&crate::schema::read(&value).unwrap(), None).is_empty(), "{value}");
        }
    }
}
