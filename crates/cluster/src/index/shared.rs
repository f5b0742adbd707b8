//! Deduplication of lists. The records of many Services have equal lists of ports, so equal lists
//! are stored once.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::quality::RandomState;

/// Keeps one copy of each list that is in use.
#[derive(Debug)]
pub(super) struct SharedLists<T>(HashSet<Arc<[T]>, RandomState>);

impl<T> Default for SharedLists<T> {
    fn default() -> Self {
        Self(HashSet::default())
    }
}

impl<T: Eq + Hash> SharedLists<T> {
    /// Replaces `list` with an equal shared copy. If there is no such copy, `list` becomes the
    /// shared copy.
    pub(super) fn share(&mut self, list: &mut Arc<[T]>) {
        if let Some(known) = self.0.get(list) {
            *list = Arc::clone(known);
            return;
        }

        // If the table is full, unused lists are removed first, so that the table rarely grows.
        if self.0.len() == self.0.capacity() {
            self.0.retain(|list| Arc::strong_count(list) > 1);
        }
        self.0.insert(Arc::clone(list));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_are_shared() {
        let mut shared = SharedLists::default();
        let [mut one, mut two]: [Arc<[u16]>; 2] = [[80, 443].into(), [80, 443].into()];
        shared.share(&mut one);
        shared.share(&mut two);
        assert!(Arc::ptr_eq(&one, &two));
    }

    #[test]
    fn unused_lists_are_removed() {
        let mut shared = SharedLists::default();
        let mut kept: Arc<[u32]> = [0].into();
        shared.share(&mut kept);
        for number in 1..10_000 {
            shared.share(&mut [number].into());
        }
        assert!(shared.0.len() < 100, "{}", shared.0.len());
        let mut again: Arc<[u32]> = [0].into();
        shared.share(&mut again);
        assert!(Arc::ptr_eq(&kept, &again));
    }
}
