//! Remembers how fast each upstream of kubedns answered over the last ten minutes.
//!
//! The latencies come from the counters of kubedns, which the sidecar reads every few seconds.
//! dnsmasq has no such counters, so the probes of its upstreams remember their results themselves.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;
use reports::kubedns::{KubednsReport, KubednsUpstream};
use reports::sidecar::{ProbeResult, ProbeState};

use crate::recent::Recent;
use crate::time::{Now, PLOT_INTERVAL};

/// The number of remembered results of an upstream. There is a result every ten seconds, so the
/// results cover ten minutes.
const MAX_RESULTS: usize = 60;

/// The remembered results of the upstreams in the last report of kubedns.
#[derive(Debug, Default)]
pub(crate) struct UpstreamHistories {
    known: Mutex<KnownHistories>,
}

#[derive(Debug, Default)]
struct KnownHistories {
    last_at: Option<Instant>,
    /// The histories, by the address of the upstream. Their number is limited, because a
    /// report has a limited number of upstreams.
    histories: BTreeMap<String, UpstreamHistory>,
}

#[derive(Debug)]
struct UpstreamHistory {
    /// The counters of the last reading.
    last: KubednsUpstream,
    results: Recent<(Instant, ProbeResult), MAX_RESULTS>,
}

impl UpstreamHistories {
    /// Copies the histories into the report. First reads the counters in the report, unless the
    /// last reading is too recent.
    pub(crate) fn update(&self, kubedns: &mut KubednsReport, now: Now) {
        let mut known = self.known.lock();
        let is_due = known
            .last_at
            .is_none_or(|last| now.age(last) >= PLOT_INTERVAL);
        if is_due {
            known.last_at = Some(now.clock);
            known.add_readings(&kubedns.upstreams, now);
        }

        for upstream in &mut kubedns.upstreams {
            if let Some(history) = known.histories.get(&upstream.address) {
                upstream.history = history.at(now);
            }
        }
    }
}

impl KnownHistories {
    fn add_readings(&mut self, upstreams: &[KubednsUpstream], now: Now) {
        let mut before = std::mem::take(&mut self.histories);

        for upstream in upstreams {
            let history = match before.remove(&upstream.address) {
                Some(history) => history.with_reading(upstream, now),
                None => UpstreamHistory {
                    last: upstream.clone(),
                    results: Recent::default(),
                },
            };
            self.histories.insert(upstream.address.clone(), history);
        }
    }
}

impl UpstreamHistory {
    fn with_reading(mut self, upstream: &KubednsUpstream, now: Now) -> Self {
        let before = std::mem::replace(&mut self.last, upstream.clone());
        self.results
            .push((now.clock, result_between(&before, upstream)));
        self
    }

    fn at(&self, now: Now) -> Vec<ProbeResult> {
        let results = self.results.iter();
        results
            .map(|(at, result)| ProbeResult {
                at: now.millis_of(*at),
                ..*result
            })
            .collect()
    }
}

/// The result of an upstream between two readings. The upstream has failed if there were errors,
/// and at least as many errors as responses. SERVFAIL and REFUSED count as errors and as responses.
/// Fewer errors than responses count as success. The result is `Waiting` if there were neither
/// errors nor responses, or if the count of queries or the count of errors has decreased, for
/// example because kubedns has restarted.
fn result_between(before: &KubednsUpstream, after: &KubednsUpstream) -> ProbeResult {
    let responses = KubednsUpstream {
        answers: after.answers - before.answers,
        answer_seconds: after.answer_seconds - before.answer_seconds,
        ..KubednsUpstream::default()
    };
    let errors = after.errors - before.errors;
    let queries = after.requests - before.requests;

    let state = if queries < 0.0 || errors < 0.0 {
        ProbeState::Waiting
    } else if errors > 0.0 && errors >= responses.answers {
        ProbeState::Failed
    } else if responses.answers > 0.0 {
        ProbeState::Ok
    } else {
        ProbeState::Waiting
    };
    let latency_ms = match state {
        ProbeState::Ok => responses.mean_ms().unwrap_or_default(),
        _ => 0.0,
    };
    ProbeResult {
        at: 0,
        state,
        latency_ms,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The counters of an upstream: queries, errors, responses, and the seconds that the responses
    /// took.
    fn counters(requests: f64, errors: f64, answers: f64, answer_seconds: f64) -> KubednsReport {
        let upstream = KubednsUpstream {
            address: "192.0.2.1:53".to_owned(),
            requests,
            errors,
            answers,
            answer_seconds,
            ..KubednsUpstream::default()
        };
        KubednsReport {
            upstreams: vec![upstream],
            ..KubednsReport::default()
        }
    }

    fn history_after(
        histories: &UpstreamHistories,
        seconds: u64,
        mut report: KubednsReport,
    ) -> Vec<(ProbeState, f64)> {
        histories.update(&mut report, Now::at(Duration::from_secs(seconds)));
        let history = report.upstreams.first().map(|upstream| &upstream.history);
        let results = history.into_iter().flatten();
        results
            .map(|result| (result.state, result.latency_ms))
            .collect()
    }

    #[test]
    fn history_follows_counters() {
        let histories = UpstreamHistories::default();
        let after = |seconds, report| history_after(&histories, seconds, report);

        assert_eq!(after(0, counters(10.0, 0.0, 10.0, 1.0)), []);
        let fast = (ProbeState::Ok, 62.5);
        assert_eq!(after(10, counters(20.0, 0.0, 20.0, 1.625)), [fast]);
        // A report after only two seconds adds no result.
        assert_eq!(after(12, counters(21.0, 0.0, 20.0, 1.625)), [fast]);

        let failed = (ProbeState::Failed, 0.0);
        // Since the last result, eight queries were sent. Four have failed, and four still wait for
        // a response.
        let silent = after(20, counters(28.0, 4.0, 20.0, 1.625));
        assert_eq!(silent, [fast, failed]);
        // Responses that are SERVFAIL are errors, too.
        let servfail = after(30, counters(32.0, 8.0, 24.0, 1.625));
        assert_eq!(servfail, [fast, failed, failed]);
        let idle = (ProbeState::Waiting, 0.0);
        let not_asked = after(40, counters(32.0, 8.0, 24.0, 1.625));
        assert_eq!(not_asked, [fast, failed, failed, idle]);
        let restarted = after(50, counters(2.0, 0.0, 2.0, 0.001));
        assert_eq!(restarted.last(), Some(&idle));

        after(60, KubednsReport::default());
        let returned = after(70, counters(2.0, 0.0, 2.0, 0.001));
        assert_eq!(
            returned,
            [],
            "an upstream that left the report must lose its history"
        );
    }
}
