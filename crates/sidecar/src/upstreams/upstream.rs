//! State of one upstream.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::condition::{Condition, Trouble};
use super::metrics::SeriesOf;
use super::purpose::Purpose;
use crate::monotonic::Monotonic;
use crate::time::{Now, milliseconds};

/// Failures in a row that change the condition. A single lost packet does not change the condition.
const IN_A_ROW: u32 = 2;

/// State of one upstream.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) purpose: Purpose,
    pub(super) status: UpstreamStatus,
    since: Instant,
    failures_in_a_row: u32,
    asked: Monotonic,
    series: SeriesOf,
}

/// One upstream for `/status` and the page.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpstreamStatus {
    pub(crate) address: String,
    /// The stub domains that the upstream serves; `.` for all other names. Empty if unknown.
    pub(crate) serves: Vec<String>,
    pub(crate) condition: Condition,
    /// The time of the last change of the condition, in milliseconds since 1970.
    pub(crate) since: u64,
    /// Latency of the last successful probe.
    pub(crate) latency_ms: Option<f64>,
    /// The error of the last probe; empty if it succeeded.
    pub(crate) error: String,
    pub(crate) probes: u64,
    /// Failed probes: no answer, SERVFAIL or REFUSED.
    pub(crate) failures: u64,
    /// Queries to this upstream since dnsmasq started.
    pub(crate) queries: u64,
}

impl Upstream {
    pub(super) fn new(address: SocketAddr, series: SeriesOf) -> Self {
        let address = address.to_string();
        let since = Instant::now();
        let status = UpstreamStatus {
            address,
            ..UpstreamStatus::default()
        };
        let asked = Monotonic::default();
        Self {
            purpose: Purpose::unknown(),
            status,
            since,
            failures_in_a_row: 0,
            asked,
            series,
        }
    }

    /// The status for a reader.
    pub(super) fn status_at(&self, now: Now) -> UpstreamStatus {
        UpstreamStatus {
            since: now.millis_of(self.since),
            ..self.status.clone()
        }
    }

    /// Updates the purpose, and the number of queries since dnsmasq started.
    pub(super) fn follow(&mut self, purpose: Purpose, queries: u64) {
        self.series.asked(self.asked.increase(queries));
        (self.status.serves, self.status.queries) = (purpose.domains.clone(), queries);
        self.purpose = purpose;
    }

    /// Records the outcome of a probe.
    pub(super) fn record(&mut self, outcome: Result<Duration, Trouble>, now: Now) {
        let status = &mut self.status;
        status.probes += 1;
        self.series.probed(&outcome);
        let condition = match outcome {
            Ok(latency) => {
                (self.failures_in_a_row, status.latency_ms) = (0, Some(milliseconds(latency)));
                status.error.clear();
                Condition::Answers
            }
            Err(Trouble { cause, text }) => {
                status.failures += 1;
                self.failures_in_a_row += 1;
                status.error = text;
                if self.failures_in_a_row < IN_A_ROW {
                    return;
                }
                cause.condition()
            }
        };
        let before = std::mem::replace(&mut status.condition, condition);
        if before != condition {
            self.tell(before, now);
            self.since = now.clock;
        }
    }

    /// Logs a change of the condition. The first answer is not logged.
    fn tell(&self, before: Condition, now: Now) {
        let UpstreamStatus {
            address: upstream,
            error,
            condition,
            ..
        } = &self.status;
        let serves = self.status.serves.join(" ");
        match condition {
            Condition::Answers if before != Condition::Waiting => {
                let lasted = now.age(self.since);
                tracing::info!(%upstream, serves, ?lasted, "upstream of dnsmasq answers again");
            }
            Condition::Fails => {
                tracing::warn!(%upstream, serves, error, "upstream of dnsmasq fails");
            }
            Condition::Silent => {
                tracing::warn!(%upstream, serves, error, "upstream of dnsmasq does not answer");
            }
            Condition::Answers | Condition::Waiting => {}
        }
    }
}
