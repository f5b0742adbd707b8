//! Malformed objects: each is counted, and logged once.

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::{BuildHasher as _, RandomState};

use prometheus::IntCounter;

use crate::objects::{Kind, ObjectKey};

/// Bound of the distinct problems that are remembered and logged.
const MAX_REMEMBERED: usize = 1000;

/// The malformed objects of one kind.
#[derive(Debug)]
pub(super) struct Malformed {
    kind: Kind,
    counter: IntCounter,
    /// Hashes of the logged pairs of object and problem.
    known: HashSet<u64>,
    hasher: RandomState,
}

impl Malformed {
    pub(super) fn new(kind: Kind, counter: IntCounter) -> Self {
        Self {
            kind,
            counter,
            known: HashSet::new(),
            hasher: RandomState::new(),
        }
    }

    /// Counts and logs an object that is ignored.
    pub(super) fn object(&mut self, key: Option<&ObjectKey>, problem: &dyn Display) {
        if self.is_new(key, problem) {
            let object = key.map(ToString::to_string).unwrap_or_default();
            tracing::warn!(kind = %self.kind, object, %problem, "malformed object ignored");
        }
    }

    /// Counts and logs an object of which a part is ignored.
    pub(super) fn part(&mut self, key: &ObjectKey, problem: &dyn Display) {
        if self.is_new(Some(key), problem) {
            tracing::warn!(kind = %self.kind, object = %key, %problem, "malformed part of an object ignored");
        }
    }

    /// Counts the problem. Returns whether the problem must be logged.
    fn is_new(&mut self, key: Option<&ObjectKey>, problem: &dyn Display) -> bool {
        self.counter.inc();
        let full = self.known.len() >= MAX_REMEMBERED;
        let new = !full
            && self
                .known
                .insert(self.hasher.hash_one((key, problem.to_string())));
        if new && self.known.len() == MAX_REMEMBERED {
            tracing::warn!(kind = %self.kind, "further malformed objects are counted and not logged");
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_new_once_and_memory_is_bounded() {
        let counter = IntCounter::new("malformed", "help").unwrap();
        let mut malformed = Malformed::new(Kind::Service, counter.clone());
        let key = ObjectKey::new("apps", "db");
        assert!(malformed.is_new(Some(&key), &"no name"));
        assert!(!malformed.is_new(Some(&key), &"no name"));
        assert!(malformed.is_new(Some(&key), &"no port"));
        assert!(malformed.is_new(None, &"no name"));
        for number in 0..5000 {
            malformed.is_new(None, &number);
        }
        assert_eq!(malformed.known.len(), MAX_REMEMBERED);
        assert_eq!(counter.get(), 5004);
    }
}
