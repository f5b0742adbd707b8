//! Events that change the objects of the index.

use smol_str::SmolStr;

use super::Index;
use super::store::ObjectStore;
use crate::clusterset::ClusterSet;
use crate::objects::{
    Change, EndpointSlice, Endpoints, EndpointsSource, Event, Namespace, Node, ObjectKey, Pod,
    Service,
};
use crate::records::PreferredZone;

impl Index {
    /// Applies one event.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Service(change) => self.apply_service(change),
            Event::Endpoints(change) => self.apply_endpoints(change),
            Event::EndpointSlice(change) => self.apply_slice(change),
            Event::Node(change) => self.apply_node(change),
            Event::OwnNode(change) => self.apply_own_node(change),
            Event::Namespace(change) if self.selects_namespaces() => self.apply_namespace(change),
            Event::Pod(change) if self.options.pods.watches_pods() => self.apply_pod(change),
            // Namespaces and Pods have no effect unless an option needs them.
            Event::Namespace(_) | Event::Pod(_) => {}
            Event::ServiceImport(change) => self.change_clusterset(|set| set.apply_import(change)),
            Event::ImportedSlice(change) => self.change_clusterset(|set| set.apply_slice(change)),
            Event::EndpointsFrom(source) => self.use_source(source),
            Event::EndpointsInsteadOfSlices => self.fall_back_to_endpoints(),
        }
    }

    fn change_clusterset(&mut self, change: impl FnOnce(&mut ClusterSet)) {
        if let Some(clusterset) = &mut self.clusterset {
            change(clusterset);
        }
    }

    fn apply_service(&mut self, change: Change<Service>) {
        match change {
            Change::RelistStarted => self.store.begin_service_list(),
            Change::RelistDoneIn(namespace) => {
                let gone = self.store.finish_service_list_in(&namespace);
                self.remove_services(gone);
            }
            Change::RelistDone => {
                let gone = self.store.finish_service_list();
                self.remove_services(gone);
            }
            Change::Apply(service) => {
                self.store.services.note_seen(&service.key);
                // A list also contains objects that have not changed. Their records are kept.
                if !self.store.objects().has_service(&service) {
                    self.change_service(&service.key, |store, _| store.set_service(&service));
                }
            }
            Change::Deleted(key) => {
                self.store.services.note_seen(&key);
                self.change_service(&key, ObjectStore::remove_service);
            }
        }
    }

    fn remove_services(&mut self, keys: Vec<ObjectKey>) {
        for key in keys {
            self.change_service(&key, ObjectStore::remove_service);
        }
    }

    fn apply_endpoints(&mut self, change: Change<Endpoints>) {
        match change {
            Change::RelistStarted => self.store.begin_endpoints_list(),
            Change::RelistDoneIn(namespace) => {
                let gone = self.store.finish_endpoints_list_in(&namespace);
                self.remove_endpoints(gone);
            }
            Change::RelistDone => {
                let gone = self.store.finish_endpoints_list();
                self.remove_endpoints(gone);
            }
            Change::Apply(endpoints) => {
                self.store.endpoints.note_seen(&endpoints.key);
                // A list also contains objects that have not changed. Their records are kept.
                if !self.store.objects().has_endpoints(&endpoints) {
                    self.change_endpoints(&endpoints.key, |store, _| {
                        store.set_endpoints(&endpoints);
                    });
                }
            }
            Change::Deleted(key) => {
                self.store.endpoints.note_seen(&key);
                self.change_endpoints(&key, ObjectStore::remove_endpoints);
            }
        }
    }

    fn remove_endpoints(&mut self, keys: Vec<ObjectKey>) {
        for key in keys {
            self.change_endpoints(&key, ObjectStore::remove_endpoints);
        }
    }

    fn apply_slice(&mut self, change: Change<EndpointSlice>) {
        match change {
            Change::RelistStarted => self.store.begin_slice_list(),
            Change::RelistDoneIn(namespace) => {
                let gone = self.store.finish_slice_list_in(&namespace);
                self.remove_slices(gone);
            }
            Change::RelistDone => {
                let gone = self.store.finish_slice_list();
                self.remove_slices(gone);
            }
            Change::Apply(slice) => {
                self.store.slices.note_seen(&slice.key);
                // A list also contains objects that have not changed. Their records are kept.
                if !self.store.objects().has_slice(&slice) {
                    self.set_slice(&slice);
                }
            }
            Change::Deleted(key) => {
                self.store.slices.note_seen(&key);
                self.remove_slice(&key);
            }
        }
    }

    fn set_slice(&mut self, slice: &EndpointSlice) {
        let service = slice.service_key();

        // A slice can move to another Service: the label that names its Service is mutable.
        if let Some(owner) = self.store.service_of_slice(&slice.key)
            && owner != service
        {
            self.remove_slice_of(&owner, &slice.key);
        }
        self.change_endpoints(&service, |store, _| store.set_slice(slice));
    }

    fn remove_slices(&mut self, keys: Vec<ObjectKey>) {
        for key in keys {
            self.remove_slice(&key);
        }
    }

    fn remove_slice(&mut self, key: &ObjectKey) {
        if let Some(service) = self.store.service_of_slice(key) {
            self.remove_slice_of(&service, key);
        }
    }

    fn remove_slice_of(&mut self, service: &ObjectKey, key: &ObjectKey) {
        self.change_endpoints(service, |store, service| store.remove_slice(service, key));
    }

    fn apply_node(&mut self, change: Change<Node>) {
        match change {
            Change::RelistStarted => self.node_lists.begin(self.nodes.keys()),
            Change::RelistDone => {
                for gone in self.node_lists.finish(self.nodes.keys().cloned()) {
                    self.nodes.remove(&gone);
                }
            }
            // Nodes are in no namespace.
            Change::RelistDoneIn(_) => {}
            Change::Apply(node) => {
                self.node_lists.note_seen(&node.key.name);
                self.nodes.insert(node.key.name.clone(), node);
            }
            Change::Deleted(key) => {
                self.node_lists.note_seen(&key.name);
                self.nodes.remove(&key.name);
            }
        }

        // The CNAME target of a federated name may contain the zone and the region of a Node.
        if let Some(federation) = &self.snapshot.federation {
            let domains = federation.domains.clone();
            self.set_federations(domains);
        }
    }

    /// Updates the topology zone of the node that this process runs on. If the Node object is
    /// deleted, the zone is kept, because this process still runs on the node.
    fn apply_own_node(&mut self, change: Change<Node>) {
        let Change::Apply(Node { key, zone, .. }) = change else {
            return;
        };
        let zone = zone.map(|name| PreferredZone {
            name,
            hints_only: self.options.hints_only,
        });
        if self.options.records.preferred_zone == zone {
            return;
        }

        if let Some(zone) = &zone {
            tracing::info!(node = %key, zone = zone.name.as_str(), "read the zone of this node");
        } else {
            tracing::info!(node = %key, "this node no longer has a zone");
        }
        // Any headless Service may answer with other addresses now.
        for key in self.store.keys() {
            self.mark_endpoint_records_outdated(&key);
        }
        self.options.records.preferred_zone = zone;
    }

    fn apply_namespace(&mut self, change: Change<Namespace>) {
        match change {
            Change::RelistStarted => {
                let served = self.snapshot.served.iter().flat_map(treecache::Map::iter);
                self.namespaces.begin(served.map(|(name, ())| name));
            }
            Change::RelistDone => {
                let served = self.snapshot.served.iter().flat_map(treecache::Map::iter);
                let names = served.map(|(name, ())| name.clone());
                for gone in self.namespaces.finish(names) {
                    self.set_namespace_served(&gone, false);
                }
            }
            // Namespaces are in no namespace themselves.
            Change::RelistDoneIn(_) => {}
            Change::Apply(Namespace { key }) => {
                self.namespaces.note_seen(&key.name);
                self.set_namespace_served(&key.name, true);
            }
            Change::Deleted(key) => {
                self.namespaces.note_seen(&key.name);
                self.set_namespace_served(&key.name, false);
            }
        }
    }

    /// Starts or stops serving a namespace.
    fn set_namespace_served(&mut self, namespace: &SmolStr, is_served: bool) {
        if self.snapshot.serves(namespace) == is_served {
            return;
        }

        // The records are marked before `served` changes, because `mark_outdated` notes the current
        // reverse records.
        for key in self.store.keys_in(namespace) {
            self.mark_outdated(&key);
        }
        self.change_clusterset(|set| set.mark_namespace_outdated(namespace));
        if let Some(served) = &mut self.snapshot.served {
            if is_served {
                served.insert(namespace.clone(), ());
            } else {
                served.remove(namespace);
            }
        }

        // The name of a served namespace exists even without a Service, so there is always a
        // change.
        self.changed = true;
        self.objects_changed = true;
    }

    fn apply_pod(&mut self, change: Change<Pod>) {
        // `objects_unpublished` stays as it is, because Pods are not among the published objects.
        self.objects_changed |= self.pods.apply_change(change);
    }

    /// Changes one Service. Its records are rebuilt only in [`Index::publish`], because a Service
    /// and its endpoints often change together, and rebuilding the records of a large Service is
    /// slow.
    fn change_service(
        &mut self,
        key: &ObjectKey,
        change: impl FnOnce(&mut ObjectStore, &ObjectKey),
    ) {
        self.mark_outdated(key);
        change(&mut self.store, key);
        self.note_objects_changed();
    }

    /// Changes the endpoints of one Service.
    fn change_endpoints(
        &mut self,
        key: &ObjectKey,
        change: impl FnOnce(&mut ObjectStore, &ObjectKey),
    ) {
        self.mark_endpoint_records_outdated(key);
        change(&mut self.store, key);
        self.note_objects_changed();
    }

    fn note_objects_changed(&mut self) {
        self.objects_changed = true;
        self.objects_unpublished = true;
    }

    /// Switches to Endpoints after slices have become unreadable. The last slices stay in use
    /// instead if [`ObjectStore::service_with_lacking_endpoints`] finds a Service whose Endpoints
    /// lack addresses of its slices. Endpoints lack addresses, for example, if another controller
    /// writes the slices, or if the Service has two IP families.
    fn fall_back_to_endpoints(&mut self) {
        let records = &self.options.records;
        let lacking = self
            .store
            .service_with_lacking_endpoints(|service| records.depend_on_endpoints(service));
        let Some(service) = lacking else {
            return self.use_source(EndpointsSource::Endpoints);
        };

        // `EndpointsInsteadOfSlices` arrives repeatedly, but only the first one logs the warning.
        if self.lacking_service.is_none() {
            tracing::warn!(
                %service,
                "EndpointSlices can no longer be read and Endpoints lack addresses; keeping the last slices"
            );
        }
        self.lacking_service = Some(service);
    }

    pub(super) fn use_source(&mut self, source: EndpointsSource) {
        self.lacking_service = None;
        // If the source is known already, for example from a snapshot file, objects of the other
        // source may be left over.
        if self.source == Some(source) {
            self.store.forget_other_than(source);
            self.objects_unpublished = true;
            return;
        }

        for key in self.store.keys() {
            self.mark_endpoint_records_outdated(&key);
        }
        self.source = Some(source);
        self.in_force.send_replace(self.source);
        self.store.forget_other_than(source);
        self.note_objects_changed();
    }
}
