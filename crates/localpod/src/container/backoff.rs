//! The delay between the end of a container and its next start.

use std::time::Duration;

/// Delay before the second restart in a row; the first restart has no delay.
const FIRST: Duration = Duration::from_secs(1);
/// The longest delay. A kubelet waits 10 s to 5 min, too long for a laptop.
const LONGEST: Duration = Duration::from_secs(30);
/// A container that ran this long counts as healthy: its next restart has no delay.
const HEALTHY: Duration = Duration::from_mins(1);

/// Counts restarts.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    restarts: u32,
    in_a_row: u32,
}

impl Backoff {
    /// Returns whether the container has not been restarted yet.
    pub(super) fn is_first(&self) -> bool {
        self.restarts == 0
    }

    /// The number of the coming restart and the delay before it, after a container that ran for
    /// `ran`.
    pub(super) fn after(&mut self, ran: Duration) -> (u32, Duration) {
        if ran >= HEALTHY {
            self.in_a_row = 0;
        }
        let delay = match self.in_a_row {
            0 => Duration::ZERO,
            n => FIRST
                .saturating_mul(1u32.checked_shl(n - 1).unwrap_or(u32::MAX))
                .min(LONGEST),
        };
        self.restarts = self.restarts.saturating_add(1);
        self.in_a_row = self.in_a_row.saturating_add(1);
        (self.restarts, delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_wait_doubles_to_maximum() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..40)
            .map(|_| backoff.after(Duration::ZERO).1.as_secs())
            .collect();
        assert_eq!(waits[..7], [0, 1, 2, 4, 8, 16, 30]);
        assert!(waits[7..].iter().all(|wait| *wait == 30));
    }

    #[test]
    fn healthy_run_resets_wait_alone() {
        let mut backoff = Backoff::default();
        backoff.after(Duration::ZERO);
        backoff.after(Duration::ZERO);
        assert_eq!(backoff.after(Duration::from_secs(61)), (3, Duration::ZERO));
    }
}
