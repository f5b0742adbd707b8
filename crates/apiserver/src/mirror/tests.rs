use serde_json::{Value, json};
use testkit::objects::mk_endpoints_of;

use super::*;
use crate::store::Store;

/// A cluster with the namespace `apps`.
fn cluster() -> Registry {
    let registry = Registry {
        store: Store::default(),
    };
    registry.bootstrap();
    let namespace =
        json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "apps" } });
    registry.store.set(namespace).unwrap();
    reconcile(&registry);
    registry
}

fn endpoints(subsets: Value) -> Value {
    mk_endpoints_of("apps", "db", subsets)
}

/// Name, IP family, addresses with readiness, and ports of each slice in the namespace `apps`.
fn slices(registry: &Registry) -> Vec<Value> {
    let all = registry.store.list(Resource::EndpointSlices).objects;
    let slices = all.iter().filter(|slice| slice.namespace() == "apps");
    let shown = slices.map(|slice| {
        let value = slice.value();
        let endpoints = value["endpoints"].as_array().unwrap().iter();
        let endpoints: Vec<Value> = endpoints
            .map(|endpoint| json!([endpoint["addresses"][0], endpoint["conditions"]["ready"]]))
            .collect();
        json!([
            slice.name(),
            value["addressType"],
            endpoints,
            value["ports"]
        ])
    });
    shown.collect()
}

#[test]
fn slices_follow_endpoints() {
    let registry = cluster();
    let port = json!([{ "name": "sql", "port": 5432, "protocol": "TCP" }]);
    let store = registry.store.clone();
    let subsets = json!([{ "addresses": [{ "ip": "10.0.0.1", "hostname": "db-0" }, { "ip": "fd00::1" }],
                           "notReadyAddresses": [{ "ip": "10.0.0.2" }], "ports": port }]);
    store.set(endpoints(subsets)).unwrap();
    reconcile(&registry);
    assert_eq!(
        slices(&registry),
        [
            json!([
                "db-ipv4-0",
                "IPv4",
                [["10.0.0.1", true], ["10.0.0.2", false]],
                port
            ]),
            json!(["db-ipv6-0", "IPv6", [["fd00::1", true]], port]),
        ]
    );
    let slice = store
        .get(Resource::EndpointSlices, "apps", "db-ipv4-0")
        .unwrap();
    assert_eq!(slice.label(SERVICE_LABEL), Some("db"));
    assert_eq!(slice.value()["endpoints"][0]["hostname"], "db-0");

    let subsets = json!([{ "addresses": [{ "ip": "fd00::2" }], "ports": port }]);
    store.set(endpoints(subsets)).unwrap();
    reconcile(&registry);
    assert_eq!(
        slices(&registry),
        [json!(["db-ipv6-0", "IPv6", [["fd00::2", true]], port])]
    );
    store.delete(Resource::Endpoints, "apps", "db");
    reconcile(&registry);
    assert_eq!(slices(&registry), [] as [Value; 0]);
}

#[test]
fn endpoints_with_foreign_slice_or_skip_label_are_not_mirrored() {
    let registry = cluster();
    let store = registry.store.clone();
    assert!(
        store
            .get(Resource::EndpointSlices, "default", "kubernetes-ipv4-0")
            .is_none()
    );
    store
        .set(endpoints(json!([{ "addresses": [{ "ip": "10.0.0.1" }] }])))
        .unwrap();
    reconcile(&registry);
    assert_eq!(slices(&registry).len(), 1);
    let foreign = json!({ "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4", "endpoints": [],
                      "metadata": { "name": "foreign", "namespace": "apps", "labels": { SERVICE_LABEL: "db" } } });
    store.set(foreign).unwrap();
    reconcile(&registry);
    let found = &slices(&registry)[..];
    assert!(
        matches!(found, [slice] if slice[0] == "foreign"),
        "{found:?}"
    );
    store.delete(Resource::EndpointSlices, "apps", "foreign");
    reconcile(&registry);
    assert_eq!(slices(&registry).len(), 1);
    let mut marked = endpoints(json!([{ "addresses": [{ "ip": "10.0.0.1" }] }]));
    marked["metadata"]["labels"] = json!({ SKIP_LABEL: "true" });
    store.set(marked).unwrap();
    reconcile(&registry);
    assert_eq!(slices(&registry), [] as [Value; 0]);
}
