//! Timeouts, and pauses between attempts.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The timing of a [`Feed`](super::Feed). Ranges are for jitter: each use takes a random value from them, so that the
/// replicas of a cluster do not move in step.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Requested duration of a watch.
    pub watch: RangeInclusive<Duration>,
    /// The time a watch may be silent before it is opened anew. API servers send a bookmark a minute, but only when
    /// something has happened, be it elsewhere.
    pub silence: Duration,
    /// The time a watch may end later than asked for.
    pub grace: Duration,
    /// Timeout of the head of a response, or of the next piece of a list.
    pub response: Duration,
    /// The first and the longest pause between failing attempts.
    pub backoff: RangeInclusive<Duration>,
    /// The longest pause while nobody answers, a refusal may pass, or a busy server asked for none longer: an API server
    /// that is back is to be noticed within seconds.
    pub passing: Duration,
    /// The longest pause while we may not read something that we have never had and can do without.
    pub refused: Duration,
    /// The time a refusal must last to count. An API server that starts refuses everything for a moment.
    pub refusal: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let seconds = |from, to| Duration::from_secs(from)..=Duration::from_secs(to);
        Self {
            watch: seconds(240, 290),
            silence: Duration::from_secs(100),
            grace: Duration::from_secs(10),
            response: Duration::from_secs(30),
            backoff: Duration::from_millis(250)..=Duration::from_secs(20),
            passing: Duration::from_secs(4),
            refused: Duration::from_mins(5),
            refusal: Duration::from_mins(1),
        }
    }
}

/// A random duration from `range`.
pub(super) fn jittered(range: &RangeInclusive<Duration>) -> Duration {
    let span = range.end().saturating_sub(*range.start());
    *range.start() + span.mul_f64(fastrand::f64())
}
