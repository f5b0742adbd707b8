//! What is known of one upstream.

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

/// What is known of one upstream.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) purpose: Purpose,
    condition: Condition,
    since: SystemTime,
    failures_in_a_row: u32,
    probes: u64,
    failures: u64,
    latency: Option<Duration>,
    error: String,
    asked: Monotonic,
    series: SeriesOf,
}

/// One upstream for `/status` and the page.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamStatus {
    /// Its address.
    pub address: String,
    /// The stub domains it serves; `.` stands for all other names. Empty when that is not known.
    pub serves: Vec<String>,
    /// How it is doing.
    pub condition: Condition,
    /// Since when, in milliseconds since 1970.
    pub since: u64,
    /// How long its last answer took.
    pub latency_ms: Option<f64>,
    /// Why the last probe failed; empty if it did not.
    pub error: String,
    /// How often it was probed.
    pub probes: u64,
    /// How often in vain.
    pub failures: u64,
    /// How often dnsmasq says to have asked it since it started.
    pub queries: u64,
}

impl Upstream {
    /// Nothing is known yet.
    pub(super) fn new(series: SeriesOf) -> Self {
        Self {
            purpose: Purpose::unknown(),
            condition: Condition::Waiting,
            since: SystemTime::now(),
            failures_in_a_row: 0,
            probes: 0,
            failures: 0,
            latency: None,
            error: String::new(),
            asked: Monotonic::default(),
            series,
        }
    }

    /// dnsmasq says to have asked it so often since it started.
    pub(super) fn asked(&mut self, queries: u64) {
        self.series.asked(self.asked.increase(queries));
    }

    /// A probe ended.
    pub(super) fn record(
        &mut self,
        address: SocketAddr,
        outcome: Result<Duration, Trouble>,
        now: SystemTime,
    ) {
        self.probes += 1;
        self.series.probed(&outcome);
        let condition = match outcome {
            Ok(latency) => {
                (self.failures_in_a_row, self.latency) = (0, Some(latency));
                self.error.clear();
                Condition::Answers
            }
            Err(Trouble { cause, text }) => {
                self.failures += 1;
                self.failures_in_a_row += 1;
                self.error = text;
                if self.failures_in_a_row < IN_A_ROW {
                    return;
                }
                cause.condition()
            }
        };
        let before = std::mem::replace(&mut self.condition, condition);
        if before != condition {
            self.tell(address, before, now);
            self.since = now;
        }
    }

    /// One line a change. That an upstream answers at the start is no news.
    fn tell(&self, address: SocketAddr, before: Condition, now: SystemTime) {
        let (upstream, serves) = (address, self.purpose.domains.join(" "));
        match self.condition {
            Condition::Answers if before != Condition::Waiting => {
                let lasted = now.duration_since(self.since).unwrap_or_default();
                tracing::info!(%upstream, serves, ?lasted, "a server dnsmasq asks answers again");
            }
            Condition::Fails => {
                tracing::warn!(%upstream, serves, error = self.error, "a server dnsmasq asks fails");
            }
            Condition::Silent => {
                tracing::warn!(%upstream, serves, error = self.error, "a server dnsmasq asks does not answer");
            }
            Condition::Answers | Condition::Waiting => {}
        }
    }

    /// For `/status` and the page.
    pub(super) fn status(&self, address: SocketAddr) -> UpstreamStatus {
        UpstreamStatus {
            address: address.to_string(),
            serves: self.purpose.domains.clone(),
            condition: self.condition,
            since: millis(self.since),
            latency_ms: self.latency.map(milliseconds),
            error: self.error.clone(),
            probes: self.probes,
            failures: self.failures,
            queries: self.asked.last(),
        }
    }
}
