//! State of one upstream.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use reports::sidecar::{DnsmasqUpstream, UpstreamCondition};

use super::metrics::UpstreamSeries;
use super::purpose::UpstreamPurpose;
use super::trouble::UpstreamTrouble;
use crate::monotonic::Monotonic;
use crate::time::{Now, milliseconds};

/// Failures in a row that change the condition. A single lost packet does not change the condition.
const FAILURES_IN_A_ROW: u32 = 2;

/// State of one upstream.
#[derive(Debug)]
pub(super) struct ProbedUpstream {
    pub(super) purpose: UpstreamPurpose,
    pub(super) status: DnsmasqUpstream,
    since: Instant,
    failures_in_a_row: u32,
    queries: Monotonic,
    series: UpstreamSeries,
}

impl ProbedUpstream {
    pub(super) fn new(address: SocketAddr, series: UpstreamSeries) -> Self {
        let status = DnsmasqUpstream {
            address: address.to_string(),
            ..DnsmasqUpstream::default()
        };
        Self {
            purpose: UpstreamPurpose::unknown(),
            status,
            since: Instant::now(),
            failures_in_a_row: 0,
            queries: Monotonic::default(),
            series,
        }
    }

    /// The status for a reader.
    pub(super) fn status_at(&self, now: Now) -> DnsmasqUpstream {
        DnsmasqUpstream {
            since: now.millis_of(self.since),
            ..self.status.clone()
        }
    }

    /// Updates the purpose, and the number of queries since dnsmasq started.
    pub(super) fn update(&mut self, purpose: UpstreamPurpose, queries: u64) {
        self.series.add_queries(self.queries.increase(queries));
        self.status.queries = queries;
        self.status.serves.clone_from(&purpose.domains);
        self.purpose = purpose;
    }

    /// Records the outcome of a probe.
    pub(super) fn record(&mut self, outcome: Result<Duration, UpstreamTrouble>, now: Now) {
        self.status.probes += 1;
        self.series.count_probe(&outcome);
        let condition = match outcome {
            Ok(latency) => self.record_answer(latency),
            Err(trouble) => self.record_trouble(trouble),
        };

        if condition != self.status.condition {
            let before = std::mem::replace(&mut self.status.condition, condition);
            self.log_change(before, now);
            self.since = now.clock;
        }
    }

    fn record_answer(&mut self, latency: Duration) -> UpstreamCondition {
        self.failures_in_a_row = 0;
        self.status.latency_ms = Some(milliseconds(latency));
        self.status.error.clear();
        UpstreamCondition::Answers
    }

    /// The condition stays as it is until enough probes in a row have failed.
    fn record_trouble(&mut self, trouble: UpstreamTrouble) -> UpstreamCondition {
        self.failures_in_a_row += 1;
        self.status.failures += 1;
        self.status.error = trouble.text;

        if self.failures_in_a_row < FAILURES_IN_A_ROW {
            self.status.condition
        } else {
            trouble.cause.condition()
        }
    }

    /// Logs a change of the condition. The first answer is not logged.
    fn log_change(&self, before: UpstreamCondition, now: Now) {
        let upstream = &self.status.address;
        let error = &self.status.error;
        let serves = self.status.serves.join(" ");

        match self.status.condition {
            UpstreamCondition::Answers if before != UpstreamCondition::Waiting => {
                let lasted = now.age(self.since);
                tracing::info!(%upstream, serves, ?lasted, "upstream of dnsmasq answers again");
            }
            UpstreamCondition::Fails => {
                tracing::warn!(%upstream, serves, error, "upstream of dnsmasq fails");
            }
            UpstreamCondition::Silent => {
                tracing::warn!(%upstream, serves, error, "upstream of dnsmasq does not answer");
            }
            UpstreamCondition::Answers | UpstreamCondition::Waiting => {}
        }
    }
}
