//! The zone of a cluster set (KEP-1645). Its records are built from `ServiceImport`s and from the
//! `EndpointSlice`s of all clusters of the set. The zone shares no objects with the cluster's own
//! zone.

mod import;
mod zone;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use foldhash::quality::RandomState;
use skydns::FurtherZone;
use smol_str::SmolStr;
use wire::Name;

use crate::objects::{Change, ImportedSlice, ObjectKey, ServiceImport};
use crate::relist::RelistTracker;
pub use import::ImportNode;
pub use zone::ImportRecords;

/// Options of the zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSetZone {
    /// The domain, such as `clusterset.local`.
    pub domain: Name,
    /// TTL of the answers, in seconds; `None` for the default TTL.
    pub ttl: Option<u32>,
    /// TTL of negative answers, in seconds.
    pub negative_ttl: u32,
}

/// The objects of the cluster set, and the records built from them.
///
/// The order in which the objects arrive does not affect the records.
#[derive(Debug)]
pub(crate) struct ClusterSet {
    zone: ClusterSetZone,
    imports: HashMap<ObjectKey, ServiceImport, RandomState>,
    /// Slices by the key of their import, then by the name of the slice.
    slices: HashMap<ObjectKey, BTreeMap<SmolStr, ImportedSlice>, RandomState>,
    /// The key of each slice's import. A slice can move to another import, because the label with
    /// the import's name is mutable.
    owners: HashMap<ObjectKey, ObjectKey, RandomState>,
    import_lists: RelistTracker,
    slice_lists: RelistTracker,
    /// Keys of the imports whose records must be rebuilt.
    outdated: HashSet<ObjectKey, RandomState>,
    records: ImportRecords,
    changed: bool,
}

/// The keys of the objects in a namespace.
fn keys_in<V>(
    objects: &HashMap<ObjectKey, V, RandomState>,
    namespace: &str,
) -> impl Iterator<Item = ObjectKey> {
    let keys = objects.keys().filter(move |key| key.namespace == namespace);
    keys.cloned()
}

impl ClusterSet {
    pub(crate) fn new(zone: ClusterSetZone) -> Self {
        Self {
            zone,
            imports: HashMap::default(),
            slices: HashMap::default(),
            owners: HashMap::default(),
            import_lists: RelistTracker::default(),
            slice_lists: RelistTracker::default(),
            outdated: HashSet::default(),
            records: ImportRecords::default(),
            changed: true,
        }
    }

    pub(crate) fn apply_import(&mut self, change: Change<ServiceImport>) {
        match change {
            Change::RelistStarted => self.import_lists.begin(self.imports.keys()),
            Change::RelistDoneIn(namespace) => {
                let known = keys_in(&self.imports, &namespace);
                for key in self.import_lists.finish_part(known) {
                    self.remove_import(&key);
                }
            }
            Change::RelistDone => {
                for key in self.import_lists.finish(self.imports.keys().cloned()) {
                    self.remove_import(&key);
                }
                self.check_sync();
            }
            Change::Apply(import) => {
                let key = import.0.key.clone();
                self.import_lists.note_seen(&key);
                // A list also contains objects that have not changed. Their records are kept.
                if self.imports.get(&key) != Some(&import) {
                    self.imports.insert(key.clone(), import);
                    self.outdated.insert(key);
                }
            }
            Change::Deleted(key) => {
                self.import_lists.note_seen(&key);
                self.remove_import(&key);
            }
        }
    }

    fn remove_import(&mut self, key: &ObjectKey) {
        if self.imports.remove(key).is_some() {
            self.outdated.insert(key.clone());
        }
    }

    pub(crate) fn apply_slice(&mut self, change: Change<ImportedSlice>) {
        match change {
            Change::RelistStarted => self.slice_lists.begin(self.owners.keys()),
            Change::RelistDoneIn(namespace) => {
                let known = keys_in(&self.owners, &namespace);
                for key in self.slice_lists.finish_part(known) {
                    self.remove_slice(&key);
                }
            }
            Change::RelistDone => {
                for key in self.slice_lists.finish(self.owners.keys().cloned()) {
                    self.remove_slice(&key);
                }
                self.check_sync();
            }
            Change::Apply(slice) => {
                self.slice_lists.note_seen(&slice.slice.key);
                self.set_slice(slice);
            }
            Change::Deleted(key) => {
                self.slice_lists.note_seen(&key);
                self.remove_slice(&key);
            }
        }
    }

    fn set_slice(&mut self, slice: ImportedSlice) {
        let key = slice.slice.key.clone();
        let owner = slice.slice.service_key();
        // The label that names the import is mutable, so a slice can move.
        if self.owners.get(&key).is_some_and(|before| *before != owner) {
            self.remove_slice(&key);
        }

        let slices = self.slices.entry(owner.clone()).or_default();
        if slices.get(&key.name) == Some(&slice) {
            return;
        }

        slices.insert(key.name.clone(), slice);
        self.owners.insert(key, owner.clone());
        self.outdated.insert(owner);
    }

    fn remove_slice(&mut self, key: &ObjectKey) {
        let Some(owner) = self.owners.remove(key) else {
            return;
        };

        if let Some(slices) = self.slices.get_mut(&owner) {
            slices.remove(&key.name);
            if slices.is_empty() {
                self.slices.remove(&owner);
            }
        }

        self.outdated.insert(owner);
    }

    fn check_sync(&mut self) {
        let is_complete = self.import_lists.is_complete() && self.slice_lists.is_complete();
        if is_complete && !self.records.synced {
            self.records.synced = true;
            self.changed = true;
        }
    }

    /// The number of imports.
    pub(crate) fn import_count(&self) -> usize {
        self.imports.len()
    }

    /// Marks the records of a namespace as outdated. Must be called when the namespace starts or
    /// stops being served.
    pub(crate) fn mark_namespace_outdated(&mut self, namespace: &str) {
        let of_namespace = self.imports.keys().filter(|key| key.namespace == namespace);
        self.outdated.extend(of_namespace.cloned());
    }

    /// Rebuilds the outdated records. Returns the zone at the first call, and later only if the
    /// zone has changed since the previous call. `serves` returns whether a namespace is served.
    pub(crate) fn build_zone(&mut self, serves: impl Fn(&str) -> bool) -> Option<FurtherZone> {
        for key in std::mem::take(&mut self.outdated) {
            let node = if serves(&key.namespace) {
                self.build_node(&key)
            } else {
                None
            };
            self.changed |= self.records.set_node(&key, node.map(Arc::new));
        }
        if !std::mem::take(&mut self.changed) {
            return None;
        }

        let records = Arc::new(self.records.clone());
        Some(FurtherZone {
            ttl: self.zone.ttl,
            negative_ttl: self.zone.negative_ttl,
            ..FurtherZone::new(&self.zone.domain, records)
        })
    }

    fn build_node(&self, key: &ObjectKey) -> Option<ImportNode> {
        let import = self.imports.get(key)?;
        let slices = self.slices.get(key).into_iter().flat_map(BTreeMap::values);

        ImportNode::build(&import.0, slices)
    }
}

#[cfg(test)]
mod tests;
