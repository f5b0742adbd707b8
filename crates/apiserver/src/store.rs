//! An in-memory store of objects with versions, a bounded history and a signal for watchers.
//!
//! Tests and benchmarks write to [`Store`] directly. Its methods store objects as given: they set
//! only `metadata.resourceVersion`, and check only `apiVersion`, `kind`, name and namespace. Writes
//! of HTTP clients go through [`crate::registry`], which also sets defaults, validates objects and
//! allocates cluster IPs.
//!
//! # Versions
//!
//! As in etcd, one counter numbers the changes of all resources. Every stored or deleted object
//! gets the next number as its `metadata.resourceVersion`. The version of a list is the version of
//! the whole store. [`Store::load`] gives each object its own number. [`Store::expire`] increments
//! the counter, so that every earlier version is too old.

mod history;
mod table;

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

pub(crate) use self::history::Event;
use self::history::Lagged;
use self::table::Table;
use crate::kinds::Resource;
use crate::object::{self, Object, ObjectError, Objects};

/// Default maximum number of events kept for each resource.
pub(crate) const DEFAULT_HISTORY: usize = 20_000;

/// The objects of all resources. Clones share the store.
#[derive(Debug, Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Vec<watch::Sender<u64>>,
}

/// The state of the store, under one lock.
#[derive(Debug)]
pub(crate) struct State {
    version: u64,
    tables: Vec<Table>,
}

/// All objects of a resource, and the version of the store at the time of the read.
#[derive(Debug, Clone)]
pub(crate) struct Listing {
    pub(crate) version: u64,
    pub(crate) objects: Objects,
}

/// The next events of an open watch.
pub(crate) enum Batch {
    /// Events after the requested version.
    Events(Vec<Arc<Event>>),
    /// There are no later events. The value is the version of the newest event of the resource, or
    /// the version at which its history began if there are no events.
    UpToDate(u64),
    /// The next events were evicted.
    Lagged,
}

impl Default for Store {
    fn default() -> Self {
        Self::new(DEFAULT_HISTORY)
    }
}

impl Store {
    /// An empty store that keeps up to `history_limit` events for each resource.
    pub fn new(history_limit: usize) -> Self {
        let state = State {
            version: 1,
            tables: Resource::all()
                .map(|_| Table::new(history_limit, 1))
                .collect(),
        };
        let changed = Resource::all().map(|_| watch::channel(0).0).collect();
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                changed,
            }),
        }
    }

    /// Creates or replaces an object as given, with a new version. Returns this version.
    pub fn set(&self, object: Value) -> Result<u64, ObjectError> {
        let resource = object::resource_of(&object)?;
        self.write(|state| state.set(resource, object))
    }

    /// Removes an object. Returns the version of the deletion; `None` if there is no such object.
    pub fn delete(&self, resource: Resource, namespace: &str, name: &str) -> Option<u64> {
        self.write(|state| {
            let last = state
                .get(resource, &object::key(resource, namespace, name))?
                .value();
            state.remove(resource, last).ok()?
        })
    }

    /// Applies a watch event: `{"type": "ADDED" | "MODIFIED" | "DELETED", "object": {..}}`. Watches
    /// send the object as given, but with a new version.
    ///
    /// For `ADDED` and `MODIFIED`, watches send `ADDED` if the store did not have the object, and
    /// `MODIFIED` otherwise. Returns the new version, or the current version if an object to be
    /// deleted does not exist.
    pub fn apply_event(&self, event: &Value) -> Result<u64, ObjectError> {
        let kind = event
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let object = event.get("object").cloned().unwrap_or_default();
        let resource = object::resource_of(&object)?;
        match kind {
            "ADDED" | "MODIFIED" => self.write(|state| state.set(resource, object)),
            "DELETED" => {
                self.write(|state| Ok(state.remove(resource, object)?.unwrap_or(state.version)))
            }
            other => Err(ObjectError::UnknownEvent(other.to_owned())),
        }
    }

    /// Stores many objects as [`Store::set`] does, but under one lock: no list or watch sees a load
    /// that is still running. Returns the number of objects. An invalid object ends the load with
    /// an error, and the objects before it stay stored.
    pub fn load(&self, objects: impl IntoIterator<Item = Value>) -> Result<usize, ObjectError> {
        self.write(|state| {
            let mut count = 0;
            for object in objects {
                state.set(object::resource_of(&object)?, object)?;
                count += 1;
            }
            Ok(count)
        })
    }

    /// The object with this name, if any.
    pub fn get(&self, resource: Resource, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.shared
            .state
            .lock()
            .get(resource, &object::key(resource, namespace, name))
            .cloned()
    }

    /// All objects of a resource.
    pub(crate) fn list(&self, resource: Resource) -> Listing {
        self.shared.state.lock().list(resource)
    }

    /// The current version of the store.
    pub fn version(&self) -> u64 {
        self.shared.state.lock().version
    }

    /// Expires all versions up to now. A new watch from such a version gets a 410, and so does a
    /// request for the next page of a list. Open watches continue.
    pub(crate) fn expire(&self) {
        self.write(|state| {
            state.expire_watches();
            state.tables.iter_mut().for_each(Table::forget_pages);
        });
    }

    /// Expires all versions up to now for watches, but not for the next pages of lists. A restarted
    /// kube-apiserver does the same: its watch cache is empty, but etcd still has the earlier
    /// versions.
    pub(crate) fn expire_watches(&self) {
        self.write(State::expire_watches);
    }

    /// Renumbers all versions, as after a restore from a backup. The objects stay and get new
    /// versions from 2 on, and the history is empty. A version from before the renumbering may be
    /// higher than the version of the store.
    pub(crate) fn renumber(&self) {
        self.write(State::renumber);
    }

    /// The listing that was kept at `version`; `None` if expired or dropped.
    pub(crate) fn kept(&self, resource: Resource, version: u64) -> Option<Listing> {
        let objects = self.shared.state.lock().table(resource).kept(version)?;
        Some(Listing { version, objects })
    }

    /// Keeps a listing for the next pages of the list.
    pub(crate) fn keep(&self, resource: Resource, listing: &Listing) {
        self.shared
            .state
            .lock()
            .table_mut(resource)
            .keep(listing.version, &listing.objects);
    }

    /// Checks that a watch may start after `version`; the error is the current version.
    pub(crate) fn can_watch(&self, resource: Resource, version: u64) -> Result<(), u64> {
        let state = self.shared.state.lock();
        if state.table(resource).history.can_start(version) {
            Ok(())
        } else {
            Err(state.version)
        }
    }

    /// Up to `max` events after `version`, for an open watch.
    pub(crate) fn after(&self, resource: Resource, version: u64, max: usize) -> Batch {
        let state = self.shared.state.lock();
        match state.table(resource).history.after(version, max) {
            Err(Lagged) => Batch::Lagged,
            Ok(events) if events.is_empty() => {
                Batch::UpToDate(state.table(resource).history.newest())
            }
            Ok(events) => Batch::Events(events),
        }
    }

    /// Subscribes to changes of a resource.
    pub(crate) fn subscribe(&self, resource: Resource) -> watch::Receiver<u64> {
        match self.shared.changed.get(resource as usize) {
            Some(sender) => sender.subscribe(),
            None => watch::channel(0).1,
        }
    }

    /// Number of subscriptions to a resource: one per open watch. The mirroring of Endpoints, if
    /// enabled, adds one for Endpoints and one for `EndpointSlices`.
    pub(crate) fn watchers(&self, resource: Resource) -> usize {
        self.shared
            .changed
            .get(resource as usize)
            .map_or(0, watch::Sender::receiver_count)
    }

    /// Runs `change` under the lock, then wakes the watches of the changed resources.
    pub(crate) fn write<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.shared.state.lock();
        let result = change(&mut state);
        let newest: Vec<u64> = state
            .tables
            .iter()
            .map(|table| table.history.newest())
            .collect();
        drop(state);
        for (sender, newest) in self.shared.changed.iter().zip(newest) {
            sender.send_if_modified(|seen| std::mem::replace(seen, newest) != newest);
        }
        result
    }
}

impl State {
    #[allow(
        clippy::indexing_slicing,
        reason = "one table per resource from the start"
    )]
    fn table(&self, resource: Resource) -> &Table {
        &self.tables[resource as usize]
    }

    #[allow(
        clippy::indexing_slicing,
        reason = "one table per resource from the start"
    )]
    fn table_mut(&mut self, resource: Resource) -> &mut Table {
        &mut self.tables[resource as usize]
    }

    pub(crate) fn get(&self, resource: Resource, key: &str) -> Option<&Arc<Object>> {
        self.table(resource).get(key)
    }

    pub(crate) fn list(&mut self, resource: Resource) -> Listing {
        Listing {
            version: self.version,
            objects: self.table_mut(resource).latest(),
        }
    }

    /// Stores an object as given. Returns the new version.
    pub(crate) fn set(&mut self, resource: Resource, value: Value) -> Result<u64, ObjectError> {
        let version = self.version + 1;
        let object = Object::new(resource, value, version)?;
        self.version = version;
        self.table_mut(resource).set(object);
        Ok(version)
    }

    /// Removes the object with the key of `last`. Watches send `last` as the final state. Returns
    /// the version of the deletion; `None` if there is no such object.
    pub(crate) fn remove(
        &mut self,
        resource: Resource,
        last: Value,
    ) -> Result<Option<u64>, ObjectError> {
        if self
            .get(resource, &object::key_of(resource, &last)?)
            .is_none()
        {
            return Ok(None);
        }
        let version = self.version + 1;
        let last = Object::new(resource, last, version)?;
        self.version = version;
        self.table_mut(resource).remove(last);
        Ok(Some(version))
    }

    fn expire_watches(&mut self) {
        self.version += 1;
        for table in &mut self.tables {
            table.history.expire_watches(self.version);
        }
    }

    fn renumber(&mut self) {
        self.version = 1;
        let renumbered = |version: &mut u64, table: &mut Table| -> Vec<Object> {
            let next = |object: &Arc<Object>| {
                *version += 1;
                object.at_version(*version).ok()
            };
            table.latest().iter().filter_map(next).collect()
        };
        let objects: Vec<Vec<Object>> = self
            .tables
            .iter_mut()
            .map(|table| renumbered(&mut self.version, table))
            .collect();
        for (table, objects) in self.tables.iter_mut().zip(objects) {
            table.restart(objects, self.version);
        }
    }
}

#[cfg(test)]
mod tests;
