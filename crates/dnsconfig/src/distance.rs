//! The edit distance of two names.

/// Maximum length of a name, in octets: the maximum length of a label.
const MAX_LEN: usize = 63;

/// The number of octets to insert, delete, replace or swap with a neighbour to convert one name
/// into the other. `None` if the names are not similar: more than one change in names of up to 5
/// octets, or more than two in longer names.
pub fn distance(a: &str, b: &str) -> Option<usize> {
    if a == b {
        return Some(0);
    }
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let limit = match a.len().min(b.len()) {
        0 | 1 => 0,
        2..=5 => 1,
        _ => 2,
    };
    if limit == 0 || a.len().abs_diff(b.len()) > limit || a.len().max(b.len()) > MAX_LEN {
        return None;
    }
    let distance = optimal_alignment(a, b);
    (distance <= limit).then_some(distance)
}

/// The optimal string alignment distance. `best` holds the distance of each prefix of `a` from each
/// prefix of `b`.
fn optimal_alignment(a: &[u8], b: &[u8]) -> usize {
    let mut best = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, j) in (0..=a.len()).flat_map(|i| (0..=b.len()).map(move |j| (i, j))) {
        best[i][j] = if i == 0 || j == 0 {
            i + j
        } else {
            let replaced = best[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            let swapped = if is_swap {
                best[i - 2][j - 2] + 1
            } else {
                replaced
            };
            replaced
                .min(swapped)
                .min(best[i - 1][j] + 1)
                .min(best[i][j - 1] + 1)
        };
    }
    best[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
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
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
        assert_eq!(distance(&"a".repeat(64), &"a".repeat(63)), None);
    }
}
