//! A new list reveals deletions: known objects that the list does not contain are gone.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hash, RandomState};

/// The progress of the lists of one kind of objects.
///
/// Objects are told apart by a hash of their keys: the keys of all objects of a large cluster would
/// take several times the memory.
#[derive(Debug, Default)]
pub(crate) struct RelistTracker {
    hashers: [RandomState; 2],
    /// The known objects that the current list has not contained yet; `None` between lists.
    unseen: Option<HashSet<KeyHash, foldhash::fast::RandomState>>,
    begun: bool,
    complete: bool,
}

/// Two hashes of a key, with different random seeds. If the hashes of two keys were equal, one
/// object would hide the deletion of the other. With a single hash of 64 bits, this would happen in
/// one of 10^9 lists of 100,000 objects.
type KeyHash = u128;

impl RelistTracker {
    /// Begins a list. `known` holds the objects that may have been deleted.
    pub(crate) fn begin<K: Hash>(&mut self, known: impl IntoIterator<Item = K>) {
        let hashes = known.into_iter().map(|key| self.hash(&key));
        self.unseen = Some(hashes.collect());
        self.begun = true;
    }

    /// Notes that the list contained the object, or that the object is already removed.
    pub(crate) fn note_seen<K: Hash>(&mut self, key: &K) {
        let hash = self.hash(key);
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(&hash);
        }
    }

    /// Ends one part of a list (for example the list of one namespace). `known` holds the known
    /// objects of this part. Returns the objects in `known` that the list did not contain.
    pub(crate) fn finish_part<K: Hash>(&mut self, known: impl IntoIterator<Item = K>) -> Vec<K> {
        let Some(mut unseen) = self.unseen.take() else {
            return Vec::new();
        };

        let mut gone = Vec::new();
        if !unseen.is_empty() {
            let is_gone = |key: &K| unseen.remove(&self.hash(key));
            gone.extend(known.into_iter().filter(is_gone));
        }
        self.unseen = Some(unseen);
        gone
    }

    /// Ends a list. `known` holds all objects; those that the list did not contain are returned.
    pub(crate) fn finish<K: Hash>(&mut self, known: impl IntoIterator<Item = K>) -> Vec<K> {
        let gone = self.finish_part(known);
        self.unseen = None;
        self.complete = true;
        gone
    }

    fn hash<K: Hash>(&self, key: &K) -> KeyHash {
        let [low, high] = &self.hashers;
        KeyHash::from(high.hash_one(key)) << 64 | KeyHash::from(low.hash_one(key))
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
