//! What a walk over aliases has met, in order.
//!
//! An upstream decides how much that is: thousands of records in one message. So nothing is looked for from one end to
//! the other, and a walk may be taken back to where it was.

use std::collections::HashMap;
use std::hash::Hash;

/// Keys with their values, in the order in which they came.
#[derive(Debug)]
pub(super) struct Noted<K, V> {
    values: HashMap<K, V>,
    order: Vec<K>,
}

impl<K, V> Default for Noted<K, V> {
    fn default() -> Self {
        Self { values: HashMap::new(), order: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash, V: Copy> Noted<K, V> {
    /// The value that a key came with first.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.values.get(key).copied()
    }

    /// Notes a key. False, and nothing done, if it is there already.
    pub(super) fn note(&mut self, key: K, value: V) -> bool {
        if self.values.contains_key(&key) {
            return false;
        }
        self.order.push(key.clone());
        self.values.insert(key, value);
        true
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Forgets all but the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        for key in self.order.drain(len.min(self.order.len())..) {
            self.values.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Noted;

    proptest! {
        /// As a list that is searched from its beginning, with each key once.
        #[test]
        fn it_is_a_list_without_repetitions(steps in prop::collection::vec((0..20_u8, any::<u16>(), prop::option::of(0..30_usize)), 0..60)) {
            let (mut noted, mut list) = (Noted::default(), Vec::<(u8, u16)>::new());
            for (key, value, cut) in steps {
                if let Some(len) = cut {
                    noted.truncate(len);
                    list.truncate(len);
                } else {
                    let new = list.iter().all(|(known, _)| *known != key);
                    prop_assert_eq!(noted.note(key, value), new);
                    if new {
                        list.push((key, value));
                    }
                }
                prop_assert_eq!(noted.len(), list.len());
                for key in 0..20 {
                    let first = list.iter().find(|(known, _)| *known == key);
                    prop_assert_eq!(noted.get(&key), first.map(|(_, value)| *value));
                }
            }
        }
    }
}
