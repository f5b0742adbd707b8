//! What happened to the objects of one resource, as far back as the bound allows.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::object::{Object, head};

/// What an event says happened to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is new.
    Added,
    /// It is different.
    Modified,
    /// It is gone; the event carries its last state.
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    /// What happened.
    pub(crate) change: Change,
    /// The object after it (before it, when deleted, with the version of the deletion).
    pub(crate) object: Arc<Object>,
    /// The object before it.
    pub(crate) previous: Option<Arc<Object>>,
    line: OnceLock<Bytes>,
}

/// Events in the order of their versions, the oldest dropped beyond the bound.
#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Arc<Event>>,
    limit: usize,
    /// Version of the newest event that is no longer here.
    evicted: u64,
    /// New watches start here at the earliest.
    floor: u64,
    /// Lists reach back to here at the earliest.
    compacted: u64,
}

/// A reader wants events that are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

impl Change {
    /// As in a watch event's `type`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

impl Event {
    pub(crate) fn new(change: Change, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self { change, object, previous, line: OnceLock::new() }
    }

    /// Its line in a watch response, made once for all watchers.
    pub(crate) fn line(&self) -> Bytes {
        self.line.get_or_init(|| line(self.change, &self.object)).clone()
    }
}

/// A line of a watch response.
pub(crate) fn line(change: Change, object: &Object) -> Bytes {
    let head = head(object.resource());
    let tail = object.tail();
    let mut text = Vec::with_capacity(head.len() + tail.len() + 32);
    text.extend_from_slice(b"{\"type\":\"");
    text.extend_from_slice(change.as_str().as_bytes());
    text.extend_from_slice(b"\",\"object\":");
    text.extend_from_slice(head.as_bytes());
    text.extend_from_slice(tail);
    text.extend_from_slice(b"}\n");
    text.into()
}

impl History {
    pub(crate) fn new(limit: usize, floor: u64) -> Self {
        Self { events: VecDeque::new(), limit: limit.max(1), evicted: floor, floor, compacted: floor }
    }

    pub(crate) fn push(&mut self, event: Arc<Event>) {
        self.events.push_back(event);
        if self.events.len() > self.limit
            && let Some(oldest) = self.events.pop_front()
        {
            self.evicted = oldest.object.version();
            self.floor = self.floor.max(self.evicted);
        }
    }

    /// Forgets that anything happened up to `version`: what starts from an earlier one is told that it is too old.
    pub(crate) fn expire(&mut self, version: u64) {
        if let Some(last) = self.events.back() {
            self.evicted = last.object.version();
        }
        self.events.clear();
        self.floor = version;
        self.compacted = version;
    }

    /// Refuses new watches from before `version`; lists at such versions go on.
    pub(crate) fn expire_watches(&mut self, version: u64) {
        self.floor = version;
    }

    /// Whether a watch may start after `version`.
    pub(crate) fn can_start(&self, version: u64) -> bool {
        version >= self.floor
    }

    /// Whether the state at `version` can be had back from the events.
    pub(crate) fn can_rewind(&self, version: u64) -> bool {
        version >= self.evicted && !self.is_compacted(version)
    }

    /// Whether everything about `version` is forgotten.
    pub(crate) fn is_compacted(&self, version: u64) -> bool {
        version < self.compacted
    }

    /// Version of the newest event, or of the newest one forgotten.
    pub(crate) fn newest(&self) -> u64 {
        self.events.back().map_or(self.evicted, |event| event.object.version())
    }

    /// Up to `max` events after `version`, for a watch that is under way.
    pub(crate) fn after(&self, version: u64, max: usize) -> Result<Vec<Arc<Event>>, Gone> {
        if version < self.evicted {
            return Err(Gone);
        }
        let start = self.events.partition_point(|event| event.object.version() <= version);
        Ok(self.events.iter().skip(start).take(max).cloned().collect())
    }

    /// Events after `version`, newest first.
    pub(crate) fn back_to(&self, version: u64) -> impl Iterator<Item = &Arc<Event>> {
        self.events.iter().rev().take_while(move |event| event.object.version() > version)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Resource;

    fn history(limit: usize, versions: &[u64]) -> History {
        let mut history = History::new(limit, 10);
        for version in versions {
            let value = json!({ "metadata": { "name": "a", "namespace": "b" } });
            let object = Arc::new(Object::new(Resource::Services, value, *version).unwrap());
            history.push(Arc::new(Event::new(Change::Modified, object, None)));
        }
        history
    }

    fn versions(history: &History, after: u64, max: usize) -> Result<Vec<u64>, Gone> {
        history.after(after, max).map(|events| events.iter().map(|e| e.object.version()).collect())
    }

    #[test]
    fn gives_what_came_after() {
        let history = history(10, &[12, 13, 17]);
        assert_eq!(versions(&history, 10, 10), Ok(vec![12, 13, 17]));
        assert_eq!(versions(&history, 12, 1), Ok(vec![13]));
        assert_eq!(versions(&history, 99, 10), Ok(vec![]));
        assert!(history.can_start(10) && !history.can_start(9));
    }

    #[test]
    fn forgets_beyond_its_bound() {
        let history = history(2, &[12, 13, 17]);
        assert_eq!(versions(&history, 12, 10), Ok(vec![13, 17]));
        assert_eq!(versions(&history, 11, 10), Err(Gone));
        assert!(!history.can_start(11) && history.can_start(12));
    }

    #[test]
    fn expiry_leaves_those_who_are_up_to_date() {
        let mut history = history(10, &[12, 13]);
        history.expire(14);
        assert_eq!(versions(&history, 13, 10), Ok(vec![]), "a live watch that saw 13 goes on");
        assert_eq!(versions(&history, 12, 10), Err(Gone));
        assert!(!history.can_start(13), "a new watch from 13 is too old");
        assert!(!history.can_rewind(12));
    }
}
