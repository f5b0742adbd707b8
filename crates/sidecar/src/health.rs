//! The health of a server as its probe reports it, and the body of `/healthcheck/<label>`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};

use crate::time::{Now, millis, milliseconds};

/// Limit of results kept for the plot: twenty minutes at the default interval of five seconds.
const REMEMBERED: usize = 240;

/// Result of the last probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Waiting,
    /// The probed name was answered.
    Ok,
    /// The server answers, but not for the probed name.
    Itself,
    /// The server fails its health check.
    Failed,
}

impl State {
    /// Returns whether the server passes its health check.
    pub(crate) fn is_healthy(self) -> bool {
        matches!(self, Self::Ok | Self::Itself)
    }

    /// Returns whether the last probe failed.
    pub(crate) fn is_failed(self) -> bool {
        self == Self::Failed
    }
}

/// The result of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) state: State,
    /// Latency of the answer that proves health; zero if the server is not healthy.
    pub(crate) latency: Duration,
    /// Empty when the probed name was answered.
    pub(crate) failure: Failure,
}

/// The reason why the probed name was not answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The error text of kube-dns, which does not contain the RCODE.
    pub(crate) error: String,
    /// The RCODE; empty without a response.
    pub(crate) rcode: String,
}

/// One result, for `/status` and the plot.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Point {
    /// The time, in milliseconds since 1970.
    pub(crate) at: u64,
    pub(crate) state: State,
    /// Latency of the answer.
    pub(crate) latency_ms: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Health {
    pub(crate) last: Verdict,
    /// The time of the last change of `state`.
    pub(crate) since: Instant,
    /// The time of the last result, or of the start if there is no result.
    last_at: Instant,
    /// Probes in a row without an answer for the probed name, even if the server is healthy.
    pub(crate) failures: u32,
    /// The last results, newest last; bounded.
    pub(crate) history: VecDeque<Point>,
}

impl Health {
    pub(crate) fn waiting(now: Instant) -> Self {
        let failure = Failure {
            error: "waiting for first probe".to_owned(),
            rcode: String::new(),
        };
        let last = Verdict {
            state: State::Waiting,
            latency: Duration::ZERO,
            failure,
        };
        Self {
            last,
            since: now,
            last_at: now,
            failures: 0,
            history: VecDeque::new(),
        }
    }

    /// Adds a result; returns whether the state changed.
    pub(crate) fn record(&mut self, verdict: Verdict, now: Now) -> bool {
        let changed = verdict.state != self.last.state;
        if changed {
            self.since = now.clock;
        }
        self.last_at = now.clock;
        self.failures = if verdict.state == State::Ok {
            0
        } else {
            self.failures.saturating_add(1)
        };
        if self.history.len() == REMEMBERED {
            self.history.pop_front();
        }
        let latency_ms = milliseconds(verdict.latency);
        self.history.push_back(Point {
            at: millis(now.time_of_day),
            state: verdict.state,
            latency_ms,
        });
        self.last = verdict;
        changed
    }

    /// The time since the last result, or since the start if there is no result.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_at)
    }

    /// The body of `/healthcheck/<label>`.
    pub(crate) fn check(&self) -> Check<'_> {
        let healthy = self.last.state.is_healthy();
        Check {
            is_ok: healthy,
            latency_seconds: if healthy {
                self.last.latency.as_secs_f64()
            } else {
                0.0
            },
            // A healthy server has no error here, even if the probed name was not answered;
            // `/status` shows that error.
            error: if healthy {
                ""
            } else {
                &self.last.failure.error
            },
        }
    }
}

/// The body of `/healthcheck/<label>`, with the field names and the order of kube-dns.
#[derive(Debug, Serialize)]
pub(crate) struct Check<'a> {
    #[serde(rename = "IsOk")]
    pub(crate) is_ok: bool,
    #[serde(rename = "LatencySeconds", serialize_with = "go_float")]
    pub(crate) latency_seconds: f64,
    #[serde(rename = "Err")]
    pub(crate) error: &'a str,
}

/// Go writes whole numbers without a fraction.
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
