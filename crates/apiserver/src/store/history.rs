//! The bounded history of events of one resource.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::encode::{self, EventType, Format};
use crate::object::Object;

/// A change of an object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) change: EventType,
    /// The object after the change. For a deletion, the last state of the object, with the version
    /// of the deletion.
    pub(crate) object: Arc<Object>,
    /// The object before the change.
    pub(crate) previous: Option<Arc<Object>>,
    line: OnceLock<Bytes>,
}

/// Events in the order of their versions. Beyond the limit, the oldest event is evicted.
#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Arc<Event>>,
    limit: usize,
    /// Version of the newest evicted event, or the version at which the history began.
    evicted: u64,
    /// The earliest version from which a new watch may start.
    floor: u64,
}

/// The history does not reach back to the requested version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lagged;

impl Event {
    pub(crate) fn new(
        change: EventType,
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
    ) -> Self {
        Self {
            change,
            object,
            previous,
            line: OnceLock::new(),
        }
    }

    /// The event as a line of JSON, encoded once for all watches.
    pub(crate) fn json(&self) -> Bytes {
        self.line
            .get_or_init(|| encode::event(Format::Json, self.change, &self.object))
            .clone()
    }
}

impl History {
    pub(crate) fn new(limit: usize, floor: u64) -> Self {
        Self {
            events: VecDeque::new(),
            limit: limit.max(1),
            evicted: floor,
            floor,
        }
    }

    /// An empty history that begins at `version`.
    pub(crate) fn restarted(&self, version: u64) -> Self {
        Self::new(self.limit, version)
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.events.push_back(Arc::new(event));
        if self.events.len() > self.limit
            && let Some(oldest) = self.events.pop_front()
        {
            self.evicted = oldest.object.version();
            self.floor = self.floor.max(self.evicted);
        }
    }

    /// Expires versions before `version` for new watches.
    pub(crate) fn expire_watches(&mut self, version: u64) {
        self.floor = version;
    }

    /// Whether a watch may start after `version`.
    pub(crate) fn can_start(&self, version: u64) -> bool {
        version >= self.floor
    }

    /// Version of the newest event, or the version at which an empty history began.
    pub(crate) fn newest(&self) -> u64 {
        self.events
            .back()
            .map_or(self.evicted, |event| event.object.version())
    }

    /// Up to `max` events after `version`, for an open watch.
    pub(crate) fn after(&self, version: u64, max: usize) -> Result<Vec<Arc<Event>>, Lagged> {
        if version < self.evicted {
            return Err(Lagged);
        }
        let start = self
            .events
            .partition_point(|event| event.object.version() <= version);
        Ok(self.events.iter().skip(start).take(max).cloned().collect())
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
            history.push(Event::new(EventType::Modified, object, None));
        }
        history
    }

    fn versions(history: &History, after: u64, max: usize) -> Result<Vec<u64>, Lagged> {
        history
            .after(after, max)
            .map(|events| events.iter().map(|e| e.object.version()).collect())
    }

    #[test]
    fn history_returns_later_events() {
        let history = history(10, &[12, 13, 17]);
        assert_eq!(versions(&history, 10, 10), Ok(vec![12, 13, 17]));
        assert_eq!(versions(&history, 12, 1), Ok(vec![13]));
        assert_eq!(versions(&history, 99, 10), Ok(vec![]));
        assert!(history.can_start(10) && !history.can_start(9));
    }

    #[test]
    fn oldest_event_beyond_limit_is_evicted() {
        let history = history(2, &[12, 13, 17]);
        assert_eq!(versions(&history, 12, 10), Ok(vec![13, 17]));
        assert_eq!(versions(&history, 11, 10), Err(Lagged));
        assert!(!history.can_start(11) && history.can_start(12));
    }

    #[test]
    fn expiry_affects_only_new_watches() {
        let mut history = history(10, &[12, 13]);
        history.expire_watches(14);
        let missed = versions(&history, 13, 10);
        assert_eq!(
            missed,
            Ok(vec![]),
            "an open watch at version 13 must continue"
        );
        assert!(!history.can_start(13) && history.can_start(14));
    }
}
