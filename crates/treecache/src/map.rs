//! A persistent hash map: a trie over 64-bit hashes with small buckets as leaves.
//!
//! Most maps in a `TreeCache` hold one or two entries. Such a small map takes one small allocation.
//! A general persistent map would take more memory. Some maps hold 10,000 entries. An insertion
//! into such a large map copies few entries; a sorted vector would copy all.

mod bucket_tags;

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use self::bucket_tags::BucketTags;

/// Number of children of an inner node; four bits of the hash choose one.
const FANOUT: usize = 16;
const BITS: u32 = FANOUT.trailing_zeros();
/// Maximum number of entries in a bucket. A larger bucket is split, unless all bits of the hash are
/// used.
const MAX_BUCKET: usize = 16;
/// An inner node with at most this many entries becomes a bucket again. This is half a bucket, so
/// that alternating insertions and removals do not split and merge the same bucket again and again.
const MAX_MERGED: usize = MAX_BUCKET / 2;

/// A persistent hash map. A clone only increments a reference count. A change copies at most a few
/// small buckets and `O(log n)` inner nodes. Inner nodes that no other map shares are changed in
/// place.
pub struct Map<K, V> {
    root: TrieNode<K, V>,
}

enum TrieNode<K, V> {
    Empty,
    Bucket(BucketTags, Arc<[(K, V)]>),
    Inner(Arc<[TrieNode<K, V>; FANOUT]>),
}

impl<K, V> Clone for TrieNode<K, V> {
    fn clone(&self) -> Self {
        match self {
            Self::Empty => Self::Empty,
            Self::Bucket(tags, entries) => Self::Bucket(*tags, Arc::clone(entries)),
            Self::Inner(children) => Self::Inner(Arc::clone(children)),
        }
    }
}

impl<K, V> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Self {
            root: self.root.clone(),
        }
    }
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self {
            root: TrieNode::Empty,
        }
    }
}

/// Hash of a key. The seed is random for each process, so that nobody can choose keys that fall
/// into one bucket.
fn hash_of<Q: Hash + ?Sized>(key: &Q) -> u64 {
    SeedableRandomState::with_seed(0, SharedSeed::global_random()).hash_one(key)
}

impl<K, V> Map<K, V> {
    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        matches!(self.root, TrieNode::Empty)
    }

    /// The number of entries, counted by walking the map.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// All entries, in no particular order.
    pub fn iter(&self) -> MapIter<'_, K, V> {
        self.root.iter()
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Map<K, V> {
    /// The value of `key`.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    /// The stored key equal to `key`, and its value.
    pub fn get_key_value<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        // No hash is computed for an empty map. Empty maps are common, because many nodes of a
        // `TreeCache` have no children.
        if self.is_empty() {
            return None;
        }

        let hash = hash_of(key);
        let mut trie = &self.root;
        let mut used_bits = 0;
        loop {
            match trie {
                TrieNode::Empty => return None,
                TrieNode::Bucket(tags, entries) => {
                    let (key, value) = entries.get(tags.position(hash, entries, key)?)?;
                    return Some((key, value));
                }
                TrieNode::Inner(children) => {
                    trie = &children[child_index(hash, used_bits)];
                    used_bits += BITS;
                }
            }
        }
    }

    /// Sets the value of `key`; returns the old value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let hash = hash_of(&key);
        self.root.insert(hash, 0, key, value)
    }

    /// Removes `key` and returns its value.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        // The lookup avoids copies if the key is missing.
        self.get(key)?;
        self.root.remove(hash_of(key), 0, key)
    }

    /// The value of `key`, for a change in place. Nodes that other copies share are copied first.
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        // The lookup avoids copies if the key is missing.
        self.get(key)?;

        let hash = hash_of(key);
        let mut trie = &mut self.root;
        let mut used_bits = 0;
        loop {
            match trie {
                TrieNode::Empty => return None,
                TrieNode::Bucket(tags, entries) => {
                    let at = tags.position(hash, entries, key)?;
                    return Arc::make_mut(entries).get_mut(at).map(|(_, value)| value);
                }
                TrieNode::Inner(children) => {
                    trie = &mut Arc::make_mut(children)[child_index(hash, used_bits)];
                    used_bits += BITS;
                }
            }
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Map<K, V> {
    /// Whether both maps share all nodes. If false, the entries may still be equal.
    pub fn is_same(&self, other: &Self) -> bool {
        self.root.is_same(&other.root)
    }

    /// Visits the keys that only one of the maps has, and the common keys whose values differ
    /// according to `same`. `visit` receives the value in this map and the value in `other`. Shared
    /// nodes are skipped, so few nodes are compared if one map is a copy of the other with few
    /// changes.
    pub fn differences<'a>(
        &'a self,
        other: &'a Self,
        same: impl Fn(&V, &V) -> bool,
        visit: &mut dyn FnMut(&'a K, Option<&'a V>, Option<&'a V>),
    ) {
        let mut differing = Vec::new();
        self.root.collect_differing(&other.root, &mut differing);

        for (ours, theirs) in differing {
            // The nodes may differ in shape, so each key is looked up in the other map.
            for (key, value) in ours {
                let their = other.get(key);
                if !their.is_some_and(|their| same(value, their)) {
                    visit(key, Some(value), their);
                }
            }

            // Keys that are in both maps were compared above.
            for (key, value) in theirs {
                if self.get(key).is_none() {
                    visit(key, None, Some(value));
                }
            }
        }
    }
}

/// The entries of differing nodes of two maps. Both nodes of a pair are at the same position.
type DifferingNodes<'a, K, V> = Vec<(MapIter<'a, K, V>, MapIter<'a, K, V>)>;

impl<K, V> TrieNode<K, V> {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Empty, Self::Empty) => true,
            (Self::Bucket(_, ours), Self::Bucket(_, theirs)) => Arc::ptr_eq(ours, theirs),
            (Self::Inner(ours), Self::Inner(theirs)) => Arc::ptr_eq(ours, theirs),
            _ => false,
        }
    }

    fn collect_differing<'a>(&'a self, other: &'a Self, parts: &mut DifferingNodes<'a, K, V>) {
        match (self, other) {
            (ours, theirs) if ours.is_same(theirs) => {}
            (Self::Inner(ours), Self::Inner(theirs)) => {
                for (ours, theirs) in ours.iter().zip(theirs.iter()) {
                    ours.collect_differing(theirs, parts);
                }
            }
            // Only two inner nodes can be compared child by child. In all other cases, the entries
            // are compared by key.
            (ours, theirs) => parts.push((ours.iter(), theirs.iter())),
        }
    }

    fn iter(&self) -> MapIter<'_, K, V> {
        let mut iter = MapIter {
            inner: Vec::new(),
            bucket: [].iter(),
        };
        iter.enter(self);
        iter
    }
}

/// Index of the child for `hash` in an inner node. The path from the root to the inner node was
/// chosen by the lowest `used_bits` bits of the hash.
fn child_index(hash: u64, used_bits: u32) -> usize {
    usize::try_from((hash >> used_bits) & (FANOUT as u64 - 1)).unwrap_or(0)
}

impl<K: Hash + Eq + Clone, V: Clone> TrieNode<K, V> {
    fn bucket(entries: Arc<[(K, V)]>) -> Self {
        Self::Bucket(
            BucketTags::of(entries.iter().map(|(key, _)| hash_of(key))),
            entries,
        )
    }

    fn insert(&mut self, hash: u64, used_bits: u32, key: K, value: V) -> Option<V> {
        match self {
            Self::Empty => {
                *self = Self::Bucket(BucketTags::of([hash]), Arc::from([(key, value)]));
                None
            }
            Self::Inner(children) => {
                let child = &mut Arc::make_mut(children)[child_index(hash, used_bits)];
                child.insert(hash, used_bits + BITS, key, value)
            }
            Self::Bucket(tags, entries) => {
                if let Some(at) = tags.position(hash, entries, &key) {
                    let entry = Arc::make_mut(entries).get_mut(at)?;
                    return Some(std::mem::replace(&mut entry.1, value));
                }

                // If no bits are left for a split, the hashes are equal, and the bucket grows
                // beyond `MAX_BUCKET`.
                if entries.len() < MAX_BUCKET || used_bits + BITS > u64::BITS {
                    tags.set(entries.len(), hash);
                    *entries = entries.iter().cloned().chain([(key, value)]).collect();
                } else {
                    *self = Self::split_bucket(entries, used_bits);
                    return self.insert(hash, used_bits, key, value);
                }
                None
            }
        }
    }

    /// An inner node with the entries of the bucket.
    fn split_bucket(entries: &[(K, V)], used_bits: u32) -> Self {
        let mut parts: [Vec<(K, V)>; FANOUT] = std::array::from_fn(|_| Vec::new());
        for (key, value) in entries {
            parts[child_index(hash_of(key), used_bits)].push((key.clone(), value.clone()));
        }

        Self::Inner(Arc::new(parts.map(|part| {
            if part.is_empty() {
                Self::Empty
            } else {
                Self::bucket(part.into())
            }
        })))
    }

    fn remove<Q: Hash + Eq + ?Sized>(&mut self, hash: u64, used_bits: u32, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        match self {
            Self::Empty => None,
            Self::Bucket(tags, entries) => {
                let at = tags.position(hash, entries, key)?;
                let (_, value) = entries.get(at)?.clone();

                *self = if entries.len() == 1 {
                    Self::Empty
                } else {
                    let others = entries.iter().filter(|(other, _)| other.borrow() != key);
                    Self::bucket(others.cloned().collect())
                };
                Some(value)
            }
            Self::Inner(children) => {
                let children = Arc::make_mut(children);
                let child = &mut children[child_index(hash, used_bits)];
                let value = child.remove(hash, used_bits + BITS, key)?;

                // If another map shared the inner node, `make_mut` has copied it, so the other map
                // does not change.
                if let Some(bucket) = Self::merge_children(children) {
                    *self = bucket;
                }
                Some(value)
            }
        }
    }

    /// The bucket that replaces an inner node with few entries; `None` if the inner node must stay.
    fn merge_children(children: &[Self; FANOUT]) -> Option<Self> {
        let mut count = 0;
        for child in children {
            match child {
                Self::Empty => {}
                Self::Bucket(_, bucket) => count += bucket.len(),
                // A child that is still an inner node has more entries than a merged bucket may
                // have.
                Self::Inner(_) => return None,
            }
        }
        if count == 0 {
            return Some(Self::Empty);
        }
        if count > MAX_MERGED {
            return None;
        }

        let entries = children.iter().flat_map(|child| match child {
            Self::Bucket(_, bucket) => bucket.iter(),
            Self::Empty | Self::Inner(_) => [].iter(),
        });
        Some(Self::bucket(entries.cloned().collect()))
    }
}

/// Iterator over the entries of a [`Map`].
pub struct MapIter<'a, K, V> {
    inner: Vec<std::slice::Iter<'a, TrieNode<K, V>>>,
    bucket: std::slice::Iter<'a, (K, V)>,
}

impl<'a, K, V> MapIter<'a, K, V> {
    fn enter(&mut self, trie: &'a TrieNode<K, V>) {
        match trie {
            TrieNode::Empty => {}
            TrieNode::Bucket(_, entries) => self.bucket = entries.iter(),
            TrieNode::Inner(children) => self.inner.push(children.iter()),
        }
    }
}

impl<'a, K, V> Iterator for MapIter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.bucket.next() {
                return Some((key, value));
            }
            match self.inner.last_mut()?.next() {
                Some(trie) => self.enter(trie),
                None => {
                    self.inner.pop();
                }
            }
        }
    }
}

impl<'a, K, V> IntoIterator for &'a Map<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = MapIter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Hash + Eq + Clone, V: Clone> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

impl<K: std::fmt::Debug, V: std::fmt::Debug> std::fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_tags_do_not_enlarge_node() {
        assert_eq!(size_of::<TrieNode<u8, u8>>(), 3 * size_of::<usize>());
    }

    /// A key whose hash is always the same.
    #[derive(Clone, PartialEq, Eq)]
    struct Colliding(u32);

    impl Hash for Colliding {
        fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
    }

    #[test]
    fn colliding_keys_are_stored_found_and_removed() {
        let mut map = Map::default();
        for number in 0..100 {
            assert_eq!(map.insert(Colliding(number), number), None);
        }
        assert!((0..100).all(|number| map.get(&Colliding(number)) == Some(&number)));
        assert_eq!(map.get(&Colliding(100)), None);
        for number in 0..100 {
            assert_eq!(map.remove(&Colliding(number)), Some(number));
        }
        assert!(map.is_empty());
    }
}
