//! Tags of the entries in a bucket, which is a leaf of the hash trie. With the tags, a lookup
//! usually compares only a few keys.

use std::borrow::Borrow;

use super::MAX_BUCKET;

/// The tags of a bucket. The tag of an entry has three bits, which come from the hash of the
/// entry's key. Each bit is stored in a plane of its own: bit `n` of each plane belongs to entry
/// `n`.
///
/// If the bucket has at most [`MAX_BUCKET`] entries, a lookup compares only keys whose tag matches.
/// Comparing a key usually causes a cache miss, which is the main cost of a lookup. The tags take
/// no additional memory, because they use octets of a trie node that would otherwise be padding.
#[derive(Clone, Copy, Default)]
pub(super) struct BucketTags([u16; 3]);

impl BucketTags {
    pub(super) fn of(hashes: impl IntoIterator<Item = u64>) -> Self {
        let mut tags = Self::default();
        for (at, hash) in hashes.into_iter().enumerate() {
            tags.set(at, hash);
        }
        tags
    }

    /// The tag: the three highest bits of `hash`, which the trie uses last.
    fn bits(hash: u64) -> [bool; 3] {
        [
            hash >> 63 & 1 == 1,
            hash >> 62 & 1 == 1,
            hash >> 61 & 1 == 1,
        ]
    }

    /// Sets the tag of a new entry. A plane has 16 bits, so entries from the 17th on have no tag.
    pub(super) fn set(&mut self, at: usize, hash: u64) {
        if at < MAX_BUCKET {
            for (plane, bit) in self.0.iter_mut().zip(Self::bits(hash)) {
                *plane |= u16::from(bit) << at;
            }
        }
    }

    /// Index of `key` among the entries of a bucket.
    pub(super) fn position<K: Borrow<Q>, V, Q: Eq + ?Sized>(
        self,
        hash: u64,
        entries: &[(K, V)],
        key: &Q,
    ) -> Option<usize> {
        // A bucket has more than `MAX_BUCKET` entries only if their hashes are equal. Then their
        // tags are equal, too, and cannot narrow the search.
        if entries.len() > MAX_BUCKET {
            return entries.iter().position(|(other, _)| other.borrow() == key);
        }

        let mut candidates = u16::MAX;
        for (plane, bit) in self.0.iter().zip(Self::bits(hash)) {
            candidates &= if bit { *plane } else { !plane };
        }

        while candidates != 0 {
            let at = usize::try_from(candidates.trailing_zeros()).ok()?;
            // Bits beyond the last entry are zero, so they match a tag of zeros. For such a bit,
            // `get` returns `None`. By then, all entries with a matching tag have been compared.
            if entries.get(at)?.0.borrow() == key {
                return Some(at);
            }
            candidates &= candidates - 1;
        }
        None
    }
}
