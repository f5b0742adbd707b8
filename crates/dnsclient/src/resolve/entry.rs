//! Addresses of one name, and the time of its next lookup.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::lookup::Found;

/// Intervals between lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Lower bound of the interval after a successful lookup. Within the bounds, the interval is
    /// the TTL.
    pub(crate) shortest_life: Duration,
    /// Upper bound of the interval after a successful lookup.
    pub(crate) longest_life: Duration,
    /// Pause after the first failure. The pause doubles with each further failure.
    pub(crate) first_pause: Duration,
    /// Longest pause after a failure.
    pub(crate) longest_pause: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            shortest_life: Duration::from_secs(5),
            longest_life: Duration::from_hours(1),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    addresses: Vec<IpAddr>,
    due: Due,
    failures: u32,
    told: bool,
}

#[derive(Debug, Clone, Copy)]
enum Due {
    At(Instant),
    /// A lookup is running.
    Running,
    /// A lookup is running. Another lookup must follow at once.
    RunningTwice,
}

impl Default for Due {
    fn default() -> Self {
        Self::At(Instant::now())
    }
}

impl Entry {
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Time of the next lookup; `None` while a lookup is running.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.due {
            Due::At(due) => Some(due),
            Due::Running | Due::RunningTwice => None,
        }
    }

    /// Records that a lookup began.
    pub(super) fn started(&mut self) {
        self.due = Due::Running;
    }

    /// Makes the next lookup due now.
    pub(super) fn hurry(&mut self) {
        self.due = match self.due {
            Due::At(_) => Due::default(),
            Due::Running | Due::RunningTwice => Due::RunningTwice,
        };
    }

    /// Records the result of the lookup.
    pub(super) fn settle(&mut self, name: &str, found: Found, pace: &Pace) {
        let now = Instant::now();
        let pause = match found {
            Found::Addresses { addresses, life } => {
                self.failures = 0;
                self.told = false;
                if self.addresses != addresses {
                    info!(name, ?addresses, "stub server resolved");
                }
                self.addresses = addresses;
                life.clamp(pace.shortest_life, pace.longest_life)
            }
            Found::Absent => {
                self.failed(name, "the name has no address");
                self.addresses.clear();
                self.pause(pace)
            }
            Found::Failed(reason) => {
                self.failed(name, &reason);
                self.pause(pace)
            }
        };
        self.due = match self.due {
            Due::RunningTwice => Due::At(now),
            Due::At(_) | Due::Running => Due::At(now + pause),
        };
    }

    /// Logs a warning for the first failure of a series only, so that a dead name does not fill the
    /// log.
    fn failed(&mut self, name: &str, reason: &str) {
        self.failures = self.failures.saturating_add(1);
        let kept = self.addresses.len();
        if std::mem::replace(&mut self.told, true) {
            debug!(name, reason, kept, "stub server still not resolved");
        } else {
            warn!(name, reason, kept, "stub server not resolved, retrying");
        }
    }

    /// The pause after a failed lookup: doubles with each failure, less a random part of up to a
    /// quarter. The random part spreads the lookups of many names.
    fn pause(&self, pace: &Pace) -> Duration {
        let doubled = pace
            .first_pause
            .saturating_mul(1 << self.failures.saturating_sub(1).min(10));
        doubled
            .min(pace.longest_pause)
            .mul_f64(1.0 - 0.25 * fastrand::f64())
    }
}
