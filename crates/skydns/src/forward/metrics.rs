//! Metrics of forwarding.

mod streams;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use dnsconfig::Upstream;
use parking_lot::Mutex;
use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry,
    register_histogram_vec_with_registry, register_int_counter_vec_with_registry,
    register_int_counter_with_registry, register_int_gauge_with_registry,
};

use self::streams::{Connected, StreamMetrics};
use super::failure::Failure;
use crate::wire::Transport;

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
    upstreams: Arc<Mutex<HashMap<Upstream, Arc<UpstreamMetrics>>>>,
}

impl ForwardMetrics {
    /// Registers the metrics, all zero.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str| {
            register_int_counter_with_registry!(format!("kubedns_forward_{name}"), help, registry)
        };
        Ok(Self {
            requests: register_int_counter_vec_with_registry!(
                "kubedns_forward_requests_total",
                "Queries to an upstream, by the transport of the client; retries do not count.",
                &["upstream", "transport"],
                registry
            )?,
            durations: register_histogram_vec_with_registry!(
                "kubedns_forward_request_duration_seconds",
                "Time from the first query to an upstream to its usable response.",
                &["upstream"],
                BUCKETS.to_vec(),
                registry
            )?,
            errors: register_int_counter_vec_with_registry!(
                "kubedns_forward_errors_total",
                "Failed queries to an upstream, by cause.",
                &["upstream", "cause"],
                registry
            )?,
            tcp_retries: counter(
                "tcp_retries_total",
                "Truncated responses that were retried over TCP.",
            )?,
            streams: StreamMetrics::new(registry)?,
            in_flight: register_int_gauge_with_registry!(
                "kubedns_forward_in_flight",
                "Distinct queries to upstreams in flight.",
                registry
            )?,
            joined: counter(
                "joined_total",
                "Queries that joined an identical one in flight.",
            )?,
            overloaded: counter(
                "overloaded_total",
                "Queries rejected because too many were in flight, of all clients or of one.",
            )?,
            failed: counter("failed_total", "Queries that no upstream answered in time.")?,
            upstreams: Arc::default(),
        })
    }

    /// The metrics of one upstream.
    pub(super) fn upstream(&self, upstream: &Upstream) -> Arc<UpstreamMetrics> {
        let mut upstreams = self.upstreams.lock();
        if let Some(known) = upstreams.get(upstream) {
            return Arc::clone(known);
        }
        if upstreams.len() >= MAX_LABELLED {
            return Arc::new(UpstreamMetrics::new(self, OTHER.into()));
        }
        let metrics = Arc::new(UpstreamMetrics::new(self, upstream.to_string()));
        upstreams.insert(upstream.clone(), Arc::clone(&metrics));
        metrics
    }

    /// Removes the certificate metrics of upstreams that are not in `in_use`.
    pub(super) fn keep_only(&self, in_use: &BTreeSet<&Upstream>) {
        let upstreams = self.upstreams.lock();
        for gone in upstreams
            .keys()
            .filter(|upstream| !in_use.contains(upstream))
        {
            self.streams.forget(&gone.to_string());
        }
    }
}

/// The metrics of one upstream, with the label values already looked up.
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
        let requests = |transport: Transport| {
            metrics
                .requests
                .with_label_values(&[&label, transport.as_str()])
        };
        Self {
            udp: requests(Transport::Udp),
            tcp: requests(Transport::Tcp),
            duration: metrics.durations.with_label_values(&[&label]),
            errors: metrics.errors.clone(),
            tcp_retries: metrics.tcp_retries.clone(),
            streams: metrics.streams.clone(),
            label,
        }
    }

    pub(super) fn request(&self, transport: Transport) {
        match transport {
            Transport::Udp => self.udp.inc(),
            Transport::Tcp => self.tcp.inc(),
        }
    }

    pub(super) fn replied(&self, after: std::time::Duration) {
        self.duration.observe(after.as_secs_f64());
    }

    pub(super) fn failure(&self, failure: Failure) {
        self.error(failure.label());
    }

    /// Counts a datagram that was ignored because it does not match the query.
    pub(super) fn mismatch(&self) {
        self.error("mismatch");
    }

    pub(super) fn servfail(&self) {
        self.error("servfail");
    }

    pub(super) fn tcp_retry(&self) {
        self.tcp_retries.inc();
    }

    /// Counts an open connection until the returned guard is dropped.
    pub(super) fn connected(&self) -> Connected {
        self.streams.connected(&self.label)
    }

    /// Records a TLS handshake with a certificate that expires at `expires`, in seconds since 1970.
    pub(super) fn handshake(&self, resumed: bool, expires: i64) {
        self.streams.handshake(&self.label, resumed);
        if self.label != OTHER {
            self.streams.expires(&self.label, expires);
        }
    }

    /// Records whether the certificate of the upstream is trusted.
    pub(super) fn trusted(&self, trusted: bool) {
        if self.label != OTHER {
            self.streams.trusted(&self.label, trusted);
        }
    }

    fn error(&self, cause: &str) {
        self.errors.with_label_values(&[&self.label, cause]).inc();
    }
}
