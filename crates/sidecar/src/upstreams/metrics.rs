//! Metrics of the upstreams of dnsmasq. Only upstreams in the latest list of servers from dnsmasq
//! have series, at most [`MAX_UPSTREAMS`](super::MAX_UPSTREAMS) of them.

use std::net::SocketAddr;

use daemon::metrics::{MetricError, Metrics};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::probe::ProbeOutcome;
use super::trouble::TroubleCause;
use crate::metric_name::metric_name;

/// Histogram buckets of the latency, in seconds.
const BUCKETS: [f64; 13] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0,
];

const CAUSES: [TroubleCause; 4] = [
    TroubleCause::Timeout,
    TroubleCause::Unreachable,
    TroubleCause::Servfail,
    TroubleCause::Refused,
];

/// The metrics of all upstreams.
#[derive(Debug)]
pub(super) struct UpstreamMetrics {
    probes: IntCounterVec,
    errors: IntCounterVec,
    duration: HistogramVec,
    queries: IntCounterVec,
}

/// The series of one upstream.
#[derive(Debug)]
pub(super) struct UpstreamSeries {
    probes: IntCounter,
    errors: [(TroubleCause, IntCounter); CAUSES.len()],
    duration: Histogram,
    queries: IntCounter,
}

impl UpstreamMetrics {
    pub(super) fn new(namespace: &str, metrics: &Metrics) -> Result<Self, MetricError> {
        let name = |what: &str| metric_name(namespace, &format!("dnsmasq_upstream_{what}"));

        Ok(Self {
            probes: metrics.int_counter_vec(
                &name("probes_total"),
                "Probes of an upstream of dnsmasq.",
                &["upstream"],
            )?,
            errors: metrics.int_counter_vec(
                &name("errors_total"),
                "Failed probes of an upstream of dnsmasq, by cause.",
                &["upstream", "cause"],
            )?,
            duration: metrics.histogram_vec(
                &name("probe_duration_seconds"),
                "Latency of answers to probes of an upstream of dnsmasq, except SERVFAIL and REFUSED.",
                &BUCKETS,
                &["upstream"],
            )?,
            queries: metrics.int_counter_vec(
                &name("queries_total"),
                "Queries that dnsmasq sent to an upstream, as dnsmasq reports them.",
                &["upstream"],
            )?,
        })
    }

    /// Creates and exports the series of an upstream.
    pub(super) fn series_of(&self, upstream: SocketAddr) -> UpstreamSeries {
        let upstream = upstream.to_string();
        let errors = CAUSES.map(|cause| {
            let labels = [upstream.as_str(), cause.label()];
            (cause, self.errors.with_label_values(&labels))
        });

        UpstreamSeries {
            probes: self.probes.with_label_values(&[&upstream]),
            errors,
            duration: self.duration.with_label_values(&[&upstream]),
            queries: self.queries.with_label_values(&[&upstream]),
        }
    }

    /// Removes the series of an upstream. A missing series is not an error.
    pub(super) fn remove_series(&self, upstream: SocketAddr) {
        let upstream = upstream.to_string();

        let _ = self.probes.remove_label_values(&[&upstream]);
        let _ = self.duration.remove_label_values(&[&upstream]);
        let _ = self.queries.remove_label_values(&[&upstream]);
        for cause in CAUSES {
            let labels = [upstream.as_str(), cause.label()];
            let _ = self.errors.remove_label_values(&labels);
        }
    }
}

impl UpstreamSeries {
    pub(super) fn count_probe(&self, outcome: &ProbeOutcome) {
        self.probes.inc();
        match outcome {
            Ok(answer) => self.duration.observe(answer.latency.as_secs_f64()),
            Err(trouble) => {
                for (cause, errors) in &self.errors {
                    if *cause == trouble.cause {
                        errors.inc();
                    }
                }
            }
        }
    }

    pub(super) fn add_queries(&self, more: u64) {
        self.queries.inc_by(more);
    }
}
