//! What every cluster has before anybody made anything: namespaces, and the Service of the API server itself.

use serde_json::{Value, json};

use super::{ObjectRef, Registry};
use crate::allocate::nth;
use crate::kinds::Resource;
use crate::schema::Unknown;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// Where the API server of the examples is reached, an address for documentation (RFC 5737).
const API_SERVER: &str = "203.0.113.10";

/// Creates it all, unless it is there.
pub(super) fn fill(registry: &Registry) {
    for name in NAMESPACES {
        make(registry, Resource::Namespaces, "", json!({ "metadata": { "name": name } }));
    }
    make(registry, Resource::Services, "default", service(registry));
    make(registry, Resource::Endpoints, "default", endpoints());
    make(registry, Resource::EndpointSlices, "default", slice());
    registry.store.expire_watches();
}

fn make(registry: &Registry, resource: Resource, namespace: &str, value: Value) {
    // Exists already when a store is used again: that is fine.
    if let Err(status) = registry.create(&ObjectRef::new(resource, namespace, ""), value, Unknown::Drop)
        && status.code() != 409
    {
        tracing::warn!(%resource, error = %status, "cannot create what every cluster has");
    }
}

fn service(registry: &Registry) -> Value {
    let address = registry.ranges.first().and_then(|range| nth(*range, 1)).map(|address| address.to_string());
    json!({
        "metadata": { "name": "kubernetes", "labels": { "component": "apiserver", "provider": "kubernetes" } },
        "spec": {
            "clusterIP": address,
            "ports": [{ "name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443 }],
        },
    })
}

fn endpoints() -> Value {
    json!({
        "metadata": { "name": "kubernetes", "labels": { "endpointslice.kubernetes.io/skip-mirror": "true" } },
        "subsets": [{
            "addresses": [{ "ip": API_SERVER }],
            "ports": [{ "name": "https", "port": 6443, "protocol": "TCP" }],
        }],
    })
}

fn slice() -> Value {
    json!({
        "metadata": { "name": "kubernetes", "labels": { "kubernetes.io/service-name": "kubernetes" } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [API_SERVER], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": 6443, "protocol": "TCP" }],
    })
}
