//! Timeouts and pauses between attempts.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The timing of a [`Feed`](super::Feed). Each use of a range takes a random value from the range,
/// so that replicas do not act at the same time.
#[derive(Debug, Clone)]
pub struct WatchTiming {
    /// Requested duration of a watch.
    pub watch: RangeInclusive<Duration>,
    /// Bound of a watch's silence before the watch is reopened. API servers send a bookmark each
    /// minute, but only if any object of the kind has changed, whether selected or not.
    pub silence: Duration,
    /// Time that a watch may last beyond its requested duration.
    pub overrun: Duration,
    /// Timeout of the head of a response and of each piece of a list.
    pub response: Duration,
    /// The first and the longest pause between failed attempts.
    pub backoff: RangeInclusive<Duration>,
    /// The longest pause while the API server is unreachable, overloaded or briefly refusing. The
    /// pause is short, so that a recovery is noticed within seconds. An overloaded API server may
    /// request longer pauses.
    pub max_pause: Duration,
    /// The longest pause while an optional collection is refused whose objects need not be kept up
    /// to date.
    pub max_pause_refused: Duration,
    /// Time after which a refusal counts as lasting. A starting API server briefly refuses
    /// everything.
    pub refusal_lasts: Duration,
}

impl Default for WatchTiming {
    fn default() -> Self {
        let seconds = |from, to| Duration::from_secs(from)..=Duration::from_secs(to);
        Self {
            watch: seconds(240, 290),
            silence: Duration::from_secs(100),
            overrun: Duration::from_secs(10),
            response: Duration::from_secs(30),
            backoff: Duration::from_millis(250)..=Duration::from_secs(20),
            max_pause: Duration::from_secs(4),
            max_pause_refused: Duration::from_mins(5),
            refusal_lasts: Duration::from_mins(1),
        }
    }
}
