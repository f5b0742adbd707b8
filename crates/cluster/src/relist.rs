//! A new list reveals deletions: known objects that the list does not contain are gone.

use std::collections::HashSet;
use std::hash::Hash;

use foldhash::quality::RandomState;

use crate::objects::ObjectKey;

/// The progress of the lists of one kind of objects. `K` is the key of an object.
#[derive(Debug)]
pub(crate) struct RelistTracker<K> {
    /// The known objects that the current list has not contained yet; `None` between lists.
    unseen: Option<HashSet<K, RandomState>>,
    begun: bool,
    complete: bool,
}

impl<K> Default for RelistTracker<K> {
    fn default() -> Self {
        Self {
            unseen: None,
            begun: false,
            complete: false,
        }
    }
}

impl<K: Hash + Eq> RelistTracker<K> {
    /// Begins a list. `known` holds the objects that may have been deleted.
    pub(crate) fn begin(&mut self, known: impl IntoIterator<Item = K>) {
        self.unseen = Some(known.into_iter().collect());
        self.begun = true;
    }

    /// Notes that the list contained the object, or that the object is already removed.
    pub(crate) fn note_seen(&mut self, key: &K) {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(key);
        }
    }

    /// Ends the part of a list that `is_in_part` selects. Returns the known objects of this part
    /// that the list did not contain.
    pub(crate) fn finish_part(&mut self, is_in_part: impl Fn(&K) -> bool) -> Vec<K> {
        match &mut self.unseen {
            Some(unseen) => unseen.extract_if(is_in_part).collect(),
            None => Vec::new(),
        }
    }

    /// Ends a list and returns the known objects that the list did not contain.
    pub(crate) fn finish(&mut self) -> Vec<K> {
        self.complete = true;
        self.unseen.take().unwrap_or_default().into_iter().collect()
    }

    /// Whether a list has ever begun. From the first list on, a feed keeps the objects up to date.
    /// Objects that were only read from a snapshot file are not followed.
    pub(crate) fn is_followed(&self) -> bool {
        self.begun
    }

    /// Whether a list has ever completed.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }
}

impl RelistTracker<ObjectKey> {
    /// Ends the part of a list in one namespace. Returns the known objects of this namespace that
    /// the list did not contain.
    pub(crate) fn finish_in(&mut self, namespace: &str) -> Vec<ObjectKey> {
        self.finish_part(|key| key.namespace == namespace)
    }
}
