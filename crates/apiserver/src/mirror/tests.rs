use serde_json::{Value, json};

use super::*;
use crate::store::Store;

fn mirror() -> Mirror {
    let registry = Registry::new(Store::default(), &crate::allocate::service_ranges());
    registry.bootstrap();
    registry.store.set(namespace()).unwrap();
    let mut mirror = Mirror { registry, seen: None };
    mirror.catch_up();
    mirror
}

fn namespace() -> Value {
    json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "apps" } })
}

fn endpoints(subsets: &Value) -> Value {
    json!({ "kind": "Endpoints", "apiVersion": "v1", "metadata": { "name": "db", "namespace": "apps", "uid": "u" },
            "subsets": subsets })
}

/// Name, family, addresses with readiness, ports of each slice of the namespace.
fn slices(mirror: &Mirror) -> Vec<(String, Value, Value, Value)> {
    let all = mirror.registry.store.list(Resource::EndpointSlices).objects;
    all.iter()
        .filter(|slice| slice.namespace() == "apps")
        .map(|slice| {
            let value = slice.value();
            let endpoints: Vec<Value> = value["endpoints"]
                .as_array()
                .unwrap()
                .iter()
                .map(|endpoint| json!([endpoint["addresses"][0], endpoint["conditions"]["ready"]]))
                .collect();
            (slice.name().to_owned(), value["addressType"].clone(), json!(endpoints), value["ports"].clone())
        })
        .collect()
}

#[test]
fn slices_follow_endpoints() {
    let mut mirror = mirror();
    let port = json!([{ "name": "sql", "port": 5432, "protocol": "TCP" }]);
    let store = mirror.registry.store.clone();
    let subset = json!([{ "addresses": [{ "ip": "10.0.0.1", "hostname": "db-0" }, { "ip": "fd00::1" }],
                          "notReadyAddresses": [{ "ip": "10.0.0.2" }], "ports": port }]);
    store.set(endpoints(&subset)).unwrap();
    mirror.catch_up();
    assert_eq!(
        slices(&mirror),
        [
            (
                "db-ipv4-0".into(),
                json!("IPv4"),
                json!([["10.0.0.1", true], ["10.0.0.2", false]]),
                port.clone()
            ),
            ("db-ipv6-0".into(), json!("IPv6"), json!([["fd00::1", true]]), port.clone()),
        ]
    );
    let slice = store.get(Resource::EndpointSlices, "apps", "db-ipv4-0").unwrap();
    assert_eq!(slice.label(SERVICE_LABEL), Some("db"));
    assert_eq!(slice.value()["endpoints"][0]["hostname"], "db-0");

    store.set(endpoints(&json!([{ "addresses": [{ "ip": "fd00::2" }], "ports": port }]))).unwrap();
    mirror.catch_up();
    assert_eq!(slices(&mirror), [("db-ipv6-0".into(), json!("IPv6"), json!([["fd00::2", true]]), port)]);
    store.delete(Resource::Endpoints, "apps", "db");
    mirror.catch_up();
    assert_eq!(slices(&mirror), []);
}

#[test]
fn slices_of_others_are_left_alone() {
    let mut mirror = mirror();
    let store = mirror.registry.store.clone();
    assert!(store.get(Resource::EndpointSlices, "default", "kubernetes-ipv4-0").is_none());
    store.set(endpoints(&json!([{ "addresses": [{ "ip": "10.0.0.1" }] }]))).unwrap();
    mirror.catch_up();
    assert_eq!(slices(&mirror).len(), 1);
    let own = json!({ "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4", "endpoints": [],
                      "metadata": { "name": "own", "namespace": "apps", "labels": { SERVICE_LABEL: "db" } } });
    store.set(own).unwrap();
    mirror.catch_up();
    let names: Vec<String> = slices(&mirror).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["own"]);
    store.delete(Resource::EndpointSlices, "apps", "own");
    mirror.catch_up();
    assert_eq!(slices(&mirror).len(), 1);
    let mut marked = endpoints(&json!([{ "addresses": [{ "ip": "10.0.0.1" }] }]));
    marked["metadata"]["labels"] = json!({ SKIP_LABEL: "true" });
    store.set(marked).unwrap();
    mirror.catch_up();
    assert_eq!(slices(&mirror), []);
}

#[test]
fn nothing_is_missed_when_the_history_is_short() {
    let registry = Registry::new(Store::new(2), &crate::allocate::service_ranges());
    let mut mirror = Mirror { registry, seen: None };
    mirror.catch_up();
    let store = mirror.registry.store.clone();
    store.set(namespace()).unwrap();
    for index in 0..10 {
        let mut object = endpoints(&json!([{ "addresses": [{ "ip": "10.0.0.1" }] }]));
        object["metadata"]["name"] = json!(format!("db{index}"));
        store.set(object).unwrap();
    }
    mirror.catch_up();
    assert_eq!(slices(&mirror).len(), 10);
}
