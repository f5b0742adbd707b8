//! The last versions of the records. A version shares its unchanged parts with the next version, so only changes take
//! memory.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::content::Names;
use crate::backend::View;
use crate::wire::Name;

/// Maximum number of versions, including the current one.
const MAX_VERSIONS: usize = 64;
/// Time for which a version is kept after its replacement.
const MAX_AGE: Duration = Duration::from_mins(10);

pub(super) struct Version<V> {
    pub(super) serial: u32,
    pub(super) view: Arc<V>,
    /// The names of each zone. All current transfers of a zone share the names.
    names: Mutex<Vec<(Name, Weak<Names>)>>,
}

impl<V: View> Version<V> {
    pub(super) fn new(serial: u32, view: Arc<V>) -> Self {
        Self { serial, view, names: Mutex::default() }
    }

    /// The owner names of zone `domain`.
    pub(super) fn names(&self, domain: &Name) -> Arc<Names> {
        let mut known = self.names.lock();
        known.retain(|(_, names)| names.strong_count() > 0);
        let found = known.iter().find(|(zone, _)| zone == domain).and_then(|(_, names)| names.upgrade());
        found.unwrap_or_else(|| {
            let names = Arc::new(Names::of(&*self.view, domain));
            known.push((domain.clone(), Arc::downgrade(&names)));
            names
        })
    }
}

pub(super) struct History<V> {
    current: Option<Arc<Version<V>>>,
    /// Replaced versions, the oldest first, each with the time of its replacement.
    older: VecDeque<(Arc<Version<V>>, Instant)>,
}

impl<V> Default for History<V> {
    fn default() -> Self {
        Self { current: None, older: VecDeque::new() }
    }
}

impl<V> History<V> {
    pub(super) fn current(&self) -> Option<&Arc<Version<V>>> {
        self.current.as_ref()
    }

    /// The version with the serial `serial`, if it is kept.
    pub(super) fn find(&self, serial: u32) -> Option<&Arc<Version<V>>> {
        let older = self.older.iter().map(|(version, _)| version);
        older.chain(&self.current).find(|version| version.serial == serial)
    }

    /// Makes `version` the current version. `now` is the time of the replacement.
    pub(super) fn push(&mut self, version: Version<V>, now: Instant) {
        let replaced = self.current.replace(Arc::new(version));
        self.older.extend(replaced.map(|version| (version, now)));
        self.forget(now);
    }

    /// Drops expired versions, and the oldest versions beyond [`MAX_VERSIONS`].
    pub(super) fn forget(&mut self, now: Instant) {
        let too_old = |replaced: &Instant| now.duration_since(*replaced) > MAX_AGE;
        while self.older.len() >= MAX_VERSIONS
            || self.older.front().is_some_and(|(_, replaced)| too_old(replaced))
        {
            self.older.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serials(history: &History<()>) -> Vec<u32> {
        (0..1000).filter(|serial| history.find(*serial).is_some()).collect()
    }

    fn version(serial: u32) -> Version<()> {
        Version { serial, view: Arc::new(()), names: Mutex::default() }
    }

    #[test]
    fn old_versions_are_forgotten_by_number_and_by_age() {
        let (mut history, start) = (History::default(), Instant::now());
        assert!(history.current().is_none());
        for serial in 0..100 {
            history.push(version(serial), start + Duration::from_secs(serial.into()));
        }
        assert_eq!(serials(&history), (36..100).collect::<Vec<_>>());
        // The age of a version counts from its replacement.
        let later = start + Duration::from_secs(99) + MAX_AGE;
        history.forget(later);
        assert_eq!(serials(&history), vec![98, 99]);
        history.push(version(100), later + Duration::from_secs(1));
        assert_eq!(serials(&history), vec![99, 100]);
    }
}
