use std::sync::Arc;

use serde_json::{Value, json};
use testkit::table;

use super::*;
use crate::kinds::Resource;
use crate::object::Object;

/// A list of stored Services: one Service with this spec.
fn stored(spec: &Value) -> Objects {
    let value = json!({ "metadata": { "name": "other", "namespace": "n" }, "spec": spec });
    Arc::new([Arc::new(Object::new(Resource::Services, value, 1).unwrap())])
}

fn completed(spec: &Value, before: Option<&Value>, services: &Objects) -> Result<Value, String> {
    let typed = |spec: &Value| Service {
        spec: serde_json::from_value(spec.clone()).ok(),
        ..Service::default()
    };
    let mut service = typed(spec);
    complete(&mut service, before.map(typed).as_ref(), services).map_err(|causes| {
        crate::status::Status::invalid(Resource::Services.kind(), "x", causes).to_string()
    })?;
    Ok(serde_json::to_value(service.spec).unwrap())
}

fn created(spec: impl Into<Value>) -> Value {
    completed(&spec.into(), None, &Objects::default()).unwrap()
}

fn updated(before: &Value, spec: impl Into<Value>) -> Value {
    completed(&spec.into(), Some(before), &stored(before)).unwrap()
}

#[test]
fn selector_determines_families_of_headless_service() {
    let without_selector = created(json!({ "clusterIP": "None", "ports": [{ "port": 5432 }] }));
    assert_eq!(without_selector["clusterIPs"], json!(["None"]));
    assert_eq!(without_selector["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(without_selector["ipFamilyPolicy"], "RequireDualStack");
    let with_selector = created(json!({ "clusterIP": "None", "selector": { "a": "b" } }));
    assert_eq!(with_selector["ipFamilies"], json!(["IPv4"]));
    assert_eq!(with_selector["ipFamilyPolicy"], "SingleStack");
}

/// In each row, fields of the `spec` of a Service, and its `clusterIPs`.
const FAMILIES: &str = r#"
    {"ipFamilyPolicy": "PreferDualStack"}                           | ["10.96.1.1", "fd00:10:96::101"]
    {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}  | ["fd00:10:96::101", "10.96.1.1"]
    {"ipFamilies": ["IPv6"]}                                        | ["fd00:10:96::101"]
    {"clusterIP": "fd00:10:96::7"}                                  | ["fd00:10:96::7"]
    {"clusterIP": "10.96.0.7", "ipFamilyPolicy": "PreferDualStack"} | ["10.96.0.7", "fd00:10:96::101"]
"#;

#[test]
fn spec_determines_cluster_ips() {
    for row in table::rows(FAMILIES) {
        let [mut spec, addresses] = row.map(|cell| serde_json::from_str::<Value>(cell).unwrap());
        spec["ports"] = json!([{ "port": 80 }]);
        let spec = created(spec);
        assert_eq!(spec["clusterIPs"], addresses);
        assert_eq!(spec["clusterIP"], addresses[0]);
    }
}

/// In each row, the invalid `spec` of a Service, and a part of the error message.
const PROBLEMS: &str = r#"
    {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]} | spec.clusterIPs: Invalid value: ["10.96.0.1"]: failed to allocate IP 10.96.0.1: provided IP is already allocated
    {"clusterIP": "10.1.0.1", "ports": [{"port": 80}]}  | The range of valid IPs is 10.96.0.0/16
    {"clusterIP": "x", "ports": [{"port": 80}]}         | failed to allocate IP x: not an address
    {}                                                  | spec.ports: Required value
    {"type": "Wrong", "ports": [{"port": 80}]}          | spec.type: Unsupported value: "Wrong": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"
    {"ports": [{"port": 70000}]}                        | spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive
    {"ports": [{"port": 1}, {"port": 2}]}               | spec.ports[0].name: Required value
    {"type": "ExternalName"}                            | spec.externalName: Required value
    {"type": "ExternalName", "externalName": "a_b"}     | spec.externalName: Invalid value: "a_b": a lowercase RFC 1123 subdomain
"#;

#[test]
fn invalid_spec_is_rejected_with_reason() {
    let taken = stored(&json!({ "clusterIP": "10.96.0.1" }));
    for [spec, message] in table::rows(PROBLEMS) {
        let spec = serde_json::from_str(spec).unwrap();
        let text = completed(&spec, None, &taken).unwrap_err();
        assert!(text.contains(message), "{text}");
    }
}

#[test]
fn update_keeps_allocated_addresses() {
    let before = created(
        json!({ "ports": [{ "port": 80, "name": "http" }, { "port": 53, "protocol": "UDP", "name": "dns" }] }),
    );
    let after = updated(
        &before,
        json!({ "ports": [{ "port": 80, "name": "http" }] }),
    );
    assert_eq!(after["clusterIP"], before["clusterIP"]);
}

#[test]
fn type_change_releases_unused_fields() {
    let before = created(json!({ "ports": [{ "port": 80 }] }));
    let mut external = before.clone();
    external["type"] = json!("ExternalName");
    external["externalName"] = json!("www.outside.test");
    let external = updated(&before, external);
    for field in [
        "clusterIP",
        "clusterIPs",
        "ipFamilies",
        "ipFamilyPolicy",
        "internalTrafficPolicy",
    ] {
        assert!(external.get(field).is_none(), "{field}: {external}");
    }
    let mut back = external.clone();
    back["type"] = json!("ClusterIP");
    let back = updated(&external, back);
    assert!(
        back["clusterIP"]
            .as_str()
            .is_some_and(|ip| ip.starts_with("10.96.")),
        "{back}"
    );
    assert!(back.get("externalName").is_none(), "{back}");
}

#[test]
fn cluster_ip_is_immutable() {
    let before = created(json!({ "ports": [{ "port": 80 }] }));
    let after = json!({ "clusterIP": "10.96.0.77", "ports": [{ "port": 80 }] });
    let text = completed(&after, Some(&before), &Objects::default()).unwrap_err();
    assert!(
        text.contains(
            "spec.clusterIPs[0]: Invalid value: [\"10.96.0.77\"]: may not change once set"
        ),
        "{text}"
    );
}

#[test]
fn service_changes_to_dual_stack_and_back() {
    let before = created(json!({ "ports": [{ "port": 80 }] }));
    let mut dual = before.clone();
    dual["ipFamilyPolicy"] = json!("PreferDualStack");
    let dual = updated(&before, dual);
    assert_eq!(dual["clusterIPs"], json!(["10.96.1.1", "fd00:10:96::101"]));
    let mut single = dual.clone();
    single["ipFamilyPolicy"] = json!("SingleStack");
    let single = updated(&dual, single);
    assert_eq!(single["clusterIPs"], json!(["10.96.1.1"]));
    assert_eq!(single["ipFamilies"], json!(["IPv4"]));
}
