//! What a probe knows about the health of its server, and how `/healthcheck/<label>` says it.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};

/// How many results are remembered for the plot: twenty minutes of the usual five seconds.
const REMEMBERED: usize = 240;

/// What the last probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing yet.
    Waiting,
    /// The probed name was answered.
    Ok,
    /// The server answers for itself, but not for the probed name.
    Itself,
    /// The server is not well.
    Failed,
}

impl State {
    /// Does the server pass its health check?
    pub fn is_healthy(self) -> bool {
        matches!(self, Self::Ok | Self::Itself)
    }
}

/// The result of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What was found.
    pub state: State,
    /// How long the answer took that makes the server healthy; zero when there was none.
    pub latency: Duration,
    /// Why the probed name was not answered; empty when it was. The words of kube-dns, which lack the response code.
    pub error: String,
    /// The response code of an answer without the probed name; empty without one.
    pub rcode: String,
}

impl Verdict {
    /// The probed name was answered.
    pub fn ok(latency: Duration) -> Self {
        Self { state: State::Ok, latency, error: String::new(), rcode: String::new() }
    }

    /// The server answers for itself.
    pub fn itself(latency: Duration, failure: Failure) -> Self {
        Self { state: State::Itself, latency, error: failure.error, rcode: failure.rcode }
    }

    /// The server is not well.
    pub fn failed(failure: Failure) -> Self {
        Self { state: State::Failed, latency: Duration::ZERO, error: failure.error, rcode: failure.rcode }
    }
}

/// Why the probed name was not answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// In the words of kube-dns.
    pub error: String,
    /// The response code; empty when nothing came.
    pub rcode: String,
}

/// One point of the plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When the probe ended.
    pub at: SystemTime,
    /// What it found.
    pub state: State,
    /// How long the answer took.
    pub latency: Duration,
}

/// What a probe knows.
#[derive(Clone, Debug)]
pub struct Health {
    /// The last result.
    pub last: Verdict,
    /// Since when the state is what it is.
    pub since: SystemTime,
    /// The results so far, the newest last, bounded.
    pub history: VecDeque<Sample>,
}

impl Health {
    /// Nothing is known yet.
    pub fn waiting(now: SystemTime) -> Self {
        let last = Verdict {
            state: State::Waiting,
            latency: Duration::ZERO,
            error: "waiting for first probe".to_owned(),
            rcode: String::new(),
        };
        Self { last, since: now, history: VecDeque::new() }
    }

    /// Takes in a result; tells whether the state is a new one.
    pub fn record(&mut self, verdict: Verdict, now: SystemTime) -> bool {
        let changed = verdict.state != self.last.state;
        if changed {
            self.since = now;
        }
        if self.history.len() == REMEMBERED {
            self.history.pop_front();
        }
        self.history.push_back(Sample { at: now, state: verdict.state, latency: verdict.latency });
        self.last = verdict;
        changed
    }

    /// The body of `/healthcheck/<label>`.
    pub fn check(&self) -> Check<'_> {
        let healthy = self.last.state.is_healthy();
        Check {
            is_ok: healthy,
            latency_seconds: if healthy { self.last.latency.as_secs_f64() } else { 0.0 },
            // A healthy server has no error here, even if the probed name was not answered: `/status` tells that.
            error: if healthy { "" } else { &self.last.error },
        }
    }
}

/// The body of `/healthcheck/<label>`, in the reference's names and order.
#[derive(Debug, Serialize)]
pub struct Check<'a> {
    /// Is the server healthy?
    #[serde(rename = "IsOk")]
    pub is_ok: bool,
    /// How long the answer took.
    #[serde(rename = "LatencySeconds", serialize_with = "go_float")]
    pub latency_seconds: f64,
    /// Why it is not.
    #[serde(rename = "Err")]
    pub error: &'a str,
}

/// Go writes whole numbers without a fraction.
#[allow(clippy::trivially_copy_pass_by_ref, clippy::float_cmp, reason = "serde's signature; zero is exact")]
fn go_float<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if *value == 0.0 { serializer.serialize_u8(0) } else { serializer.serialize_f64(*value) }
}

#[cfg(test)]
mod tests;
