//! How long things may take and how long to wait between attempts.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The timing of a [`Feed`](super::Feed). Ranges are for jitter: each use takes a random value from them, so that the
/// replicas of a cluster do not move in step.
#[derive(Debug, Clone)]
pub struct Pace {
    /// How long a watch is asked to last when the API server sends bookmarks, which show that it is alive.
    pub watch: RangeInclusive<Duration>,
    /// How long a watch is asked to last while no bookmark has been seen: its regular end is the only sign of life.
    pub mute_watch: RangeInclusive<Duration>,
    /// How long a watch with bookmarks may be silent. API servers send one a minute.
    pub silence: Duration,
    /// How much later than asked for a watch may end.
    pub grace: Duration,
    /// How long the head of a response, or the next piece of a list, may take.
    pub response: Duration,
    /// The first and the longest pause between failing attempts.
    pub backoff: RangeInclusive<Duration>,
    /// The pause after we were told that we may not read something we can do without.
    pub refused: RangeInclusive<Duration>,
    /// How long an outage may last for its watches to be resumed. API servers keep five minutes of history.
    pub outage: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let seconds = |from, to| Duration::from_secs(from)..=Duration::from_secs(to);
        Self {
            watch: seconds(240, 290),
            mute_watch: seconds(45, 60),
            silence: Duration::from_secs(100),
            grace: Duration::from_secs(10),
            response: Duration::from_secs(30),
            backoff: Duration::from_millis(250)..=Duration::from_secs(20),
            refused: seconds(180, 300),
            outage: Duration::from_mins(4),
        }
    }
}

/// A random duration from `range`.
pub(super) fn jittered(range: &RangeInclusive<Duration>) -> Duration {
    let span = range.end().saturating_sub(*range.start());
    *range.start() + span.mul_f64(fastrand::f64())
}
