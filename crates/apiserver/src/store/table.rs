//! The objects of one resource, now and at earlier versions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::history::{Change, Event, Gone, History};
use crate::object::Object;

/// The objects of one resource at one moment, in the order of their keys.
pub type Objects = Arc<[Arc<Object>]>;

/// Earlier states kept because somebody is paging through them.
const KEPT_STATES: usize = 8;

/// The objects of one resource.
#[derive(Debug)]
pub(crate) struct Table {
    objects: BTreeMap<Box<str>, Arc<Object>>,
    pub(crate) history: History,
    latest: Option<Objects>,
    earlier: VecDeque<(u64, Objects)>,
}

impl Table {
    pub(crate) fn new(history_limit: usize, version: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            history: History::new(history_limit, version),
            latest: None,
            earlier: VecDeque::new(),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Puts an object in its place and returns what was there.
    pub(crate) fn set(&mut self, object: Object) -> Option<Arc<Object>> {
        let object = Arc::new(object);
        self.latest = None;
        let previous = self.objects.insert(object.key().into(), Arc::clone(&object));
        let change = if previous.is_some() { Change::Modified } else { Change::Added };
        self.history.push(Arc::new(Event::new(change, object, previous.clone())));
        previous
    }

    /// Removes an object; watchers see `last` as its final state.
    pub(crate) fn remove(&mut self, last: Object) -> Option<Arc<Object>> {
        let previous = self.objects.remove(last.key())?;
        self.latest = None;
        self.history.push(Arc::new(Event::new(Change::Deleted, Arc::new(last), Some(Arc::clone(&previous)))));
        Some(previous)
    }

    /// Replaces everything without telling anybody, and forgets the past.
    pub(crate) fn replace(&mut self, objects: Vec<Object>, history_limit: usize, version: u64) {
        let objects = objects.into_iter().map(|object| (object.key().into(), Arc::new(object))).collect();
        *self = Self { objects, ..Self::new(history_limit, version) };
    }

    /// All objects now.
    pub(crate) fn latest(&mut self) -> Objects {
        let objects = &self.objects;
        Arc::clone(self.latest.get_or_insert_with(|| objects.values().cloned().collect()))
    }

    /// All objects at `version`, as long as history reaches back that far.
    pub(crate) fn at(&mut self, version: u64) -> Result<Objects, Gone> {
        if self.history.is_compacted(version) {
            return Err(Gone);
        }
        if version >= self.history.newest() {
            return Ok(self.latest());
        }
        if let Some((_, objects)) = self.earlier.iter().find(|(kept, _)| *kept == version) {
            return Ok(Arc::clone(objects));
        }
        if !self.history.can_rewind(version) {
            return Err(Gone);
        }
        let objects = self.rewind(version);
        self.keep(version, &objects);
        Ok(objects)
    }

    /// Keeps the state at `version` at hand for whoever pages through it.
    pub(crate) fn keep(&mut self, version: u64, objects: &Objects) {
        if self.earlier.iter().any(|(kept, _)| *kept == version) {
            return;
        }
        if self.earlier.len() >= KEPT_STATES {
            self.earlier.pop_front();
        }
        self.earlier.push_back((version, Arc::clone(objects)));
    }

    /// Forgets everything that happened up to `version`.
    pub(crate) fn expire(&mut self, version: u64) {
        self.earlier.clear();
        self.history.expire(version);
    }

    fn rewind(&self, version: u64) -> Objects {
        let mut objects: BTreeMap<&str, &Arc<Object>> =
            self.objects.iter().map(|(key, object)| (&**key, object)).collect();
        for event in self.history.back_to(version) {
            match &event.previous {
                Some(previous) => objects.insert(previous.key(), previous),
                None => objects.remove(event.object.key()),
            };
        }
        objects.into_values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Resource;

    fn object(name: &str, version: u64) -> Object {
        let value = json!({ "metadata": { "name": name, "namespace": "n" } });
        Object::new(Resource::Services, value, version).unwrap()
    }

    fn names(objects: &Objects) -> Vec<String> {
        objects.iter().map(|o| format!("{}@{}", o.name(), o.version())).collect()
    }

    #[test]
    fn earlier_states_come_back() {
        let mut table = Table::new(100, 0);
        table.set(object("a", 1));
        table.set(object("b", 2));
        table.set(object("a", 3));
        table.remove(object("b", 4));
        table.set(object("c", 5));
        let expected: [(u64, &[&str]); 6] = [
            (0, &[]),
            (1, &["a@1"]),
            (2, &["a@1", "b@2"]),
            (3, &["a@3", "b@2"]),
            (4, &["a@3"]),
            (9, &["a@3", "c@5"]),
        ];
        for (version, state) in expected {
            assert_eq!(names(&table.at(version).unwrap()), state, "at {version}");
        }
        table.expire(6);
        assert!(table.at(4).is_err());
        assert_eq!(names(&table.at(6).unwrap()), ["a@3", "c@5"]);
    }

    #[test]
    fn a_page_in_use_outlives_the_history() {
        let mut table = Table::new(1, 0);
        table.set(object("a", 1));
        let state = table.latest();
        table.keep(1, &state);
        table.set(object("b", 2));
        table.set(object("c", 3));
        assert_eq!(names(&table.at(1).unwrap()), ["a@1"]);
        assert!(table.at(0).is_err());
    }
}
