//! Times and durations for JSON and the page, and repeated actions.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// Milliseconds since 1970.
pub(crate) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds with a fraction, for people and for JavaScript.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Runs `act` at each tick until `stop`, never twice at the same time.
pub(crate) async fn repeat<F: Future>(mut ticks: Interval, stop: CancellationToken, act: impl Fn() -> F) {
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let rounds = async {
        loop {
            ticks.tick().await;
            act().await;
        }
    };
    let _: Option<()> = stop.run_until_cancelled(rounds).await;
}
