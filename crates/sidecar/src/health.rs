//! The health of a server as its probe reports it, and the body of `/healthcheck/<label>`.

use std::time::{Duration, Instant};

use dnsclient::ExchangeError;
use reports::sidecar::{ProbeResult, ProbeState};
use serde::{Serialize, Serializer};

use crate::recent::Recent;
use crate::time::{Now, millis, milliseconds};

/// Maximum number of results kept for the plot: twenty minutes at the default interval of five
/// seconds.
const MAX_HISTORY: usize = 240;

/// The result of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeOutcome {
    pub(crate) state: ProbeState,
    /// Latency of the answer that proves health; zero if the server is not healthy.
    pub(crate) latency: Duration,
    /// Empty when the probe got records for the probed name.
    pub(crate) failure: ProbeFailure,
}

/// The reason why the probe got no records for the probed name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProbeFailure {
    /// The error, in the words of the sidecar of kube-dns. It does not contain the RCODE.
    pub(crate) error: String,
    /// The RCODE; empty without a response.
    pub(crate) rcode: String,
}

impl ProbeFailure {
    /// The failure of a query without a response.
    pub(crate) fn of_error(error: &ExchangeError) -> Self {
        Self {
            error: error.to_string(),
            rcode: String::new(),
        }
    }
}

/// The health of a probed server.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    pub(crate) last: ProbeOutcome,
    /// The time of the last change of `last.state`, or of the start if there is no result.
    pub(crate) since: Instant,
    /// The time of the last result, or of the start if there is no result.
    last_at: Instant,
    /// Number of probes in a row without records for the probed name. Such probes count even if the
    /// server is healthy.
    pub(crate) failures: u32,
    pub(crate) history: Recent<ProbeResult, MAX_HISTORY>,
}

impl Health {
    /// The health before the first result.
    pub(crate) fn waiting(now: Instant) -> Self {
        let failure = ProbeFailure {
            error: "waiting for first probe".to_owned(),
            rcode: String::new(),
        };
        let last = ProbeOutcome {
            state: ProbeState::Waiting,
            latency: Duration::ZERO,
            failure,
        };

        Self {
            last,
            since: now,
            last_at: now,
            failures: 0,
            history: Recent::default(),
        }
    }

    /// Adds a result; returns whether the state changed.
    pub(crate) fn record(&mut self, outcome: ProbeOutcome, now: Now) -> bool {
        let has_changed = outcome.state != self.last.state;
        if has_changed {
            self.since = now.clock;
        }
        // The time is stored for every result, because `crate::exechealthz` reports a failure when
        // the last result is too old.
        self.last_at = now.clock;
        self.failures = if outcome.state == ProbeState::Ok {
            0
        } else {
            self.failures.saturating_add(1)
        };

        self.history.push(ProbeResult {
            at: millis(now.time_of_day),
            state: outcome.state,
            latency_ms: milliseconds(outcome.latency),
        });

        self.last = outcome;
        has_changed
    }

    /// The time since the last result, or since the start if there is no result.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_at)
    }

    /// The body of `/healthcheck/<label>`.
    pub(crate) fn check_body(&self) -> HealthCheck<'_> {
        // This body has no error for a healthy server, even if the probe got no records. `/status`
        // shows that error.
        if self.last.state.is_healthy() {
            return HealthCheck {
                is_ok: true,
                latency_seconds: self.last.latency.as_secs_f64(),
                error: "",
            };
        }

        HealthCheck {
            is_ok: false,
            latency_seconds: 0.0,
            error: &self.last.failure.error,
        }
    }
}

/// The body of `/healthcheck/<label>`, with the field names and the order of kube-dns.
#[derive(Debug, Serialize)]
pub(crate) struct HealthCheck<'a> {
    #[serde(rename = "IsOk")]
    pub(crate) is_ok: bool,
    #[serde(rename = "LatencySeconds", serialize_with = "go_float")]
    pub(crate) latency_seconds: f64,
    #[serde(rename = "Err")]
    pub(crate) error: &'a str,
}

/// Writes zero as `0`, like Go; `serde_json` would write `0.0`. The same difference for other whole
/// numbers does not matter, because a measured latency is hardly ever a whole number of seconds.
#[allow(
    clippy::trivially_copy_pass_by_ref,
    clippy::float_cmp,
    reason = "serde's signature; zero is exact"
)]
fn go_float<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if *value == 0.0 {
        serializer.serialize_u8(0)
    } else {
        serializer.serialize_f64(*value)
    }
}

#[cfg(test)]
mod tests;
