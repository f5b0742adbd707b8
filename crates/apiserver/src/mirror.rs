//! `EndpointSlices` of Endpoints: what two controllers see to in a real cluster, so that clients of either find the same.
//!
//! Endpoints are mirrored unless they are marked not to be, or somebody else keeps slices of the same Service.

mod slices;

use std::collections::BTreeSet;

use tokio_util::sync::CancellationToken;

use crate::kinds::Resource;
use crate::object::Object;
use crate::registry::{ObjectRef, Registry};
use crate::schema::Unknown;
use crate::store::Batch;

/// Events read at a time.
const BATCH: usize = 256;
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const MANAGER_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP_LABEL: &str = "endpointslice.kubernetes.io/skip-mirror";

/// Where a Service is: namespace and name.
type Service = (String, String);

/// Mirrors until `stop` is cancelled.
pub(crate) async fn run(registry: Registry, stop: CancellationToken) {
    let mut endpoints = registry.store.subscribe(Resource::Endpoints);
    let mut slices = registry.store.subscribe(Resource::EndpointSlices);
    let mut mirror = Mirror { registry, seen: None };
    loop {
        mirror.catch_up();
        tokio::select! {
            () = stop.cancelled() => return,
            changed = endpoints.changed() => if changed.is_err() { return },
            changed = slices.changed() => if changed.is_err() { return },
        }
    }
}

struct Mirror {
    registry: Registry,
    /// Versions of the last Endpoints and slices seen; nothing before the first look, and after falling behind.
    seen: Option<(u64, u64)>,
}

impl Mirror {
    /// Looks at everything that changed since the last time, until nothing does.
    fn catch_up(&mut self) {
        loop {
            let concerned = match self.seen {
                None => self.everything(),
                Some(seen) => self.changes(seen),
            };
            if concerned.is_empty() && self.seen.is_some() {
                return;
            }
            for (namespace, name) in concerned {
                self.reconcile(&namespace, &name);
            }
        }
    }

    fn everything(&mut self) -> BTreeSet<Service> {
        let endpoints = self.registry.store.list(Resource::Endpoints);
        let slices = self.registry.store.list(Resource::EndpointSlices);
        self.seen = Some((endpoints.version, slices.version));
        endpoints
            .objects
            .iter()
            .chain(slices.objects.iter())
            .filter_map(|object| service_of(object))
            .collect()
    }

    fn changes(&mut self, (mut endpoints, mut slices): (u64, u64)) -> BTreeSet<Service> {
        let mut concerned = BTreeSet::new();
        for (resource, seen) in
            [(Resource::Endpoints, &mut endpoints), (Resource::EndpointSlices, &mut slices)]
        {
            match self.registry.store.after(resource, *seen, BATCH) {
                Batch::UpToDate(_) => {}
                Batch::Lagged => {
                    self.seen = None;
                    return BTreeSet::new();
                }
                Batch::Events(events) => {
                    for event in events {
                        *seen = event.object.version();
                        let objects = std::iter::once(&event.object).chain(&event.previous);
                        concerned.extend(objects.filter_map(|object| service_of(object)));
                    }
                }
            }
        }
        self.seen = Some((endpoints, slices));
        concerned
    }

    /// Makes the slices of one Service what its Endpoints say.
    fn reconcile(&self, namespace: &str, name: &str) {
        let store = &self.registry.store;
        let all = store.list(Resource::EndpointSlices).objects;
        let start = all.partition_point(|slice| slice.key() < format!("{namespace}/").as_str());
        let within = all.iter().skip(start).take_while(|slice| slice.namespace() == namespace);
        let (ours, others): (Vec<_>, Vec<_>) = within
            .filter(|slice| slice.label(SERVICE_LABEL) == Some(name))
            .partition(|slice| slice.label(MANAGER_LABEL) == Some(MANAGER));
        let endpoints = store.get(Resource::Endpoints, namespace, name);
        let endpoints =
            endpoints.filter(|object| object.label(SKIP_LABEL) != Some("true") && others.is_empty());
        let wanted = endpoints.map(|object| slices::of(&object)).unwrap_or_default();
        for slice in ours.iter().filter(|slice| !wanted.iter().any(|(name, _)| name == slice.name())) {
            let at = ObjectRef::new(Resource::EndpointSlices, namespace, slice.name());
            // Gone already: just as well.
            drop(self.registry.delete(&at));
        }
        for (slice, value) in wanted {
            let at = ObjectRef::new(Resource::EndpointSlices, namespace, &slice);
            let update = self.registry.update(&at, Unknown::Drop, |_| Ok(value.clone()));
            // Not made in a namespace that went in the meantime.
            if let Err(error) = update.or_else(|_| self.registry.create(&at, value, Unknown::Drop)) {
                tracing::debug!(namespace, slice, %error, "cannot mirror Endpoints");
            }
        }
    }
}

/// The Service that Endpoints or a slice belong to.
fn service_of(object: &Object) -> Option<Service> {
    let name = match object.resource() {
        Resource::Endpoints => object.name(),
        _ => object.label(SERVICE_LABEL)?,
    };
    Some((object.namespace().to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests;
