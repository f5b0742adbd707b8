//! The initial objects of a new cluster: namespaces, and the `kubernetes` Service with its
//! Endpoints and `EndpointSlice`.

use serde_json::{Value, json};

use super::{ObjectRef, Registry};
use crate::kinds::Resource;
use crate::schema::Unknown;
use crate::service::nth;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// A placeholder for the address of the API server, from a range for documentation (RFC 5737).
const API_SERVER: &str = "203.0.113.10";

/// Creates all initial objects.
pub(super) fn fill(registry: &Registry) {
    for name in NAMESPACES {
        make(
            registry,
            Resource::Namespaces,
            "",
            json!({ "metadata": { "name": name } }),
        );
    }
    make(registry, Resource::Services, "default", service());
    make(registry, Resource::Endpoints, "default", endpoints());
    make(registry, Resource::EndpointSlices, "default", slice());
    // A watch from an earlier resource version gets a 410, as on a real server that has just
    // started.
    registry.store.expire_watches();
}

fn make(registry: &Registry, resource: Resource, namespace: &str, value: Value) {
    if let Err(status) = registry.create(
        &ObjectRef::new(resource, namespace, ""),
        value,
        Unknown::Drop,
    ) {
        tracing::warn!(%resource, error = %status, "cannot create an initial object");
    }
}

fn service() -> Value {
    json!({
        "metadata": { "name": "kubernetes", "labels": { "component": "apiserver", "provider": "kubernetes" } },
        "spec": {
            "clusterIP": nth("IPv4", 1),
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
