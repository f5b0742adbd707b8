//! State of one upstream.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::condition::{Condition, Trouble};
use super::metrics::SeriesOf;
use super::purpose::Purpose;
use crate::monotonic::Monotonic;
use crate::time::{millis, milliseconds};

/// So many failures in a row make a condition: one lost packet makes none.
const IN_A_ROW: u32 = 2;

/// State of one upstream.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) purpose: Purpose,
    pub(super) status: UpstreamStatus,
    since: SystemTime,
    failures_in_a_row: u32,
    asked: Monotonic,
    series: SeriesOf,
}

/// One upstream for `/status` and the page.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpstreamStatus {
    pub(crate) address: String,
    /// The stub domains it serves; `.` stands for all other names. Empty when that is not known.
    pub(crate) serves: Vec<String>,
    pub(crate) condition: Condition,
    /// Since when, in milliseconds since 1970.
    pub(crate) since: u64,
    /// Latency of its last answer.
    pub(crate) latency_ms: Option<f64>,
    /// Why the last probe failed; empty if it did not.
    pub(crate) error: String,
    pub(crate) probes: u64,
    /// Questions without an answer.
    pub(crate) failures: u64,
    /// Queries that dnsmasq reports since it started.
    pub(crate) queries: u64,
}

impl Upstream {
    pub(super) fn new(address: SocketAddr, series: SeriesOf) -> Self {
        let (address, since) = (address.to_string(), SystemTime::now());
        let status = UpstreamStatus { address, since: millis(since), ..UpstreamStatus::default() };
        let asked = Monotonic::default();
        Self { purpose: Purpose::unknown(), status, since, failures_in_a_row: 0, asked, series }
    }

    /// dnsmasq has it for this, and says to have asked it so often since it started.
    pub(super) fn follow(&mut self, purpose: Purpose, queries: u64) {
        self.series.asked(self.asked.increase(queries));
        (self.status.serves, self.status.queries) = (purpose.domains.clone(), queries);
        self.purpose = purpose;
    }

    /// A probe ended.
    pub(super) fn record(&mut self, outcome: Result<Duration, Trouble>, now: SystemTime) {
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
            (self.since, self.status.since) = (now, millis(now));
        }
    }

    /// One line a change. That an upstream answers at the start is no news.
    fn tell(&self, before: Condition, now: SystemTime) {
        let UpstreamStatus { address: upstream, error, condition, .. } = &self.status;
        let serves = self.status.serves.join(" ");
        match condition {
            Condition::Answers if before != Condition::Waiting => {
                let lasted = now.duration_since(self.since).unwrap_or_default();
                tracing::info!(%upstream, serves, ?lasted, "a server dnsmasq asks answers again");
            }
            Condition::Fails => tracing::warn!(%upstream, serves, error, "a server dnsmasq asks fails"),
            Condition::Silent => {
                tracing::warn!(%upstream, serves, error, "a server dnsmasq asks does not answer");
            }
            Condition::Answers | Condition::Waiting => {}
        }
    }
}
