//! Where the objects are: an in-memory store with versions, a bounded history and a signal for watchers.
//!
//! [`Store`] is also the direct way in for tests and benchmarks: its methods store objects exactly as given, without
//! defaults, validation or allocation. What HTTP clients may do is in [`crate::registry`].
//!
//! # Versions
//!
//! One counter for all resources, as in etcd: every stored or deleted object takes the next number, which becomes its
//! `metadata.resourceVersion`. A list has the version of the whole store at that moment. [`Store::load`] numbers its
//! objects one after the other. [`Store::expire`] takes a number too, so that whatever was handed out before it is older
//! than what is kept.

mod history;
mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

pub(crate) use self::history::line;
pub(crate) use self::history::{Change, Event};
pub use self::table::Objects;
use self::table::Table;
use crate::allocate::Ledger;
use crate::kinds::Resource;
use crate::object::{self, Object, ObjectError};

/// Events kept per resource when nothing else is said.
pub(crate) const DEFAULT_HISTORY: usize = 20_000;

/// The objects of all resources. Cloning gives another handle to the same store.
#[derive(Debug, Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Vec<watch::Sender<u64>>,
}

/// Everything that a write may touch, under one lock.
#[derive(Debug)]
pub(crate) struct State {
    version: u64,
    tables: Vec<Table>,
    ledger: Ledger,
    history_limit: usize,
}

/// All objects of a resource and the version of the store they were read at.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Version of the store.
    pub version: u64,
    /// The objects in the order of their keys.
    pub objects: Objects,
}

/// What a watch that is under way got.
pub(crate) enum Batch {
    /// Events after the version asked for.
    Events(Vec<Arc<Event>>),
    /// It has seen everything; the last change of its resource was at this version.
    UpToDate(u64),
    /// Events it has not seen are gone.
    Lagged,
}

/// The version asked for is too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooOld {
    /// The version of the store.
    pub(crate) current: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self::new(DEFAULT_HISTORY)
    }
}

impl Store {
    /// An empty store that remembers up to `history_limit` events per resource.
    pub fn new(history_limit: usize) -> Self {
        let state = State {
            version: 1,
            tables: Resource::all().map(|_| Table::new(history_limit, 1)).collect(),
            ledger: Ledger::default(),
            history_limit,
        };
        let changed = Resource::all().map(|_| watch::channel(0).0).collect();
        Self { shared: Arc::new(Shared { state: Mutex::new(state), changed }) }
    }

    /// Stores an object exactly as given, new or in place of the one with its name. Returns its version.
    pub fn set(&self, object: Value) -> Result<u64, ObjectError> {
        let resource = object::resource_of(&object)?;
        self.write(|state| state.set(resource, object))
    }

    /// Removes an object. Returns the version of the deletion, or nothing if there was no such object.
    pub fn delete(&self, resource: Resource, namespace: &str, name: &str) -> Option<u64> {
        self.write(|state| {
            let last = state.get(resource, &object::key(resource, namespace, name))?.value();
            state.remove(resource, last).ok()?
        })
    }

    /// Does what a watch event says: `{"type": "ADDED" | "MODIFIED" | "DELETED", "object": {..}}`. The object reaches
    /// watchers as given, apart from its version; whether they see `ADDED` or `MODIFIED` depends on whether the object was there.
    /// Returns the version; a deletion of what is not there takes none and returns the current one.
    pub fn apply_event(&self, event: &Value) -> Result<u64, ObjectError> {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        let object = event.get("object").cloned().unwrap_or_default();
        let resource = object::resource_of(&object)?;
        match kind {
            "ADDED" | "MODIFIED" => self.write(|state| state.set(resource, object)),
            "DELETED" => self.write(|state| Ok(state.remove(resource, object)?.unwrap_or(state.version))),
            other => Err(ObjectError::UnknownEvent(other.to_owned())),
        }
    }

    /// Stores many objects exactly as given, in one go: no list and no watcher sees a part of them. Stops at the first
    /// that cannot be stored. Returns how many there were.
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

    /// One object.
    pub fn get(&self, resource: Resource, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.lock().get(resource, &object::key(resource, namespace, name)).cloned()
    }

    /// All objects of a resource.
    pub fn list(&self, resource: Resource) -> Listing {
        self.lock().list(resource)
    }

    /// How many objects of a resource there are.
    pub fn count(&self, resource: Resource) -> usize {
        self.lock().table(resource).len()
    }

    /// The version of the store: that of the last change.
    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// Forgets all history: whatever was handed out before is too old for a new watch, a page of a list or an exact list.
    /// Watches that are open and up to date go on.
    pub fn expire(&self) {
        self.write(|state| {
            state.version += 1;
            let version = state.version;
            state.tables.iter_mut().for_each(|table| table.expire(version));
        });
    }

    /// Like [`Store::expire`], but only for watches: pages and exact lists at earlier versions still work, as when a real
    /// server's watch cache is younger than its etcd.
    pub fn expire_watches(&self) {
        self.write(|state| {
            state.version += 1;
            let version = state.version;
            state.tables.iter_mut().for_each(|table| table.history.expire_watches(version));
        });
    }

    /// Starts a fresh space of versions, as after a restore from a backup: the objects stay, their versions start again
    /// at 1, and nothing is known of the past. Versions handed out before may lie in the future afterwards.
    pub fn renumber(&self) {
        self.write(State::renumber);
    }

    /// All objects of a resource at an earlier version.
    pub(crate) fn list_at(&self, resource: Resource, version: u64) -> Result<Listing, TooOld> {
        let mut state = self.lock();
        let current = state.version;
        let table = state.table_mut(resource);
        match table.at(version) {
            Ok(objects) => Ok(Listing { version, objects }),
            Err(history::Gone) => Err(TooOld { current }),
        }
    }

    /// Keeps a listing at hand for whoever asks for its next page.
    pub(crate) fn keep(&self, resource: Resource, listing: &Listing) {
        self.lock().table_mut(resource).keep(listing.version, &listing.objects);
    }

    /// Whether a watch may start after `version`.
    pub(crate) fn can_watch(&self, resource: Resource, version: u64) -> Result<(), TooOld> {
        let state = self.lock();
        if state.table(resource).history.can_start(version) {
            Ok(())
        } else {
            Err(TooOld { current: state.version })
        }
    }

    /// Events after `version` for a watch that is under way.
    pub(crate) fn after(&self, resource: Resource, version: u64, max: usize) -> Batch {
        let state = self.lock();
        match state.table(resource).history.after(version, max) {
            Err(history::Gone) => Batch::Lagged,
            Ok(events) if events.is_empty() => Batch::UpToDate(state.table(resource).history.newest()),
            Ok(events) => Batch::Events(events),
        }
    }

    /// A signal that changes with every change of a resource.
    pub(crate) fn subscribe(&self, resource: Resource) -> watch::Receiver<u64> {
        match self.shared.changed.get(resource as usize) {
            Some(sender) => sender.subscribe(),
            None => watch::channel(0).1,
        }
    }

    /// Watches that are open.
    pub(crate) fn watchers(&self, resource: Resource) -> usize {
        self.shared.changed.get(resource as usize).map_or(0, watch::Sender::receiver_count)
    }

    /// Reads and writes under the lock, then wakes the watchers of what changed.
    pub(crate) fn write<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        let newest: Vec<u64> = state.tables.iter().map(|table| table.history.newest()).collect();
        drop(state);
        for (sender, newest) in self.shared.changed.iter().zip(newest) {
            sender.send_if_modified(|seen| std::mem::replace(seen, newest) != newest);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    #[allow(clippy::indexing_slicing, reason = "one table per resource from the start")]
    fn table(&self, resource: Resource) -> &Table {
        &self.tables[resource as usize]
    }

    #[allow(clippy::indexing_slicing, reason = "one table per resource from the start")]
    fn table_mut(&mut self, resource: Resource) -> &mut Table {
        &mut self.tables[resource as usize]
    }

    pub(crate) fn get(&self, resource: Resource, key: &str) -> Option<&Arc<Object>> {
        self.table(resource).get(key)
    }

    pub(crate) fn list(&mut self, resource: Resource) -> Listing {
        Listing { version: self.version, objects: self.table_mut(resource).latest() }
    }

    /// Addresses in use.
    pub(crate) fn ledger(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// The version that the next change will take.
    pub(crate) fn next_version(&self) -> u64 {
        self.version + 1
    }

    /// Stores an object as given.
    pub(crate) fn set(&mut self, resource: Resource, value: Value) -> Result<u64, ObjectError> {
        let version = self.next_version();
        let object = Object::new(resource, value, version)?;
        self.ledger.take(object.addresses());
        self.version = version;
        if let Some(previous) = self.table_mut(resource).set(object) {
            self.ledger.release(previous.addresses());
        }
        Ok(version)
    }

    /// Removes the object with the name of `last`, which watchers see as its final state. Nothing happens if there is none.
    pub(crate) fn remove(&mut self, resource: Resource, last: Value) -> Result<Option<u64>, ObjectError> {
        if self.get(resource, &object::key_of(resource, &last)?).is_none() {
            return Ok(None);
        }
        let version = self.next_version();
        let last = Object::new(resource, last, version)?;
        self.version = version;
        if let Some(previous) = self.table_mut(resource).remove(last) {
            self.ledger.release(previous.addresses());
        }
        Ok(Some(version))
    }

    fn renumber(&mut self) {
        let limit = self.history_limit;
        let mut version = 1;
        let mut renumbered: Vec<Vec<Object>> = Vec::with_capacity(self.tables.len());
        for table in &mut self.tables {
            let mut objects = Vec::with_capacity(table.len());
            for object in table.latest().iter() {
                version += 1;
                objects.extend(object.at_version(version));
            }
            renumbered.push(objects);
        }
        self.version = version;
        for (table, objects) in self.tables.iter_mut().zip(renumbered) {
            table.replace(objects, limit, version);
        }
    }
}

#[cfg(test)]
mod tests;
