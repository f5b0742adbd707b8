//! How far apart two names are.

/// Longer names are not labels.
const MAX_LEN: usize = 63;

/// The number of letters to be added, left out, replaced or swapped with their neighbours to make one of the other;
/// `None` when it is too much for names of that length to be similar.
pub(super) fn distance(a: &str, b: &str) -> Option<usize> {
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

/// Optimal string alignment, row by row.
fn optimal_alignment(a: &[u8], b: &[u8]) -> usize {
    let first: Vec<usize> = (0..=b.len()).collect();
    let (mut before, mut last) = (Vec::new(), first);
    let mut previous = None;
    for (row, &letter) in a.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, pair) in last.windows(2).enumerate() {
            let (&[diagonal, above], Some(&left), Some(&other)) = (pair, current.last(), b.get(column))
            else {
                continue;
            };
            let replaced = diagonal + usize::from(letter != other);
            let mut best = replaced.min(above + 1).min(left + 1);
            let swapped = column > 0 && previous == Some(other) && b.get(column - 1) == Some(&letter);
            if let Some(&earlier) = before.get(column.wrapping_sub(1)).filter(|_| swapped) {
                best = best.min(earlier + 1);
            }
            current.push(best);
        }
        previous = Some(letter);
        before = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or_default()
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
