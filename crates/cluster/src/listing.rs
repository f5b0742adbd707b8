//! A list that replaces what was known, object by object: what it does not name is gone at its end.

use std::collections::HashSet;
use std::hash::Hash;

use foldhash::quality::RandomState;

/// The lists of one kind of objects, by their keys.
#[derive(Debug)]
pub(crate) struct Listing<K> {
    /// The known objects that a running list has not named yet.
    unseen: Option<HashSet<K, RandomState>>,
    begun: bool,
    complete: bool,
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self { unseen: None, begun: false, complete: false }
    }
}

impl<K: Hash + Eq> Listing<K> {
    /// Begins a list; `known` is what may be gone.
    pub(crate) fn begin(&mut self, known: impl IntoIterator<Item = K>) {
        self.unseen = Some(known.into_iter().collect());
        self.begun = true;
    }

    /// The object was named, or is gone already.
    pub(crate) fn settle(&mut self, key: &K) {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(key);
        }
    }

    /// Ends a list and returns what it did not name.
    pub(crate) fn finish(&mut self) -> Vec<K> {
        self.complete = true;
        self.unseen.take().unwrap_or_default().into_iter().collect()
    }

    /// Whether a list was ever begun: a feed keeps these objects up to date. Those of a snapshot file are nobody's.
    pub(crate) fn is_followed(&self) -> bool {
        self.begun
    }

    /// Whether a list was ever complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }
}
