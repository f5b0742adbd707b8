//! The index applies the watchers' events, keeps the objects, and publishes the records built from
//! the objects. No other module replaces the published [`Snapshot`].

mod apply;
mod objects;
mod options;
mod packed;
mod pods;
mod published_objects;
mod rebuild;
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

use crate::clusterset::ClusterSet;
use crate::objects::{EndpointsSource, Node, ObjectKey};
use crate::records::{ExternalNode, PortRecords};
use crate::relist::RelistTracker;
use crate::snapshot::{
    Federation, PodNames, PodNamespaces, Published, RecordsFrom, Snapshot, Topology,
};
use crate::watch::Namespaces;
pub use objects::StoredObjects;
pub use options::{IndexOptions, ObjectCounts, PodMode, SyncProgress};
use pods::PodIndex;
pub use published_objects::{ObjectsView, PublishedObjects};
use shared::SharedLists;
pub use store::ObjectStore;

/// The objects and the records built from them. [`Index::apply`] takes events; queries see changes
/// only after [`Index::publish`].
///
/// The records depend on the configuration, the objects and the endpoints source in use, but not on
/// the order of events.
pub struct Index {
    options: IndexOptions,
    store: ObjectStore,
    nodes: BTreeMap<SmolStr, Node>,
    node_lists: RelistTracker,
    source: Option<EndpointsSource>,
    in_force: watch::Sender<Option<EndpointsSource>>,
    /// A Service whose Endpoints lack addresses that its slices have. Because of this Service, the
    /// index did not switch to Endpoints when the slices could no longer be read.
    lacking_service: Option<ObjectKey>,
    port_lists: SharedLists<PortRecords>,
    pods: PodIndex,
    clusterset: Option<ClusterSet>,
    namespaces: RelistTracker,
    /// Services whose records must be rebuilt, each with its published reverse records.
    outdated: HashMap<ObjectKey, Vec<(IpAddr, Pointer)>, RandomState>,
    snapshot: Snapshot,
    external: ExternalServices,
    changed: bool,
    /// Whether Services, endpoints, pods or served namespaces have changed since the last
    /// [`Index::take_objects_changed`], even if no record has changed.
    objects_changed: bool,
    /// Whether objects have changed since they were last published.
    objects_unpublished: bool,
    published: Arc<Published>,
    published_objects: Arc<PublishedObjects>,
}

#[derive(Default)]
struct ExternalServices {
    services: TreeCache<Arc<ExternalNode>>,
    /// Whether the external zone has changed since it was last published.
    changed: bool,
}

/// The content of a snapshot file. A copy is cheap, because the objects are shared with the index.
#[derive(Debug, Clone)]
pub struct IndexContent {
    pub(crate) objects: StoredObjects,
    /// The namespaces that `--namespace-selector` selects; empty without this flag.
    pub(crate) namespaces: treecache::Map<SmolStr, ()>,
    pub(crate) pods: PodNames,
}

impl Index {
    /// An empty index with default options that publishes to `published`.
    pub fn new(published: Arc<Published>) -> Self {
        Self::with_options(IndexOptions::default(), published)
    }

    /// An empty index with `options` that publishes to `published`.
    pub fn with_options(options: IndexOptions, published: Arc<Published>) -> Self {
        let mut snapshot = (*published.get()).clone();
        snapshot.pods = pod_names(options.pods, treecache::Map::default());
        snapshot.external = options.external_zone.as_ref().map(Name::to_lowercase);
        snapshot.served = match &options.namespaces {
            Namespaces::All => None,
            Namespaces::Only(names) => Some(names.iter().map(|name| (name.clone(), ())).collect()),
            // No namespace is served until the Namespace objects are known.
            Namespaces::Selected(_) => Some(treecache::Map::default()),
        };

        Self {
            clusterset: options.clusterset.clone().map(ClusterSet::new),
            options,
            store: ObjectStore::default(),
            nodes: BTreeMap::new(),
            node_lists: RelistTracker::default(),
            source: None,
            in_force: watch::Sender::new(None),
            lacking_service: None,
            port_lists: SharedLists::default(),
            pods: PodIndex::default(),
            namespaces: RelistTracker::default(),
            outdated: HashMap::default(),
            snapshot,
            external: ExternalServices::default(),
            // The first call of `publish` always publishes, so that the configured zones exist
            // before they have records.
            changed: true,
            objects_changed: false,
            objects_unpublished: true,
            published,
            published_objects: Arc::default(),
        }
    }

    /// The endpoints source in use. The receiver is notified of changes.
    pub fn source(&self) -> watch::Receiver<Option<EndpointsSource>> {
        self.in_force.subscribe()
    }

    /// Replaces the configuration of the cluster's zone, such as upstreams and stub domains.
    pub fn set_zone(&mut self, zone: skydns::Zone) {
        self.snapshot.zone = zone;
        self.changed = true;
    }

    /// Adds a further zone, or replaces the further zone with the same domain.
    pub fn set_further_zone(&mut self, zone: FurtherZone) {
        self.snapshot.zones = self.snapshot.zones.with(zone);
        self.changed = true;
    }

    /// Replaces the federations. `domains` maps the name of each federation to its domain.
    pub fn set_federations(&mut self, domains: BTreeMap<String, String>) {
        // The Nodes are sorted by name, so the topology does not depend on the order of events.
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

        let is_switched = self.snapshot.federation.is_some() != federation.is_some();
        self.snapshot.federation = federation;
        // `backed` is filled only while federations are configured, so a switch empties or fills
        // it.
        if is_switched {
            self.snapshot.backed = treecache::Map::default();
            for key in self.store.keys() {
                self.note_backed(&key);
            }
        }
        self.changed = true;
    }

    /// Serves the objects of a snapshot file, which have been applied before this call, until the
    /// first lists replace them. `source` is the source of the file's endpoints.
    pub fn serve_stale(&mut self, source: EndpointsSource) {
        self.use_source(source);
        self.snapshot.records_from = RecordsFrom::SnapshotFile;
        self.changed = true;
    }

    /// Serves `address` as the address of a pod in each of `namespaces`, as stored in a snapshot
    /// file. In each namespace, this ends when the first list of its pods is complete. Does nothing
    /// unless pods are watched.
    pub fn serve_stale_pods(
        &mut self,
        address: IpAddr,
        namespaces: impl IntoIterator<Item = SmolStr>,
    ) {
        if self.options.pods.watches_pods() {
            self.pods.add_stale_address(address, namespaces);
        }
    }

    /// Rebuilds outdated records, and publishes the records and the objects. Returns whether a new
    /// [`Snapshot`] was published. While [`has_synced`](Self::has_synced) is false, changes of
    /// Services and endpoints alone publish nothing.
    pub fn publish(&mut self) -> bool {
        // From now on, the records are those of the lists, even if a snapshot file was served.
        if !self.snapshot.records_from.has_listed() && self.has_listed() {
            self.snapshot.records_from = RecordsFrom::ApiServer;
            self.changed = true;
        }
        if let Some(namespaces) = self.pods.take_changed() {
            self.snapshot.pods = pod_names(self.options.pods, namespaces);
            self.changed = true;
        }
        self.publish_clusterset();

        let outdated = std::mem::take(&mut self.outdated);
        for (key, old) in &outdated {
            self.rebuild_records(key, old);
        }

        // The objects are published before the records, because a reader that sees new records must
        // find their objects.
        self.publish_objects();

        // Before the index has synced, no client gets the records of Services, so a change of these
        // records alone publishes nothing. This saves copies: the published snapshot shares its
        // records with the index, so the next batch of the lists would have to copy the records
        // that it changes.
        let changed = std::mem::take(&mut self.changed);
        if !changed && (outdated.is_empty() || !self.has_synced()) {
            return false;
        }

        // The external zone has the TTLs and the sync state of the cluster's zone.
        if std::mem::take(&mut self.external.changed) || changed {
            self.publish_external_zone();
        }
        self.published.set(self.snapshot.clone());
        true
    }

    fn publish_clusterset(&mut self) {
        let Some(clusterset) = &mut self.clusterset else {
            return;
        };

        let snapshot = &self.snapshot;
        if let Some(zone) = clusterset.build_zone(|namespace| snapshot.serves(namespace)) {
            self.set_further_zone(zone);
        }
    }

    /// Makes all changes of objects visible to readers, including those that change no record.
    /// Publishes nothing before the index has synced.
    fn publish_objects(&mut self) {
        let Some(source) = self.source else { return };
        if self.has_synced() && std::mem::take(&mut self.objects_unpublished) {
            self.published_objects.set(self.store.view(source));
        }
    }

    /// The published objects, for readers on other threads.
    pub fn published_objects(&self) -> Arc<PublishedObjects> {
        Arc::clone(&self.published_objects)
    }

    /// Whether the first lists are complete or a snapshot file is served.
    pub fn has_synced(&self) -> bool {
        self.snapshot.records_from.has_synced()
    }

    /// Whether the first lists from the API server are complete.
    pub fn has_listed(&self) -> bool {
        let Some(source) = self.source else {
            return false;
        };
        self.has_options_listed() && self.store.has_listed(source)
    }

    /// Whether the lists that only some options require (namespaces, pods) are complete.
    fn has_options_listed(&self) -> bool {
        let has_namespaces = !self.selects_namespaces() || self.namespaces.is_complete();
        // With [`PodMode::Node`], pods change no record, so nothing waits for the list of pods.
        let has_pods = self.options.pods != PodMode::Verified || self.pods.is_listed();

        has_namespaces && has_pods
    }

    fn selects_namespaces(&self) -> bool {
        matches!(self.options.namespaces, Namespaces::Selected(_))
    }

    /// Returns whether Services, endpoints, pods or served namespaces have changed since the last
    /// call, even if there is nothing to publish.
    pub fn take_objects_changed(&mut self) -> bool {
        std::mem::take(&mut self.objects_changed)
    }

    /// Counts of the objects. Visits every Service, Endpoints object and slice.
    pub fn counts(&self) -> ObjectCounts {
        let watches_pods = self.options.pods.watches_pods();

        ObjectCounts {
            pods: watches_pods.then(|| self.pods.pod_count()),
            imports: self.clusterset.as_ref().map(ClusterSet::import_count),
            ..self.store.objects().counts()
        }
    }

    /// The content for the snapshot file.
    pub fn content(&self) -> IndexContent {
        // The namespaces in `--namespaces` need not be stored.
        let namespaces = match &self.snapshot.served {
            Some(served) if self.selects_namespaces() => served.clone(),
            _ => treecache::Map::default(),
        };

        IndexContent {
            objects: self.store.objects().clone(),
            namespaces,
            pods: self.snapshot.pods.clone(),
        }
    }

    /// The Services, Endpoints and slices.
    pub fn store(&self) -> &ObjectStore {
        &self.store
    }
}

/// The mode of answers for pod names, with the namespaces of the watched pods.
fn pod_names(mode: PodMode, namespaces: PodNamespaces) -> PodNames {
    match mode {
        PodMode::Insecure => PodNames::Insecure,
        PodMode::Disabled => PodNames::Disabled,
        PodMode::Verified => PodNames::Verified(namespaces),
        PodMode::Node => PodNames::OfNode(namespaces),
    }
}
