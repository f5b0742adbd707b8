//! The index applies the watchers' events, keeps the objects, and publishes the records built from
//! the objects. No other module publishes records.

mod objects;
mod packed;
mod pods;
mod published_objects;
mod shared;
mod store;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::quality::RandomState;
use skydns::{FurtherZone, Pointer};
use smol_str::SmolStr;
use tokio::sync::watch;
use treecache::TreeCache;
use wire::Name;

use crate::clusterset::{ClusterSet, ClusterSetZone};
use crate::objects::{
    Change, EndpointsSource, Event, Namespace, Node, ObjectKey, Pod, Service, ServiceKind,
};
use crate::one_or_many::OneOrMany;
use crate::records::{ExternalNode, PortRecords, RecordOptions, ServiceEndpoints, ServiceRecords};
use crate::relist::RelistTracker;
use crate::snapshot::{ExternalZone, Federation, PodNames, Published, Snapshot, Topology};
use crate::watch::Namespaces;
pub use objects::Objects;
use pods::Pods;
pub use published_objects::{ObjectsView, PublishedObjects};
use shared::Shared;
use store::Store;

/// The objects and the records built from them. [`Index::apply`] takes events; queries see changes
/// only after [`Index::publish`].
///
/// The records depend only on the objects, not on the order of events.
pub struct Index {
    options: Options,
    store: Store,
    nodes: BTreeMap<SmolStr, Node>,
    node_lists: RelistTracker<SmolStr>,
    source: Option<EndpointsSource>,
    in_force: watch::Sender<Option<EndpointsSource>>,
    /// A Service whose Endpoints lack addresses of its slices. Set while slices cannot be read but
    /// stay in use.
    lacking_service: Option<ObjectKey>,
    port_lists: Shared<PortRecords>,
    pods: Pods,
    clusterset: Option<ClusterSet>,
    namespaces: RelistTracker<SmolStr>,
    /// Services whose records must be rebuilt, each with its published reverse records.
    outdated: HashMap<ObjectKey, Vec<(IpAddr, Pointer)>, RandomState>,
    snapshot: Snapshot,
    external: External,
    changed: bool,
    /// Whether objects have changed since the last [`Index::take_objects_changed`], even if no
    /// record has changed.
    objects_changed: bool,
    /// Whether objects have changed since they were last published.
    objects_unpublished: bool,
    published: Arc<Published>,
    published_objects: Arc<PublishedObjects>,
}

#[derive(Default)]
struct External {
    services: TreeCache<Arc<ExternalNode>>,
    /// Whether the external zone has changed since the last [`Index::publish`].
    changed: bool,
}

/// The content of a snapshot file. A copy is cheap, because the objects are shared with the index.
#[derive(Debug, Clone)]
pub struct IndexContent {
    pub(crate) objects: Objects,
    /// The namespaces that the selector matches.
    pub(crate) namespaces: treecache::Map<SmolStr, ()>,
    pub(crate) pods: PodNames,
}

/// Options of the index. The default is the behaviour of kube-dns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Options of the records of Services.
    pub records: RecordOptions,
    /// The answers to pod names.
    pub pods: PodMode,
    /// The namespaces that are served.
    pub namespaces: Namespaces,
    /// The domain of the external zone; `None` if there is no external zone.
    pub external_zone: Option<Name>,
    /// Options of the cluster set's zone; `None` if the zone is not served.
    pub clusterset: Option<ClusterSetZone>,
}

/// The answers to pod names (`--pods`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PodMode {
    /// Answers with the address in the name, as in kube-dns.
    #[default]
    Insecure,
    /// Pod names do not exist.
    Disabled,
    /// Answers with the address in the name if a pod of that namespace has it.
    Verified,
}

/// Progress of the first lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The lists are not complete yet.
    Waiting,
    /// The lists are not complete yet; the records of a snapshot file are served.
    Stale,
    /// The lists did not complete within `--initial-sync-timeout`; the records of a snapshot file
    /// are served.
    StaleOverdue,
    /// The lists are complete.
    Synced,
}

/// Counts of the objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Services.
    pub services: usize,
    /// Cluster IPs of the Services.
    pub cluster_ips: usize,
    /// Endpoints objects.
    pub endpoints: usize,
    /// Addresses in Endpoints objects, ready or not.
    pub endpoints_addresses: usize,
    /// Endpoint slices.
    pub slices: usize,
    /// Addresses in endpoint slices, ready or not.
    pub slices_addresses: usize,
    /// Endpoints objects that the control plane truncated at 1000 addresses.
    pub over_capacity: usize,
    /// Pods with an address; `None` unless pod names are verified.
    pub pods: Option<usize>,
    /// Services of the cluster set; `None` unless the cluster set's zone is served.
    pub imports: Option<usize>,
}

impl Index {
    /// An empty index with default options that publishes to `published`.
    pub fn new(published: Arc<Published>) -> Self {
        Self::with(Options::default(), published)
    }

    /// An empty index with `options` that publishes to `published`.
    pub fn with(options: Options, published: Arc<Published>) -> Self {
        let mut snapshot = (*published.get()).clone();
        snapshot.pods = match options.pods {
            PodMode::Insecure => PodNames::Insecure,
            PodMode::Disabled => PodNames::Disabled,
            PodMode::Verified => PodNames::Verified(treecache::Map::default()),
        };
        snapshot.external = options.external_zone.as_ref().map(Name::to_lowercase);
        snapshot.served = match &options.namespaces {
            Namespaces::All => None,
            Namespaces::Only(names) => Some(names.iter().map(|name| (name.clone(), ())).collect()),
            Namespaces::Selected(_) => Some(treecache::Map::default()),
        };
        let clusterset = options.clusterset.clone().map(ClusterSet::new);
        Self {
            options,
            clusterset,
            store: Store::default(),
            nodes: BTreeMap::new(),
            node_lists: RelistTracker::default(),
            source: None,
            in_force: watch::Sender::new(None),
            lacking_service: None,
            port_lists: Shared::default(),
            pods: Pods::default(),
            namespaces: RelistTracker::default(),
            outdated: HashMap::default(),
            snapshot,
            external: External::default(),
            // The first publication also shows the zones that have no records yet.
            changed: true,
            objects_changed: false,
            objects_unpublished: true,
            published,
            published_objects: Arc::default(),
        }
    }

    /// Applies one event.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Service(Change::RelistDone) => {
                for key in self.store.services.finish() {
                    self.update(&key, Store::remove_service);
                }
                self.check_sync();
            }
            Event::Service(Change::RelistStarted) => self.store.start_list_of_services(),
            Event::Service(Change::Apply(service)) => {
                self.store.services.note_seen(&service.key);
                if !self.store.objects().has_service(&service) {
                    self.update(&service.key, |store, _| store.set_service(&service));
                }
            }
            Event::Service(Change::Deleted(key)) => {
                self.store.services.note_seen(&key);
                self.update(&key, Store::remove_service);
            }
            Event::Endpoints(change) => self.apply_endpoints(change),
            Event::EndpointSlice(change) => self.apply_slice(change),
            Event::Node(change) => self.apply_node(change),
            Event::OwnNode(change) => self.apply_own_node(change),
            Event::Namespace(change) if self.selects_namespaces() => self.apply_namespace(change),
            Event::Pod(change) if self.options.pods == PodMode::Verified => self.apply_pod(change),
            Event::Namespace(_) | Event::Pod(_) => {}
            Event::ServiceImport(change) => self.change_clusterset(|set| set.apply_import(change)),
            Event::ImportedSlice(change) => self.change_clusterset(|set| set.apply_slice(change)),
            Event::EndpointsFrom(source) => self.use_source(source),
            Event::EndpointsInsteadOfSlices => self.fall_back(),
        }
    }

    fn change_clusterset(&mut self, change: impl FnOnce(&mut ClusterSet)) {
        if let Some(clusterset) = &mut self.clusterset {
            change(clusterset);
        }
    }

    fn apply_endpoints(&mut self, change: Change<crate::objects::Endpoints>) {
        match change {
            Change::RelistStarted => self.store.start_list_of_endpoints(),
            Change::RelistDone => {
                for key in self.store.endpoints.finish() {
                    self.update_endpoints(&key, Store::remove_endpoints);
                }
            }
            Change::Apply(endpoints) => {
                self.store.endpoints.note_seen(&endpoints.key);
                if !self.store.objects().has_endpoints(&endpoints) {
                    self.update_endpoints(&endpoints.key, |store, _| {
                        store.set_endpoints(&endpoints);
                    });
                }
            }
            Change::Deleted(key) => {
                self.store.endpoints.note_seen(&key);
                self.update_endpoints(&key, Store::remove_endpoints);
            }
        }
    }

    fn apply_slice(&mut self, change: Change<crate::objects::EndpointSlice>) {
        match change {
            Change::RelistStarted => self.store.start_list_of_slices(),
            Change::RelistDone => {
                for key in self.store.slices.finish() {
                    self.remove_slice(&key);
                }
            }
            Change::Apply(slice) => {
                self.store.slices.note_seen(&slice.key);
                if self.store.objects().has_slice(&slice) {
                    return;
                }
                let service = slice.service_key();
                // A slice can move to another Service: the label that names its Service is mutable.
                if let Some(owner) = self
                    .store
                    .service_of_slice(&slice.key)
                    .filter(|owner| *owner != service)
                {
                    self.remove_slice_of(&owner, &slice.key);
                }
                self.update_endpoints(&service, |store, _| store.set_slice(&slice));
            }
            Change::Deleted(key) => {
                self.store.slices.note_seen(&key);
                self.remove_slice(&key);
            }
        }
    }

    fn remove_slice(&mut self, key: &ObjectKey) {
        if let Some(service) = self.store.service_of_slice(key) {
            self.remove_slice_of(&service, key);
        }
    }

    fn remove_slice_of(&mut self, service: &ObjectKey, key: &ObjectKey) {
        self.update_endpoints(service, |store, service| store.remove_slice(service, key));
    }

    fn apply_node(&mut self, change: Change<Node>) {
        match change {
            Change::RelistStarted => self.node_lists.begin(self.nodes.keys().cloned()),
            Change::RelistDone => {
                for gone in self.node_lists.finish() {
                    self.nodes.remove(&gone);
                }
            }
            Change::Apply(node) => {
                self.node_lists.note_seen(&node.key.name);
                self.nodes.insert(node.key.name.clone(), node);
            }
            Change::Deleted(key) => {
                self.node_lists.note_seen(&key.name);
                self.nodes.remove(&key.name);
            }
        }
        if let Some(federation) = &self.snapshot.federation {
            let domains = federation.domains.clone();
            self.set_federations(domains);
        }
    }

    /// Updates the topology zone of the node that this process runs on. The zone of a deleted node
    /// is kept: this process still runs on it.
    fn apply_own_node(&mut self, change: Change<Node>) {
        let Change::Apply(Node { key, zone, .. }) = change else {
            return;
        };
        if self.options.records.preferred_zone == zone {
            return;
        }
        tracing::info!(node = %key, zone = zone.as_deref().unwrap_or_default(), "zone of this node");
        for key in self.store.keys() {
            self.outdate_endpoints(&key);
        }
        self.options.records.preferred_zone = zone;
    }

    fn apply_namespace(&mut self, change: Change<Namespace>) {
        match change {
            Change::RelistStarted => {
                let served = self.snapshot.served.iter().flat_map(treecache::Map::iter);
                self.namespaces.begin(served.map(|(name, ())| name.clone()));
            }
            Change::RelistDone => {
                for gone in self.namespaces.finish() {
                    self.serve(&gone, false);
                }
                self.check_sync();
            }
            Change::Apply(Namespace { key }) => {
                self.namespaces.note_seen(&key.name);
                self.serve(&key.name, true);
            }
            Change::Deleted(key) => {
                self.namespaces.note_seen(&key.name);
                self.serve(&key.name, false);
            }
        }
    }

    /// Starts or stops serving a namespace.
    fn serve(&mut self, namespace: &SmolStr, serve: bool) {
        if self.snapshot.serves(namespace) == serve {
            return;
        }
        for key in self.store.keys_in(namespace) {
            self.outdate(&key);
        }
        self.change_clusterset(|set| set.outdate(namespace));
        if let Some(served) = &mut self.snapshot.served {
            if serve {
                served.insert(namespace.clone(), ());
            } else {
                served.remove(namespace);
            }
        }
        self.changed = true;
        self.objects_changed = true;
    }

    fn apply_pod(&mut self, change: Change<Pod>) {
        // Pods are not among the published objects.
        self.objects_changed |= self.pods.apply(change);
        self.check_sync();
    }

    /// Changes the objects of one Service. The records are rebuilt only in [`Index::publish`],
    /// because objects of one Service often change together, and rebuilding a large Service is
    /// slow.
    fn update(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Store, &ObjectKey)) {
        self.outdate(key);
        change(&mut self.store, key);
        self.note_objects_changed();
    }

    /// Changes the endpoints of one Service.
    fn update_endpoints(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Store, &ObjectKey)) {
        self.outdate_endpoints(key);
        change(&mut self.store, key);
        self.note_objects_changed();
    }

    fn note_objects_changed(&mut self) {
        self.objects_changed = true;
        self.objects_unpublished = true;
    }

    /// Marks the records of the Service `key` as outdated, if they depend on endpoints. Must be
    /// called before the endpoints change.
    fn outdate_endpoints(&mut self, key: &ObjectKey) {
        let shown = self
            .store
            .service(key)
            .is_some_and(|service| self.options.records.depend_on_endpoints(&service));
        // The answer to a federated name depends on whether the Service has endpoints.
        if shown || self.snapshot.federation.is_some() {
            self.outdate(key);
        }
    }

    /// Marks the records of `key` as outdated. Must be called before the objects change, because
    /// the current reverse records are noted here.
    fn outdate(&mut self, key: &ObjectKey) {
        if !self.outdated.contains_key(key) {
            self.outdated.insert(key.clone(), self.pointers(key));
        }
    }

    /// Rebuilds the records of one Service; `old` are the published reverse records.
    fn rebuild(&mut self, key: &ObjectKey, old: &[(IpAddr, Pointer)]) {
        let new = self.build(key);
        self.replace_pointers(old, &new.pointers);
        let node = new.node.map(|mut node| {
            self.port_lists.share(&mut node.ports);
            Arc::new(node)
        });
        put(&mut self.snapshot.services, key, node);
        put(&mut self.snapshot.aliases, key, new.alias.map(Arc::new));
        self.put_external(key, new.external);
        self.note_backed(key);
    }

    fn put_external(&mut self, key: &ObjectKey, node: Option<ExternalNode>) {
        if self.options.external_zone.is_none() {
            return;
        }
        let node = node.map(|mut node| {
            self.port_lists.share(&mut node.node_mut().ports);
            Arc::new(node)
        });
        self.external.changed |=
            node.as_ref() != self.external.services.entry(&[&key.namespace], &key.name);
        put(&mut self.external.services, key, node);
    }

    /// Copies the external zone into the snapshot.
    fn set_external_zone(&mut self) {
        let Some(domain) = &self.options.external_zone else {
            return;
        };
        let zone = &self.snapshot.zone;
        let records = ExternalZone::new(self.snapshot.synced, self.external.services.clone());
        let further = FurtherZone {
            ttl: zone.ttl,
            negative_ttl: zone.negative_ttl,
            ..FurtherZone::new(domain, Arc::new(records))
        };
        self.snapshot.zones = self.snapshot.zones.with(further);
    }

    fn build(&self, key: &ObjectKey) -> ServiceRecords {
        match self.served(key) {
            Some(service) => self
                .options
                .records
                .build(&service, &self.endpoints_of(&service)),
            None => ServiceRecords::default(),
        }
    }

    /// The reverse records of one Service, from its current objects.
    fn pointers(&self, key: &ObjectKey) -> Vec<(IpAddr, Pointer)> {
        let records = &self.options.records;
        self.served(key).map_or_else(Vec::new, |service| {
            records.pointers(&service, &self.endpoints_of(&service))
        })
    }

    /// The Service, if its namespace is served.
    fn served(&self, key: &ObjectKey) -> Option<Service> {
        self.store
            .service(key)
            .filter(|service| self.snapshot.serves(&service.key.namespace))
    }

    /// The endpoints of a Service; [`ServiceEndpoints::None`] if the records of the Service do not
    /// depend on endpoints.
    fn endpoints_of(&self, service: &Service) -> ServiceEndpoints {
        if self.options.records.depend_on_endpoints(service) {
            self.store.service_endpoints(&service.key, self.source)
        } else {
            ServiceEndpoints::None
        }
    }

    /// Replaces the reverse records `old` of a Service with `new`. Other Services may share an
    /// address; their reverse records stay. Both lists must be sorted, so that a binary search is
    /// fast even with thousands of records.
    fn replace_pointers(&mut self, old: &[(IpAddr, Pointer)], new: &[(IpAddr, Pointer)]) {
        let reverse = &mut self.snapshot.reverse;
        for (ip, pointer) in old.iter().filter(|gone| new.binary_search(gone).is_err()) {
            let owners: OneOrMany<Pointer> = reverse
                .get(ip)
                .into_iter()
                .flatten()
                .filter(|owner| *owner != pointer)
                .cloned()
                .collect();
            if owners.is_empty() {
                reverse.remove(ip);
            } else {
                reverse.insert(*ip, owners);
            }
        }
        for (ip, pointer) in new.iter().filter(|added| old.binary_search(added).is_err()) {
            let mut owners: Vec<Pointer> = reverse
                .get(ip)
                .map(|owners| owners.to_vec())
                .unwrap_or_default();
            owners.push(pointer.clone());
            owners.sort_unstable();
            owners.dedup();
            reverse.insert(*ip, owners.into());
        }
    }

    fn note_backed(&mut self, key: &ObjectKey) {
        if self.snapshot.federation.is_none() {
            return;
        }
        let backed = self.served(key).is_some_and(|service| {
            matches!(service.kind, ServiceKind::ExternalName(_))
                || self
                    .store
                    .service_endpoints(key, self.source)
                    .has_ready_addresses()
        });
        if backed {
            self.snapshot.backed.insert(key.clone(), ());
        } else {
            self.snapshot.backed.remove(key);
        }
    }

    /// The endpoints source in use. The receiver is notified of changes.
    pub fn source(&self) -> watch::Receiver<Option<EndpointsSource>> {
        self.in_force.subscribe()
    }

    /// Switches to Endpoints after slices have become unreadable. If Endpoints lack addresses of
    /// the slices, the last slices stay in use. Endpoints lack addresses, for example, if another
    /// controller writes the slices, or if the Service has two IP families.
    fn fall_back(&mut self) {
        let Some(service) = self
            .store
            .endpoints_lack_addresses(|service| self.options.records.depend_on_endpoints(service))
        else {
            return self.use_source(EndpointsSource::Endpoints);
        };
        if self.lacking_service.is_none() {
            tracing::warn!(
                %service,
                "EndpointSlices can no longer be read and Endpoints lack addresses; keeping the last slices"
            );
        }
        self.lacking_service = Some(service);
    }

    fn use_source(&mut self, source: EndpointsSource) {
        self.lacking_service = None;
        if self.source == Some(source) {
            self.store.forget_other_than(source);
            self.objects_unpublished = true;
            return;
        }
        for key in self.store.keys() {
            self.outdate_endpoints(&key);
        }
        self.source = Some(source);
        self.in_force.send_replace(self.source);
        self.store.forget_other_than(source);
        self.note_objects_changed();
        self.check_sync();
    }

    fn check_sync(&mut self) {
        if !self.snapshot.synced
            && self.store.services.is_complete()
            && self.source.is_some()
            && self.has_options_listed()
        {
            self.snapshot.synced = true;
            self.changed = true;
        }
    }

    /// Whether the lists that only some options require (namespaces, pods) are complete.
    fn has_options_listed(&self) -> bool {
        (!self.selects_namespaces() || self.namespaces.is_complete())
            && (self.options.pods != PodMode::Verified || self.pods.is_listed())
    }

    fn selects_namespaces(&self) -> bool {
        matches!(self.options.namespaces, Namespaces::Selected(_))
    }

    /// Replaces the configuration of the cluster's zone, such as upstreams and stub domains.
    pub fn set_zone(&mut self, zone: skydns::Zone) {
        self.snapshot.zone = zone;
        self.changed = true;
    }

    /// Adds a zone beside the cluster's zone, or replaces the zone with the same domain.
    pub fn set_further_zone(&mut self, zone: FurtherZone) {
        self.snapshot.zones = self.snapshot.zones.with(zone);
        self.changed = true;
    }

    /// Replaces the federations, a map of name to domain.
    pub fn set_federations(&mut self, domains: BTreeMap<String, String>) {
        let topology = self.nodes.values().find_map(|node| {
            Some(Topology {
                zone: node.zone.clone()?,
                region: node.region.clone()?,
            })
        });
        let federation = (!domains.is_empty()).then(|| Arc::new(Federation { domains, topology }));
        if self.snapshot.federation == federation {
            return;
        }
        let had_any = self.snapshot.federation.is_some();
        self.snapshot.federation = federation;
        if had_any != self.snapshot.federation.is_some() {
            self.snapshot.backed = treecache::Map::default();
            for key in self.store.keys() {
                self.note_backed(&key);
            }
        }
        self.changed = true;
    }

    /// Serves the applied objects of a snapshot file, until the first lists replace them.
    pub fn serve_stale(&mut self, source: EndpointsSource) {
        self.use_source(source);
        self.snapshot.synced = true;
        self.changed = true;
    }

    /// Serves an address of pods from a snapshot file, until the first list of pods is complete.
    pub fn show_pods(&mut self, address: IpAddr, namespaces: impl IntoIterator<Item = SmolStr>) {
        if self.options.pods == PodMode::Verified {
            self.pods.show_earlier_run(address, namespaces);
        }
    }

    /// Makes all changes visible to queries. Returns false if there were no changes.
    pub fn publish(&mut self) -> bool {
        if let Some(namespaces) = self.pods.take_changed() {
            self.snapshot.pods = PodNames::Verified(namespaces);
            self.changed = true;
        }
        let zone = self
            .clusterset
            .as_mut()
            .and_then(|set| set.publish(|name| self.snapshot.serves(name)));
        if let Some(zone) = zone {
            self.set_further_zone(zone);
        }
        let outdated = std::mem::take(&mut self.outdated);
        for (key, old) in &outdated {
            self.rebuild(key, old);
        }

        // A reader that sees new records must find their objects.
        self.publish_objects();

        // Until the first lists are complete, nobody is served the records. Publishing them would
        // only share them, and the next batch of the lists would have to copy what it changes.
        let changed = std::mem::take(&mut self.changed);
        if !changed && (outdated.is_empty() || !self.snapshot.synced) {
            return false;
        }
        // The external zone has the TTLs and the sync state of the cluster's zone.
        if std::mem::take(&mut self.external.changed) || changed {
            self.set_external_zone();
        }
        self.published.set(self.snapshot.clone());
        true
    }

    /// Makes all changes of objects visible to readers, also those that change no record. As with
    /// the records, the objects are not shared while the first lists arrive.
    fn publish_objects(&mut self) {
        let Some(source) = self.source else { return };
        if self.snapshot.synced && std::mem::take(&mut self.objects_unpublished) {
            self.published_objects.set(self.store.view(source));
        }
    }

    /// The published objects, for readers on other threads.
    pub fn published_objects(&self) -> Arc<PublishedObjects> {
        Arc::clone(&self.published_objects)
    }

    /// Whether the first lists are complete or a snapshot file is served.
    pub fn has_synced(&self) -> bool {
        self.snapshot.synced
    }

    /// Whether the first lists from the API server are complete.
    pub fn has_listed(&self) -> bool {
        self.has_options_listed()
            && self
                .source
                .is_some_and(|source| self.store.has_listed(source))
    }

    /// Returns whether objects have changed since the last call, even if there is nothing to
    /// publish.
    pub fn take_objects_changed(&mut self) -> bool {
        std::mem::take(&mut self.objects_changed)
    }

    /// Counts of the objects. Every object is visited.
    pub fn counts(&self) -> Counts {
        let pods = (self.options.pods == PodMode::Verified).then(|| self.pods.count());
        let imports = self.clusterset.as_ref().map(ClusterSet::count);
        Counts {
            pods,
            imports,
            ..self.store.objects().counts()
        }
    }

    /// The content for the snapshot file.
    pub fn content(&self) -> IndexContent {
        let selected = self.selects_namespaces();
        IndexContent {
            objects: self.store.objects().clone(),
            namespaces: self
                .snapshot
                .served
                .clone()
                .filter(|_| selected)
                .unwrap_or_default(),
            pods: self.snapshot.pods.clone(),
        }
    }

    /// The objects.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// Sets the value of a Service; `None` removes the value.
fn put<V: Clone>(
    tree: &mut TreeCache<V>,
    ObjectKey { namespace, name }: &ObjectKey,
    value: Option<V>,
) {
    match value {
        Some(value) => drop(tree.set_entry(&[namespace], name.clone(), value)),
        None => drop(tree.remove_entry(&[namespace], name)),
    }
}
