//! Limits the number of log lines about rejected queries and connections. A log line for each of
//! them could flood the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Shortest time between two log lines.
const PAUSE: Duration = Duration::from_secs(10);

/// The time of the last log line of one kind.
#[derive(Debug, Default)]
pub(crate) struct ClientWarnings {
    last: Mutex<Option<Instant>>,
}

impl ClientWarnings {
    /// Whether a log line is due; if so, counts it as written at `now`.
    pub(crate) fn take_turn(&self, now: Instant) -> bool {
        // If another thread holds the lock, that thread logs a line if one is due.
        let Some(mut last) = self.last.try_lock() else {
            return false;
        };

        let is_due = last.is_none_or(|at| now.saturating_duration_since(at) >= PAUSE);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_at_least_ten_seconds_apart() {
        let warnings = ClientWarnings::default();
        let start = Instant::now();
        for (millis, expected) in [
            (0, true),
            (1, false),
            (9_999, false),
            (10_000, true),
            (10_001, false),
        ] {
            let now = start + Duration::from_millis(millis);
            assert_eq!(warnings.take_turn(now), expected, "at {millis} ms");
        }
    }
}
