//! A space-saving sketch (Metwally, Agrawal, El Abbadi 2005), which finds the most frequent keys in
//! bounded memory.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;

use super::MAX_SLOTS;

/// A slot of the sketch, which holds one key.
#[derive(Debug)]
struct SketchSlot {
    key: Vec<u8>,
    hash: u64,
    /// Maximum overestimate of the count: the count of the previous key in this slot.
    error: u64,
}

/// Counts of the most frequent keys.
#[derive(Debug, Default)]
pub(super) struct FrequencySketch {
    slots: Vec<SketchSlot>,
    /// Count of each slot. The counts are stored apart from the keys, so that the search for the
    /// lowest count reads little memory.
    counts: Vec<u64>,
    /// Index of each slot by the hash of its key. The hash has 64 bits and a random seed.
    /// Collisions are so unlikely that keys are not compared.
    index: HashMap<u64, usize, RandomState>,
    hasher: RandomState,
}

impl FrequencySketch {
    /// Counts a key. If all slots are in use, a new key costs a scan of the slots.
    pub(super) fn add_key(&mut self, key: &[u8], weight: u64) {
        let hash = self.hasher.hash_one(key);
        let known = self.index.get(&hash);
        if let Some(count) = known.and_then(|at| self.counts.get_mut(*at)) {
            *count += weight;
            return;
        }

        let at = if self.slots.len() < MAX_SLOTS {
            Some(self.push_slot(key, hash, weight))
        } else {
            self.replace_rarest(key, hash, weight)
        };
        if let Some(at) = at {
            self.index.insert(hash, at);
        }
    }

    /// Adds a slot for a key. Returns the index of the slot.
    fn push_slot(&mut self, key: &[u8], hash: u64, weight: u64) -> usize {
        self.slots.push(SketchSlot {
            key: key.to_vec(),
            hash,
            error: 0,
        });
        self.counts.push(weight);
        self.slots.len() - 1
    }

    /// Replaces the key with the lowest count. The new key inherits this count, because the new key
    /// may have been counted and replaced before. Returns the index of the slot; `None` without
    /// slots.
    fn replace_rarest(&mut self, key: &[u8], hash: u64, weight: u64) -> Option<usize> {
        let counts = self.counts.iter_mut().enumerate();
        let (at, count) = counts.min_by_key(|(_, count)| **count)?;
        let slot = self.slots.get_mut(at)?;

        self.index.remove(&slot.hash);
        slot.key.clear();
        slot.key.extend_from_slice(key);
        slot.hash = hash;
        slot.error = *count;
        *count += weight;
        Some(at)
    }

    /// The keys, each with a lower bound of its count.
    pub(super) fn lower_bounds(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.slots
            .iter()
            .zip(&self.counts)
            .map(|(slot, count)| (slot.key.as_slice(), count - slot.error))
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.counts.clear();
        self.index.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_key_survives_rare_keys() {
        let mut sketch = FrequencySketch::default();
        for n in 0..100_000_u32 {
            sketch.add_key(&n.to_be_bytes(), 1);
            if n % 10 == 0 {
                sketch.add_key(b"often", 3);
            }
        }
        assert_eq!(sketch.slots.len(), MAX_SLOTS);
        assert_eq!(sketch.index.len(), MAX_SLOTS);
        let often = sketch
            .lower_bounds()
            .find(|(key, _)| *key == b"often")
            .map(|(_, count)| count)
            .unwrap();
        assert!((29_000..=30_000).contains(&often), "{often}");
        // All other keys have a lower bound of one at most.
        let repeated = sketch.lower_bounds().filter(|(_, count)| *count > 1);
        assert_eq!(repeated.count(), 1);
        sketch.clear();
        assert_eq!(sketch.lower_bounds().count(), 0);
    }
}
