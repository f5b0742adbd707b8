//! Times and durations for JSON and the status page, and repeated actions.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// The minimum time between two samples of the counters for the plots. By default, the sidecar
/// reads dnsmasq's counters every five seconds. So each sample normally has newer counters than the
/// sample before.
pub(crate) const PLOT_INTERVAL: Duration = Duration::from_millis(9_500);

/// Milliseconds since 1970.
pub(crate) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Converts a time in the format of RFC 3339 to milliseconds since 1970.
pub(crate) fn millis_since_1970(time: &str) -> Option<u64> {
    let time = chrono::DateTime::parse_from_rfc3339(time).ok()?;
    u64::try_from(time.timestamp_millis()).ok()
}

/// The current time on two clocks. Ages come from the monotonic clock, because somebody may set the
/// time of day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) clock: Instant,
    pub(crate) time_of_day: SystemTime,
}

impl Now {
    pub(crate) fn read() -> Self {
        Self {
            clock: Instant::now(),
            time_of_day: SystemTime::now(),
        }
    }

    /// The time since `earlier`.
    pub(crate) fn age(&self, earlier: Instant) -> Duration {
        self.clock.saturating_duration_since(earlier)
    }

    /// The time of day at `earlier`, in milliseconds since 1970: the present time of day minus the
    /// age of `earlier`.
    pub(crate) fn millis_of(&self, earlier: Instant) -> u64 {
        let age = u64::try_from(self.age(earlier).as_millis()).unwrap_or(u64::MAX);
        millis(self.time_of_day).saturating_sub(age)
    }
}

/// A duration in milliseconds, with a fraction.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Runs `act` at each tick until `stop`, never twice at the same time.
pub(crate) async fn repeat<F: Future>(
    mut ticks: Interval,
    stop: CancellationToken,
    act: impl Fn() -> F,
) {
    // After a slow round, missed ticks do not become a burst.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let rounds = async {
        loop {
            ticks.tick().await;
            act().await;
        }
    };
    let _: Option<()> = stop.run_until_cancelled(rounds).await;
}

#[cfg(test)]
impl Now {
    /// The time `after` a fixed start. At the start, the time of day is the beginning of 1970.
    pub(crate) fn at(after: Duration) -> Self {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let start = *START.get_or_init(Instant::now);
        Self {
            clock: start + after,
            time_of_day: UNIX_EPOCH + after,
        }
    }

    /// The same moment after somebody has set the time of day.
    pub(crate) fn set_to(self, time_of_day: SystemTime) -> Self {
        Self {
            time_of_day,
            ..self
        }
    }
}
