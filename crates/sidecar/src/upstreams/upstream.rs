//! State of one upstream.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use reports::sidecar::{DnsmasqUpstream, ProbeResult, ProbeState, UpstreamCondition};

use super::metrics::UpstreamSeries;
use super::probe::{ProbeOutcome, UpstreamProbe, UsableAnswer};
use super::purpose::UpstreamPurpose;
use super::trouble::UpstreamTrouble;
use crate::counter_readings::CounterReadings;
use crate::recent::Recent;
use crate::time::{Now, millis, milliseconds};

/// Failures in a row that change the condition. A single lost packet does not change the condition.
const FAILURES_IN_A_ROW: u32 = 2;
/// Timeout of each query to an upstream that has given a usable answer before. With one repetition
/// and the default interval, an upstream that falls silent is found within ten seconds.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of each query to an upstream that has never given a usable answer. The timeout is long
/// enough for a resolver that answers SERVFAIL after its own timeouts.
const FIRST_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of results kept for the plot: ten minutes at the default interval of five
/// seconds.
pub(super) const MAX_HISTORY: usize = 120;

/// State of one upstream.
#[derive(Debug)]
pub(super) struct UpstreamState {
    pub(super) purpose: UpstreamPurpose,
    /// The position in `purpose.questions` of the query that the next probe sends first.
    preferred: usize,
    pub(super) status: DnsmasqUpstream,
    since: Instant,
    failures_in_a_row: u32,
    queries: CounterReadings,
    history: Recent<ProbeResult, MAX_HISTORY>,
    /// `None` if the upstream is not probed.
    series: Option<UpstreamSeries>,
}

impl UpstreamState {
    /// An upstream without results. It is probed if it has `series`.
    pub(super) fn new(
        address: SocketAddr,
        purpose: UpstreamPurpose,
        series: Option<UpstreamSeries>,
    ) -> Self {
        let status = DnsmasqUpstream {
            address: address.to_string(),
            ..DnsmasqUpstream::default()
        };
        Self {
            purpose,
            preferred: 0,
            status,
            since: Instant::now(),
            failures_in_a_row: 0,
            queries: CounterReadings::default(),
            history: Recent::default(),
            series,
        }
    }

    pub(super) fn is_probed(&self) -> bool {
        self.series.is_some()
    }

    /// The status, with its history, as it is reported at the time `now`.
    pub(super) fn status_at(&self, now: Now) -> DnsmasqUpstream {
        DnsmasqUpstream {
            since: now.millis_of(self.since),
            history: self.history.iter().copied().collect(),
            ..self.status.clone()
        }
    }

    /// Counts the queries since the last reading of dnsmasq's counter. Counts nothing if `is_own`
    /// is false: the counter may include queries to another upstream.
    pub(super) fn count_queries(&mut self, reading: u64, is_own: bool) {
        if !is_own {
            self.queries.skip_to(reading);
            return;
        }
        let increase = self.queries.increase(reading);
        if let Some(series) = &self.series {
            series.add_queries(increase);
        }
        self.status.queries += increase;
    }

    pub(super) fn set_purpose(&mut self, purpose: UpstreamPurpose) {
        self.status.serves.clone_from(&purpose.domains);
        if self.purpose != purpose {
            self.preferred = 0;
            self.purpose = purpose;
        }
    }

    /// The next probe.
    pub(super) fn next_probe(&self) -> UpstreamProbe {
        // An upstream that has given a usable answer before is expected to answer fast, so its
        // timeout is short.
        let timeout = if self.status.has_answered {
            TIMEOUT
        } else {
            FIRST_TIMEOUT
        };
        UpstreamProbe {
            questions: self.purpose.questions.clone(),
            first: self.preferred,
            timeout,
        }
    }

    /// Records the outcome of a probe. Returns whether to repeat the probe at once: one packet may
    /// have been lost.
    pub(super) fn record(&mut self, outcome: ProbeOutcome, now: Now) -> bool {
        self.status.probes += 1;
        if let Some(series) = &self.series {
            series.count_probe(&outcome);
        }
        self.remember(&outcome, now);
        let is_failure = outcome.is_err();
        let condition = match outcome {
            Ok(answer) => self.record_answer(answer),
            Err(trouble) => self.record_trouble(trouble),
        };

        if condition != self.status.condition {
            let before = std::mem::replace(&mut self.status.condition, condition);
            self.log_change(before, now);
            self.since = now.clock;
        }
        is_failure && self.failures_in_a_row < FAILURES_IN_A_ROW
    }

    /// Adds the outcome to the history.
    fn remember(&mut self, outcome: &ProbeOutcome, now: Now) {
        let (state, latency) = match outcome {
            Ok(answer) => (ProbeState::Ok, answer.latency),
            Err(_) => (ProbeState::Failed, Duration::ZERO),
        };
        self.history.push(ProbeResult {
            at: millis(now.time_of_day),
            state,
            latency_ms: milliseconds(latency),
        });
    }

    fn record_answer(&mut self, answer: UsableAnswer) -> UpstreamCondition {
        self.failures_in_a_row = 0;
        self.preferred = answer.question;
        self.status.has_answered = true;
        self.status.latency_ms = Some(milliseconds(answer.latency));
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

    /// Logs a change of the condition. The change from `Waiting` to `Answers` is not logged.
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
