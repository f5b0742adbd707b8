//! The records of Services whose objects have changed.

use std::net::IpAddr;
use std::sync::Arc;

use skydns::{FurtherZone, Pointer};
use treecache::{Map, TreeCache};

use super::Index;
use crate::objects::{ObjectKey, Service, ServiceKind};
use crate::one_or_many::OneOrMany;
use crate::records::{ExternalNode, ServiceEndpoints, ServiceRecords};
use crate::snapshot::ExternalZone;

impl Index {
    /// Marks the records of the Service `key` as outdated, if they depend on endpoints. While
    /// federations are configured, marks them in any case. Must be called before the endpoints
    /// change.
    pub(super) fn mark_endpoint_records_outdated(&mut self, key: &ObjectKey) {
        let depend = match self.store.service(key) {
            Some(service) => self.options.records.depend_on_endpoints(&service),
            None => false,
        };

        // The answer to a federated name depends on whether the Service has ready endpoints.
        if depend || self.snapshot.federation.is_some() {
            self.mark_outdated(key);
        }
    }

    /// Marks the records of `key` as outdated. Must be called before the objects change, because
    /// the current reverse records are noted here.
    pub(super) fn mark_outdated(&mut self, key: &ObjectKey) {
        if !self.outdated.contains_key(key) {
            self.outdated
                .insert(key.clone(), self.current_pointers(key));
        }
    }

    /// The reverse records of one Service, from its current objects.
    fn current_pointers(&self, key: &ObjectKey) -> Vec<(IpAddr, Pointer)> {
        let Some(service) = self.served_service(key) else {
            return Vec::new();
        };

        let endpoints = self.relevant_endpoints(&service);
        self.options.records.pointers(&service, &endpoints)
    }

    /// The Service, if its namespace is served.
    fn served_service(&self, key: &ObjectKey) -> Option<Service> {
        let service = self.store.service(key)?;
        self.snapshot
            .serves(&service.key.namespace)
            .then_some(service)
    }

    /// The endpoints of a Service; [`ServiceEndpoints::None`] if the records of the Service do not
    /// depend on endpoints.
    fn relevant_endpoints(&self, service: &Service) -> ServiceEndpoints {
        if self.options.records.depend_on_endpoints(service) {
            self.store.service_endpoints(&service.key, self.source)
        } else {
            ServiceEndpoints::None
        }
    }

    /// Rebuilds the records of one Service; `old` are the published reverse records.
    pub(super) fn rebuild_records(&mut self, key: &ObjectKey, old: &[(IpAddr, Pointer)]) {
        let new = self.build_records(key);
        replace_pointers(&mut self.snapshot.reverse, old, &new.pointers);

        // Many Services have equal lists of ports, which are stored once.
        let node = new.node.map(|mut node| {
            self.port_lists.share(&mut node.ports);
            Arc::new(node)
        });
        put_entry(&mut self.snapshot.services, key, node);
        put_entry(&mut self.snapshot.aliases, key, new.alias.map(Arc::new));
        put_entry(&mut self.snapshot.zonal, key, new.zonal.map(Arc::new));
        self.put_external(key, new.external);
        self.note_backed(key);
    }

    fn build_records(&self, key: &ObjectKey) -> ServiceRecords {
        let Some(service) = self.served_service(key) else {
            return ServiceRecords::default();
        };

        let endpoints = self.relevant_endpoints(&service);
        self.options.records.build(&service, &endpoints)
    }

    /// Sets the records of a Service in the external zone; `None` removes them.
    fn put_external(&mut self, key: &ObjectKey, node: Option<ExternalNode>) {
        if self.options.external_zone.is_none() {
            return;
        }

        let node = node.map(|mut node| {
            self.port_lists.share(&mut node.node_mut().ports);
            Arc::new(node)
        });
        let before = self.external.services.entry(&[&key.namespace], &key.name);
        // The external zone must not be replaced if only other records of the Service change.
        self.external.changed |= node.as_ref() != before;
        put_entry(&mut self.external.services, key, node);
    }

    /// Copies the external zone into the snapshot.
    pub(super) fn publish_external_zone(&mut self) {
        let Some(domain) = &self.options.external_zone else {
            return;
        };

        let zone = &self.snapshot.zone;
        let records = ExternalZone::new(self.snapshot.records_from, self.external.services.clone());
        let further = FurtherZone {
            ttl: zone.ttl,
            negative_ttl: zone.negative_ttl,
            ..FurtherZone::new(domain, Arc::new(records))
        };
        self.snapshot.zones = self.snapshot.zones.with(further);
    }

    /// Notes in [`Snapshot::backed`](crate::snapshot::Snapshot::backed) whether the federated names
    /// of the Service have their target in this cluster.
    pub(super) fn note_backed(&mut self, key: &ObjectKey) {
        if self.snapshot.federation.is_none() {
            return;
        }

        if self.is_backed(key) {
            self.snapshot.backed.insert(key.clone(), ());
        } else {
            self.snapshot.backed.remove(key);
        }
    }

    /// Whether the target of federated names is the Service in this cluster: the Service has ready
    /// endpoints or is an ExternalName Service. Otherwise the target is a name in the domain of the
    /// federation.
    fn is_backed(&self, key: &ObjectKey) -> bool {
        let Some(service) = self.served_service(key) else {
            return false;
        };
        if matches!(service.kind, ServiceKind::ExternalName(_)) {
            return true;
        }

        let endpoints = self.store.service_endpoints(key, self.source);
        endpoints.has_ready_addresses()
    }
}

/// Replaces the reverse records `old` of a Service with `new`. Other Services may share an address;
/// their reverse records stay. Both lists must be sorted, because this function uses binary search.
fn replace_pointers(
    reverse: &mut Map<IpAddr, OneOrMany<Pointer>>,
    old: &[(IpAddr, Pointer)],
    new: &[(IpAddr, Pointer)],
) {
    for gone in old {
        // Records in both lists are left as they are, because each change copies a part of the
        // shared map.
        if new.binary_search(gone).is_ok() {
            continue;
        }

        let (ip, pointer) = gone;
        let owners = reverse.get(ip).into_iter().flatten();
        let others: OneOrMany<Pointer> =
            owners.filter(|owner| *owner != pointer).cloned().collect();

        if others.is_empty() {
            reverse.remove(ip);
        } else {
            reverse.insert(*ip, others);
        }
    }

    for added in new {
        if old.binary_search(added).is_ok() {
            continue;
        }

        let (ip, pointer) = added;
        let mut owners = match reverse.get(ip) {
            Some(owners) => owners.to_vec(),
            None => Vec::new(),
        };
        owners.push(pointer.clone());
        // Pointers are sorted by the age of their Services, so the order of events does not matter.
        owners.sort_unstable();
        owners.dedup();
        reverse.insert(*ip, owners.into());
    }
}

/// Sets the value of a Service; `None` removes the value.
fn put_entry<V: Clone>(tree: &mut TreeCache<V>, key: &ObjectKey, value: Option<V>) {
    let path = [key.namespace.as_str()];
    match value {
        Some(value) => drop(tree.set_entry(&path, key.name.clone(), value)),
        None => drop(tree.remove_entry(&path, &key.name)),
    }
}
