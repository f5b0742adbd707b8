//! A random choice of items for an answer that has no room for all of them. All distinct items have
//! the same chance.

use std::hash::{BuildHasher, Hash};

use foldhash::quality::RandomState;
use smallvec::SmallVec;

/// The distinct items of a [`RandomSample`].
pub(super) struct SampleItems<T, const N: usize> {
    pub(super) items: SmallVec<[T; N]>,
    /// Whether further distinct items were dropped.
    pub(super) is_cut: bool,
}

/// Chooses at most `room` distinct items. The first `N` items are stored without allocation.
///
/// If more than `room` distinct items are added, those with the lowest hashes are chosen; the hash
/// has a random seed. Equal items have equal hashes, so repeated items do not change the chances,
/// and dropped items need not be stored.
pub(super) struct RandomSample<T, const N: usize> {
    room: usize,
    /// At most twice `room` items, which may be repeated.
    items: SmallVec<[T; N]>,
    hasher: Option<RandomState>,
    /// The highest hash of a kept item; `None` until items beyond `room` are dropped.
    highest: Option<u64>,
}

impl<T: Hash + Eq, const N: usize> RandomSample<T, N> {
    pub(super) fn new(room: usize) -> Self {
        Self {
            room,
            items: SmallVec::new(),
            hasher: None,
            highest: None,
        }
    }

    pub(super) fn add(&mut self, item: T) {
        // The kept items already fill the room, and this item has a higher hash than all of them.
        if let (Some(hasher), Some(highest)) = (&self.hasher, self.highest)
            && hasher.hash_one(&item) > highest
        {
            return;
        }

        // The items are sorted here only when there are twice as many as `room`. So at most one in
        // `room` calls sorts the items.
        if self.items.len() >= 2 * self.room {
            self.drop_excess();
        }
        self.items.push(item);
    }

    /// Whether no item was added.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether items beyond `room` have been dropped so far.
    pub(super) fn is_cut(&self) -> bool {
        self.highest.is_some()
    }

    /// Drops repeated items, and then the items beyond `room`.
    fn drop_excess(&mut self) {
        let hasher = self.hasher.get_or_insert_default();
        self.items.sort_by_cached_key(|item| hasher.hash_one(item));
        self.items.dedup();

        if self.items.len() > self.room {
            self.items.truncate(self.room);
            self.highest = self.items.last().map(|item| hasher.hash_one(item));
        }
    }

    /// Returns the distinct items in random order. Random order spreads the load, because clients
    /// often use the first item.
    pub(super) fn into_shuffled(self) -> SampleItems<T, N> {
        let mut sample = self.into_distinct();
        fastrand::shuffle(&mut sample.items);
        sample
    }

    /// Returns the distinct items in any order. Of equal items the first remains.
    pub(super) fn into_distinct(mut self) -> SampleItems<T, N> {
        if self.items.len() > self.room {
            self.drop_excess();
        }
        if self.items.len() > 1 {
            drop_repeated(&mut self.items);
        }

        let is_cut = self.is_cut();
        SampleItems {
            items: self.items,
            is_cut,
        }
    }
}

fn drop_repeated<T: Eq + Hash, const N: usize>(items: &mut SmallVec<[T; N]>) {
    const FEW: usize = 16;
    if items.len() <= FEW {
        let mut kept = 0;
        for at in 0..items.len() {
            if !items[..kept].contains(&items[at]) {
                items.swap(kept, at);
                kept += 1;
            }
        }
        items.truncate(kept);
    } else {
        let hasher = RandomState::default();
        items.sort_by_cached_key(|item| hasher.hash_one(item));
        items.dedup();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{RandomSample, SampleItems};

    fn choose_items(room: usize, items: &[u16]) -> SampleItems<u16, 4> {
        let mut sample: RandomSample<u16, 4> = RandomSample::new(room);
        for item in items {
            sample.add(*item);
        }
        sample.into_shuffled()
    }

    proptest! {
        #[test]
        fn sample_has_as_many_distinct_items_as_fit(
            room in 1..20_usize,
            items in prop::collection::vec(0..40_u16, 0..300),
        ) {
            let distinct: BTreeSet<u16> = items.iter().copied().collect();
            let chosen = choose_items(room, &items);
            let kept: BTreeSet<u16> = chosen.items.iter().copied().collect();

            prop_assert_eq!(chosen.items.len(), kept.len(), "no item may be repeated");
            prop_assert!(kept.is_subset(&distinct));
            prop_assert_eq!(kept.len(), distinct.len().min(room));
            prop_assert_eq!(chosen.is_cut, distinct.len() > room);
        }
    }

    #[test]
    fn sample_gives_items_equal_chances() {
        // Item 0 is added a thousand and one times, any other item once.
        let items: Vec<u16> = std::iter::repeat_n(0, 1000).chain(0..100).collect();
        let mut times = [0_u32; 100];
        for _ in 0..2000 {
            for item in choose_items(10, &items).items {
                times[usize::from(item)] += 1;
            }
        }
        // Expected: 200 each, with a standard deviation of 13.
        assert!(
            times.iter().all(|times| (100..300).contains(times)),
            "{times:?}"
        );
    }

    #[test]
    fn repeated_item_is_not_first_more_often() {
        let chosen = (0..2000).map(|_| choose_items(10, &[0, 0, 0, 0, 1]));
        let times = chosen.filter(|chosen| chosen.items[0] == 0).count();
        // Expected: 1000, with a standard deviation of 22.
        assert!((850..1150).contains(&times), "{times} of 2000");
    }
}
