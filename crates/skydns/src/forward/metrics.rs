//! Metrics of forwarding.

mod streams;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry,
    register_histogram_vec_with_registry, register_int_counter_vec_with_registry,
    register_int_counter_with_registry, register_int_gauge_with_registry,
};
use wire::Transport;
use wire::Upstream;

use self::streams::{ConnectionGuard, StreamMetrics};
use super::failure::UpstreamFailure;

/// Maximum number of upstreams with labels of their own. All other upstreams share the label
/// `other`, so that frequent configuration changes do not make the metrics grow without bound.
const MAX_LABELLED: usize = 64;

const OTHER: &str = "other";

/// Upper bounds of the histogram buckets, in seconds.
const BUCKETS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0,
];

/// The metrics of a [`Forwarder`](super::Forwarder), all under `kubedns_forward_`. Clones share
/// their values.
#[derive(Clone, Debug)]
pub struct ForwardMetrics {
    requests: IntCounterVec,
    durations: HistogramVec,
    errors: IntCounterVec,
    tcp_retries: IntCounter,
    streams: StreamMetrics,
    pub(super) in_flight: IntGauge,
    pub(super) joined: IntCounter,
    pub(super) overloaded: IntCounter,
    pub(super) failed: IntCounter,
    upstreams: Arc<Mutex<HashMap<Upstream, Arc<UpstreamMetrics>, RandomState>>>,
}

impl ForwardMetrics {
    /// Registers the metrics.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            requests: register_int_counter_vec_with_registry!(
                "kubedns_forward_requests_total",
                "Queries to an upstream, and probes of its health, by the transport of the client (udp for probes); retries do not count.",
                &["upstream", "transport"],
                registry
            )?,
            durations: register_histogram_vec_with_registry!(
                "kubedns_forward_request_duration_seconds",
                "Time from a query to an upstream until its reply, including retries. Replies with SERVFAIL and REFUSED count, too.",
                &["upstream"],
                BUCKETS.to_vec(),
                registry
            )?,
            errors: register_int_counter_vec_with_registry!(
                "kubedns_forward_errors_total",
                "Failed queries to an upstream, its SERVFAIL and REFUSED replies, and mismatching replies, by cause.",
                &["upstream", "cause"],
                registry
            )?,
            tcp_retries: register_counter(
                registry,
                "tcp_retries_total",
                "Queries sent again over TCP, after a truncated reply or too many mismatching replies over UDP.",
            )?,
            streams: StreamMetrics::new(registry)?,
            in_flight: register_int_gauge_with_registry!(
                "kubedns_forward_in_flight",
                "Distinct queries in flight to upstreams.",
                registry
            )?,
            joined: register_counter(
                registry,
                "joined_total",
                "Queries that joined an identical one in flight.",
            )?,
            overloaded: register_counter(
                registry,
                "overloaded_total",
                "Queries rejected because too many queries were in flight, from all clients together or from one client.",
            )?,
            failed: register_counter(
                registry,
                "failed_total",
                "Queries that no upstream answered in time.",
            )?,
            upstreams: Arc::default(),
        })
    }

    /// The metrics of one upstream.
    pub(super) fn upstream(&self, upstream: &Upstream) -> Arc<UpstreamMetrics> {
        let mut upstreams = self.upstreams.lock();
        if let Some(known) = upstreams.get(upstream) {
            return Arc::clone(known);
        }

        // Metrics of earlier upstreams stay: counters must not disappear.
        if upstreams.len() >= MAX_LABELLED {
            return Arc::new(UpstreamMetrics::new(self, OTHER.into()));
        }
        let metrics = Arc::new(UpstreamMetrics::new(self, upstream.to_string()));
        upstreams.insert(upstream.clone(), Arc::clone(&metrics));
        metrics
    }

    fn requests_of(&self, upstream: &str, transport: Transport) -> IntCounter {
        self.requests
            .with_label_values(&[upstream, transport.as_str()])
    }

    /// Removes the certificate metrics of upstreams that are not in `in_use`.
    pub(super) fn retain_upstreams(&self, in_use: &BTreeSet<&Upstream>) {
        let upstreams = self.upstreams.lock();
        for upstream in upstreams.keys() {
            if !in_use.contains(upstream) {
                self.streams.remove_certificate(&upstream.to_string());
            }
        }
    }
}

fn register_counter(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntCounter> {
    register_int_counter_with_registry!(format!("kubedns_forward_{name}"), help, registry)
}

/// The metrics of one upstream. The series of queries and durations are looked up in advance.
#[derive(Debug)]
pub(super) struct UpstreamMetrics {
    label: String,
    udp: IntCounter,
    tcp: IntCounter,
    duration: Histogram,
    errors: IntCounterVec,
    tcp_retries: IntCounter,
    streams: StreamMetrics,
}

impl UpstreamMetrics {
    fn new(metrics: &ForwardMetrics, label: String) -> Self {
        Self {
            udp: metrics.requests_of(&label, Transport::Udp),
            tcp: metrics.requests_of(&label, Transport::Tcp),
            duration: metrics.durations.with_label_values(&[&label]),
            errors: metrics.errors.clone(),
            tcp_retries: metrics.tcp_retries.clone(),
            streams: metrics.streams.clone(),
            label,
        }
    }

    pub(super) fn count_request(&self, transport: Transport) {
        match transport {
            Transport::Udp => self.udp.inc(),
            Transport::Tcp => self.tcp.inc(),
        }
    }

    pub(super) fn observe_duration(&self, after: std::time::Duration) {
        self.duration.observe(after.as_secs_f64());
    }

    pub(super) fn count_failure(&self, failure: UpstreamFailure) {
        self.count_error(failure.label());
    }

    /// Counts a message that does not match the query.
    pub(super) fn count_mismatch(&self) {
        self.count_error("mismatch");
    }

    pub(super) fn count_servfail(&self) {
        self.count_error("servfail");
    }

    pub(super) fn count_refused(&self) {
        self.count_error("rcode_refused");
    }

    pub(super) fn count_tcp_retry(&self) {
        self.tcp_retries.inc();
    }

    /// Counts an open connection until the returned guard is dropped.
    pub(super) fn count_connection(&self) -> ConnectionGuard {
        self.streams.count_connection(&self.label)
    }

    /// Counts a TLS handshake. Unless the label is `other`, also records that the certificate
    /// expires at `expires`, in seconds since 1970.
    pub(super) fn record_handshake(&self, resumed: bool, expires: i64) {
        self.streams.count_handshake(&self.label, resumed);
        if self.label != OTHER {
            self.streams.record_expiry(&self.label, expires);
        }
    }

    /// Records whether the certificate of the upstream is trusted, unless the label is `other`.
    pub(super) fn record_trust(&self, trusted: bool) {
        if self.label != OTHER {
            self.streams.record_trust(&self.label, trusted);
        }
    }

    fn count_error(&self, cause: &str) {
        self.errors.with_label_values(&[&self.label, cause]).inc();
    }
}
