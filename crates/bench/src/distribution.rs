//! Percentiles of many durations.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Percentiles, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Number of durations.
    pub count: usize,
    /// The 50th percentile.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest duration.
    pub max: f64,
}

impl Distribution {
    /// The percentiles of `durations`; `None` if there are none.
    pub fn of(mut durations: Vec<Duration>) -> Option<Self> {
        durations.sort_unstable();
        let percentile = |percent: usize| {
            let rank = (durations.len() * percent).div_ceil(100).max(1);
            durations
                .get(rank - 1)
                .map(|duration| duration.as_secs_f64() * 1000.0)
        };
        Some(Self {
            count: durations.len(),
            p50: percentile(50)?,
            p99: percentile(99)?,
            max: percentile(100)?,
        })
    }
}

/// The median of `values`; `None` if there are none.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len().is_multiple_of(2) {
        f64::midpoint(*values.get(middle - 1)?, upper)
    } else {
        upper
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_duration_at_nearest_rank() {
        let durations = (1..=200).rev().map(Duration::from_millis).collect();
        let of = Distribution::of(durations).unwrap();
        let shown = (of.count, of.p50, of.p99, of.max);
        assert_eq!(shown, (200, 100.0, 198.0, 200.0));
        let one = Distribution::of(vec![Duration::from_millis(3)]).unwrap();
        assert_eq!((one.p50, one.p99, one.max), (3.0, 3.0, 3.0));
        assert_eq!(Distribution::of(Vec::new()), None);
    }

    #[test]
    fn median_is_middle_value_or_midpoint() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
