use serde_json::{Value, json};

use super::*;
use crate::store::Store;

/// A cluster with the namespace `apps`.
fn cluster() -> Registry {
    let registry = Registry {
        store: Store::default(),
    };
    registry.bootstrap();
    registry.store.set(namespace()).unwrap();
    reconcile(&registry);
    registry
}

fn namespace() -> Value {
    json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "apps" } })
}

fn endpoints(subsets: &Value) -> Value {
    json!({ "kind": "Endpoints", "apiVersion": "v1", "metadata": { "name": "db", "namespace": "apps", "uid": "u" },
            "subsets": subsets })
}

/// Name, IP family, addresses with readiness, and ports of each slice in the namespace `apps`.
fn slices(registry: &Registry) -> Vec<(String, Value, Value, Value)> {
    let all = registry.store.list(Resource::EndpointSlices).objects;
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
            (
                slice.name().to_owned(),
                value["addressType"].clone(),
                json!(endpoints),
                value["ports"].clone(),
            )
        })
        .collect()
}

#[test]
fn slices_follow_endpoints() {
    let registry = cluster();
    let port = json!([{ "name": "sql", "port": 5432, "protocol": "TCP" }]);
    let store = registry.store.clone();
    let subset = json!([{ "addresses": [{ "ip": "10.0.0.1", "hostname": "db-0" }, { "ip": "fd00::1" }],
                          "notReadyAddresses": [{ "ip": "10.0.0.2" }], "ports": port }]);
    store.set(endpoints(&subset)).unwrap();
    reconcile(&registry);
    assert_eq!(
        slices(&registry),
        [
            (
                "db-ipv4-0".into(),
                json!("IPv4"),
                json!([["10.0.0.1", true], ["10.0.0.2", false]]),
                port.clone()
            ),
            (
                "db-ipv6-0".into(),
                json!("IPv6"),
                json!([["fd00::1", true]]),
                port.clone()
            ),
        ]
    );
    let slice = store
        .get(Resource::EndpointSlices, "apps", "db-ipv4-0")
        .unwrap();
    assert_eq!(slice.label(SERVICE_LABEL), Some("db"));
    assert_eq!(slice.value()["endpoints"][0]["hostname"], "db-0");

    store
        .set(endpoints(
            &json!([{ "addresses": [{ "ip": "fd00::2" }], "ports": port }]),
        ))
        .unwrap();
    reconcile(&registry);
    assert_eq!(
        slices(&registry),
        [(
            "db-ipv6-0".into(),
            json!("IPv6"),
            json!([["fd00::2", true]]),
            port
        )]
    );
    store.delete(Resource::Endpoints, "apps", "db");
    reconcile(&registry);
    assert_eq!(slices(&registry), []);
}

#[test]
fn foreign_slices_are_left_alone() {
    let registry = cluster();
    let store = registry.store.clone();
    assert!(
        store
            .get(Resource::EndpointSlices, "default", "kubernetes-ipv4-0")
            .is_none()
    );
    store
        .set(endpoints(&json!([{ "addresses": [{ "ip": "10.0.0.1" }] }])))
        .unwrap();
    reconcile(&registry);
    assert_eq!(slices(&registry).len(), 1);
    let own = json!({ "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4", "endpoints": [],
                      "metadata": { "name": "own", "namespace": "apps", "labels": { SERVICE_LABEL: "db" } } });
    store.set(own).unwrap();
    reconcile(&registry);
    let names: Vec<String> = slices(&registry)
        .into_iter()
        .map(|(name, ..)| name)
        .collect();
    assert_eq!(names, ["own"]);
    store.delete(Resource::EndpointSlices, "apps", "own");
    reconcile(&registry);
    assert_eq!(slices(&registry).len(), 1);
    let mut marked = endpoints(&json!([{ "addresses": [{ "ip": "10.0.0.1" }] }]));
    marked["metadata"]["labels"] = json!({ SKIP_LABEL: "true" });
    store.set(marked).unwrap();
    reconcile(&registry);
    assert_eq!(slices(&registry), []);
}
