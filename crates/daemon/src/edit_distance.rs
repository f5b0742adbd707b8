//! The edit distance of two names.

/// Maximum length of a name, in octets: the maximum length of a label.
const MAX_LEN: usize = 63;

/// The smallest number of changes that convert one name into the other. A change inserts, deletes
/// or replaces one octet, or swaps two octets that are neighbours in both names. `None` if the
/// names are not similar. If the shorter name has 2 to 5 octets, similar names differ by at most
/// one change. If the shorter name has 6 octets or more, similar names differ by at most two
/// changes. A name of fewer than 2 octets, or of more than 63, is similar only to itself.
pub fn edit_distance(a: &str, b: &str) -> Option<usize> {
    if a == b {
        return Some(0);
    }

    // With two changes, almost any two short names would be similar.
    let limit = match a.len().min(b.len()) {
        0 | 1 => 0,
        2..=5 => 1,
        _ => 2,
    };
    if limit == 0 || a.len().abs_diff(b.len()) > limit || a.len().max(b.len()) > MAX_LEN {
        return None;
    }

    let distance = optimal_alignment(a.as_bytes(), b.as_bytes());
    (distance <= limit).then_some(distance)
}

/// The optimal string alignment distance.
fn optimal_alignment(a: &[u8], b: &[u8]) -> usize {
    // The distance of each prefix of `a` from each prefix of `b`. The distance from the empty
    // prefix is the length of the other prefix.
    let mut best = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in best.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in best[0].iter_mut().enumerate() {
        *cell = j;
    }

    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let deleted = best[i - 1][j] + 1;
            let inserted = best[i][j - 1] + 1;
            let replaced = best[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(deleted).min(inserted);

            // Two letters in the wrong order are a single typing error.
            let is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if is_swap {
                least = least.min(best[i - 2][j - 2] + 1);
            }
            best[i][j] = least;
        }
    }
    best[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_is_one_change_and_changes_are_limited() {
        for (a, b, expected) in [
            ("web", "web", Some(0)),
            ("", "", Some(0)),
            ("web", "wbe", Some(1)),
            ("web", "we", Some(1)),
            ("web", "webs", Some(1)),
            ("webb", "web", Some(1)),
            ("web", "wab", Some(1)),
            ("web", "wxy", None),
            ("frontend", "fronted", Some(1)),
            ("frontend", "forntned", Some(2)),
            ("frontend", "backend", None),
            ("database", "databse-x", None),
            ("ab", "ba", Some(1)),
            ("a", "b", None),
            ("", "a", None),
            ("query", "qeury", Some(1)),
            ("query", "qury-", None),
        ] {
            assert_eq!(edit_distance(a, b), expected, "{a} {b}");
            assert_eq!(edit_distance(b, a), expected, "{b} {a}");
        }
        assert_eq!(edit_distance(&"a".repeat(64), &"a".repeat(63)), None);
    }
}
