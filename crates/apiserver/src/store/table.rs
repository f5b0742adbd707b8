//! The current objects of one resource, the history of their changes, and earlier states for
//! clients that page through a list.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::history::{Event, History};
use crate::encode::EventType;
use crate::object::{Object, Objects};

/// Maximum number of earlier states kept for paging. The oldest is dropped first.
const KEPT_STATES: usize = 16;

/// The objects of one resource.
#[derive(Debug)]
pub(crate) struct Table {
    objects: BTreeMap<Box<str>, Arc<Object>>,
    pub(crate) history: History,
    latest: Option<Objects>,
    kept: VecDeque<(u64, Objects)>,
}

impl Table {
    pub(crate) fn new(history_limit: usize, version: u64) -> Self {
        let history = History::new(history_limit, version);
        Self {
            objects: BTreeMap::new(),
            history,
            latest: None,
            kept: VecDeque::new(),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// Adds or replaces an object.
    pub(crate) fn set(&mut self, object: Object) {
        let object = Arc::new(object);
        self.latest = None;
        let previous = self
            .objects
            .insert(object.key().into(), Arc::clone(&object));
        let event_type = if previous.is_some() {
            EventType::Modified
        } else {
            EventType::Added
        };
        self.history.push(Event::new(event_type, object, previous));
    }

    /// Removes an object. Watches send `last` as the final state.
    pub(crate) fn remove(&mut self, last: Object) {
        if let Some(previous) = self.objects.remove(last.key()) {
            self.latest = None;
            self.history.push(Event::new(
                EventType::Deleted,
                Arc::new(last),
                Some(previous),
            ));
        }
    }

    /// Replaces all objects without events, and drops the history and the states for paging.
    pub(crate) fn restart(&mut self, objects: Vec<Object>, version: u64) {
        self.objects = objects
            .into_iter()
            .map(|object| (object.key().into(), Arc::new(object)))
            .collect();
        self.history = self.history.restarted(version);
        self.latest = None;
        self.forget_pages();
    }

    /// All current objects.
    pub(crate) fn latest(&mut self) -> Objects {
        let objects = &self.objects;
        Arc::clone(
            self.latest
                .get_or_insert_with(|| objects.values().cloned().collect()),
        )
    }

    /// The kept state at `version`.
    pub(crate) fn kept(&self, version: u64) -> Option<Objects> {
        self.kept
            .iter()
            .find(|(kept, _)| *kept == version)
            .map(|(_, objects)| Arc::clone(objects))
    }

    /// Keeps the state at `version` for paging.
    pub(crate) fn keep(&mut self, version: u64, objects: &Objects) {
        if self.kept(version).is_some() {
            return;
        }
        if self.kept.len() >= KEPT_STATES {
            self.kept.pop_front();
        }
        self.kept.push_back((version, Arc::clone(objects)));
    }

    /// Drops the states for paging.
    pub(crate) fn forget_pages(&mut self) {
        self.kept.clear();
    }
}
