//! Mirroring of Endpoints to `EndpointSlices`, so that both kinds have the same addresses. In a
//! real cluster, a controller mirrors Endpoints.
//!
//! Endpoints are not mirrored if they have the label `endpointslice.kubernetes.io/skip-mirror:
//! "true"`, or if their Service has slices that mirroring did not create.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize as _;

use crate::kinds::Resource;
use crate::object::Object;
use crate::registry::{ObjectRef, Registry};
use crate::schema::Unknown;

const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const MANAGER_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP_LABEL: &str = "endpointslice.kubernetes.io/skip-mirror";

/// Updates the mirrored slices after each change of Endpoints or slices, while the server runs.
pub(crate) async fn run(registry: Registry) {
    let mut endpoints = registry.store.subscribe(Resource::Endpoints);
    let mut slices = registry.store.subscribe(Resource::EndpointSlices);
    loop {
        reconcile(&registry);
        tokio::select! {
            changed = endpoints.changed() => if changed.is_err() { return },
            changed = slices.changed() => if changed.is_err() { return },
        }
    }
}

/// Updates all mirrored slices to match the Endpoints.
fn reconcile(registry: &Registry) {
    let slices = registry.store.list(Resource::EndpointSlices).objects;
    let (ours, others): (Vec<_>, Vec<_>) = slices
        .iter()
        .partition(|slice| slice.label(MANAGER_LABEL) == Some(MANAGER));
    let managed_elsewhere: BTreeSet<(&str, Option<&str>)> = others
        .iter()
        .map(|slice| (slice.namespace(), slice.label(SERVICE_LABEL)))
        .collect();
    let endpoints = registry.store.list(Resource::Endpoints).objects;
    let mirrored = endpoints.iter().filter(|object| {
        object.label(SKIP_LABEL) != Some("true")
            && !managed_elsewhere.contains(&(object.namespace(), Some(object.name())))
    });
    let wanted: BTreeMap<String, EndpointSlice> = mirrored
        .flat_map(|object| mirror(object))
        .map(|slice| (key(&slice.metadata), slice))
        .collect();
    for slice in ours
        .iter()
        .filter(|slice| !wanted.contains_key(slice.key()))
    {
        // A failure is ignored: another client may have deleted the slice.
        drop(registry.delete(&ObjectRef::new(
            Resource::EndpointSlices,
            slice.namespace(),
            slice.name(),
        )));
    }
    // A changed slice is stored, so `run` reconciles again. An unchanged slice is not stored, so
    // `run` then waits for the next change.
    for slice in wanted.values() {
        write(registry, slice);
    }
}

fn write(registry: &Registry, slice: &EndpointSlice) {
    let (namespace, name) = names(&slice.metadata);
    let at = ObjectRef::new(Resource::EndpointSlices, namespace, name);
    let Ok(value) = serde_json::to_value(slice) else {
        return;
    };
    let update = registry.update(&at, Unknown::Drop, |_| Ok(value.clone()));
    // The write fails, for example, if the namespace was deleted meanwhile.
    if let Err(error) = update.or_else(|_| registry.create(&at, value, Unknown::Drop)) {
        tracing::debug!(namespace, name, %error, "cannot write a mirrored EndpointSlice");
    }
}

/// The slices of an Endpoints object: one for each subset and each IP family of its addresses.
fn mirror(object: &Object) -> Vec<EndpointSlice> {
    let endpoints = Endpoints::deserialize(object.value()).unwrap_or_default();
    let mut slices = Vec::new();
    for (index, subset) in endpoints.subsets.iter().flatten().enumerate() {
        for family in ["IPv4", "IPv6"] {
            let found = addresses(subset, family == "IPv6");
            if found.is_empty() {
                continue;
            }
            slices.push(EndpointSlice {
                metadata: metadata(
                    format!("{}-{}-{index}", object.name(), family.to_lowercase()),
                    &endpoints.metadata,
                ),
                address_type: family.to_owned(),
                endpoints: found,
                ports: ports(subset),
            });
        }
    }
    slices
}

fn metadata(name: String, endpoints: &ObjectMeta) -> ObjectMeta {
    let mut labels = endpoints.labels.clone().unwrap_or_default();
    labels.insert(
        SERVICE_LABEL.to_owned(),
        endpoints.name.clone().unwrap_or_default(),
    );
    labels.insert(MANAGER_LABEL.to_owned(), MANAGER.to_owned());
    ObjectMeta {
        name: Some(name),
        namespace: endpoints.namespace.clone(),
        labels: Some(labels),
        ..ObjectMeta::default()
    }
}

fn addresses(subset: &EndpointSubset, is_v6: bool) -> Vec<Endpoint> {
    let ready = subset
        .addresses
        .iter()
        .flatten()
        .map(|address| (address, true));
    let not_ready = subset
        .not_ready_addresses
        .iter()
        .flatten()
        .map(|address| (address, false));
    let of_family = |(address, _): &(&EndpointAddress, bool)| address.ip.contains(':') == is_v6;
    let endpoint = |(address, ready): (&EndpointAddress, bool)| Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            ..EndpointConditions::default()
        }),
        hostname: address.hostname.clone(),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    };
    ready
        .chain(not_ready)
        .filter(of_family)
        .map(endpoint)
        .collect()
}

fn ports(subset: &EndpointSubset) -> Option<Vec<EndpointPort>> {
    let ports = subset.ports.as_ref()?.iter().map(|port| EndpointPort {
        name: port.name.clone(),
        port: Some(port.port),
        protocol: port.protocol.clone(),
        app_protocol: port.app_protocol.clone(),
    });
    Some(ports.collect())
}

fn key(meta: &ObjectMeta) -> String {
    let (namespace, name) = names(meta);
    crate::object::key(Resource::EndpointSlices, namespace, name)
}

fn names(meta: &ObjectMeta) -> (&str, &str) {
    (
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests;
