//! Visits the pairs of an unordered collection in sorted order, with little memory.

use std::collections::BTreeMap;

/// Maximum number of keys in a [`Window`]. Only one window is in memory at a time. Each window
/// costs another visit of the whole collection.
const WINDOW: usize = 256;

/// Calls `each` for every key in ascending order, with the values of the key in the order in
/// which `visit` offers them. Ends at the first error.
///
/// `visit` visits all pairs of the collection. It is called once for each [`Window`], because a
/// sorted copy of the whole collection would take much memory until the HTTP client has read the
/// response.
pub(super) fn in_order<K: Ord + Clone, V, E>(
    visit: impl Fn(&mut dyn FnMut(K, V)),
    mut each: impl FnMut(K, Vec<V>) -> Result<(), E>,
) -> Result<(), E> {
    let mut last = None;
    loop {
        let mut window = Window {
            above: last.as_ref(),
            pairs: BTreeMap::new(),
        };
        visit(&mut |key, value| window.offer(key, value));

        let pairs = window.pairs;
        let is_last = pairs.len() < WINDOW;
        last = pairs.last_key_value().map(|(key, _)| key.clone());
        for (key, values) in pairs {
            each(key, values)?;
        }
        if is_last {
            return Ok(());
        }
    }
}

/// The smallest keys above the key `above`, at most [`WINDOW`], with their values.
struct Window<'a, K, V> {
    /// The last key of the previous window; `None` in the first window.
    above: Option<&'a K>,
    pairs: BTreeMap<K, Vec<V>>,
}

impl<K: Ord, V> Window<'_, K, V> {
    /// Keeps the pair, unless its key was in an earlier window, or the window is full of smaller
    /// keys.
    fn offer(&mut self, key: K, value: V) {
        let was_visited = self.above.is_some_and(|above| key <= *above);
        let is_full = self.pairs.len() == WINDOW;
        let is_beyond = is_full
            && self
                .pairs
                .last_key_value()
                .is_some_and(|(most, _)| key > *most);
        if was_visited || is_beyond {
            return;
        }

        // Most keys have one value, but a vector without this capacity would have room for four.
        self.pairs
            .entry(key)
            .or_insert_with(|| Vec::with_capacity(1))
            .push(value);
        if self.pairs.len() > WINDOW {
            self.pairs.pop_last();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn sorted(pairs: &[(u32, u32)]) -> Vec<(u32, Vec<u32>)> {
        let mut found = Vec::new();
        let visit = |offer: &mut dyn FnMut(u32, u32)| {
            for (key, value) in pairs {
                offer(*key, *value);
            }
        };
        let Ok(()) = in_order(visit, |key, values| {
            found.push((key, values));
            Ok::<_, Infallible>(())
        });
        found
    }

    #[test]
    fn any_number_of_pairs_is_sorted() {
        let window = u32::try_from(WINDOW).unwrap();
        for count in [
            0,
            1,
            window - 1,
            window,
            window + 1,
            3 * window,
            3 * window + 7,
        ] {
            let mut pairs: Vec<(u32, u32)> = (0..count).map(|key| (key, 2 * key)).collect();
            // An order that is far from ascending, and the same in each run.
            pairs.sort_by_key(|(key, _)| key.wrapping_mul(2_654_435_761));

            // Some keys have a second value, which comes after the first.
            let more: Vec<(u32, u32)> = pairs
                .iter()
                .filter(|(key, _)| key % 3 == 0)
                .copied()
                .collect();
            pairs.extend(more.into_iter().map(|(key, value)| (key, value + 1)));

            let expected: Vec<(u32, Vec<u32>)> = (0..count)
                .map(|key| {
                    (
                        key,
                        if key % 3 == 0 {
                            vec![2 * key, 2 * key + 1]
                        } else {
                            vec![2 * key]
                        },
                    )
                })
                .collect();
            assert_eq!(sorted(&pairs), expected, "{count} keys");
        }
    }

    #[test]
    fn error_is_returned_and_no_key_follows() {
        let visit = |offer: &mut dyn FnMut(u32, u32)| (0..10).for_each(|key| offer(key, 0));
        let mut seen = Vec::new();
        let ended = in_order(visit, |key, _| {
            seen.push(key);
            if key == 2 { Err("no room") } else { Ok(()) }
        });
        assert_eq!(ended, Err("no room"));
        assert_eq!(seen, [0, 1, 2]);
    }
}
