//! Addresses of one name, and the time of its next lookup.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::lookup::LookupOutcome;

/// Intervals between lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LookupPace {
    /// Lower bound of the interval after a successful lookup. Within the bounds, the interval is
    /// the shortest TTL in the DNS answers with addresses, or 30 seconds for addresses from the
    /// hosts file.
    pub(crate) shortest_life: Duration,
    /// Upper bound of the interval after a successful lookup.
    pub(crate) longest_life: Duration,
    /// Pause after the first failure. The pause doubles with each further failure.
    pub(crate) first_pause: Duration,
    /// Longest pause after a failure.
    pub(crate) longest_pause: Duration,
}

impl Default for LookupPace {
    fn default() -> Self {
        Self {
            shortest_life: Duration::from_secs(5),
            longest_life: Duration::from_hours(1),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
        }
    }
}

/// One name: its addresses and its next lookup.
#[derive(Debug, Default)]
pub(super) struct NameEntry {
    addresses: Vec<IpAddr>,
    next: NextLookup,
    failures: u32,
    /// Whether a warning has been logged for the current series of failures.
    warned: bool,
}

#[derive(Debug, Clone, Copy)]
enum NextLookup {
    At(Instant),
    /// A lookup is running.
    Running,
    /// A lookup is running. Another lookup must follow at once.
    RunningTwice,
}

impl Default for NextLookup {
    fn default() -> Self {
        Self::At(Instant::now())
    }
}

impl NameEntry {
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Time of the next lookup; `None` while a lookup is running.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.next {
            NextLookup::At(due) => Some(due),
            NextLookup::Running | NextLookup::RunningTwice => None,
        }
    }

    /// Records that a lookup began.
    pub(super) fn start_lookup(&mut self) {
        self.next = NextLookup::Running;
    }

    /// Makes the next lookup due now, or as soon as the running lookup ends.
    pub(super) fn make_due(&mut self) {
        self.next = match self.next {
            NextLookup::At(_) => NextLookup::default(),
            // resolv.conf has changed since the running lookup began, so another lookup follows.
            NextLookup::Running | NextLookup::RunningTwice => NextLookup::RunningTwice,
        };
    }

    /// Records the result of the lookup.
    pub(super) fn record_outcome(&mut self, name: &str, outcome: LookupOutcome, pace: &LookupPace) {
        let pause = match outcome {
            LookupOutcome::Addresses { addresses, life } => {
                self.set_addresses(name, addresses);
                life.clamp(pace.shortest_life, pace.longest_life)
            }
            // The name has no addresses, so the old addresses are wrong.
            LookupOutcome::Absent => {
                self.addresses.clear();
                self.record_failure(name, "the name has no address");
                self.retry_pause(pace)
            }
            // A failed lookup does not show whether the name has addresses, so the old ones stay.
            LookupOutcome::Failed(reason) => {
                self.record_failure(name, &reason);
                self.retry_pause(pace)
            }
        };

        let now = Instant::now();
        self.next = match self.next {
            NextLookup::RunningTwice => NextLookup::At(now),
            NextLookup::At(_) | NextLookup::Running => NextLookup::At(now + pause),
        };
    }

    fn set_addresses(&mut self, name: &str, addresses: Vec<IpAddr>) {
        self.failures = 0;
        self.warned = false;
        // Lookups are repeated all the time, so only a change is logged.
        if self.addresses != addresses {
            info!(name, ?addresses, "stub server resolved");
        }
        self.addresses = addresses;
    }

    /// Logs a warning for the first failure of a series only, so that a dead name does not fill the
    /// log.
    fn record_failure(&mut self, name: &str, reason: &str) {
        self.failures = self.failures.saturating_add(1);

        // While addresses are kept, the stub domain still works.
        let kept = self.addresses.len();
        if std::mem::replace(&mut self.warned, true) {
            debug!(name, reason, kept, "stub server still not resolved");
        } else {
            warn!(name, reason, kept, "stub server not resolved, retrying");
        }
    }

    /// The pause after a failed lookup. The pause doubles with each failure, up to the longest
    /// pause. It is then shortened at random by up to a quarter, so that the lookups of many names
    /// do not coincide.
    fn retry_pause(&self, pace: &LookupPace) -> Duration {
        // Ten doublings already exceed the longest pause. With at most ten, the shift cannot
        // overflow.
        let doublings = self.failures.saturating_sub(1).min(10);
        let doubled = pace.first_pause.saturating_mul(1 << doublings);
        doubled
            .min(pace.longest_pause)
            .mul_f64(1.0 - 0.25 * fastrand::f64())
    }
}
