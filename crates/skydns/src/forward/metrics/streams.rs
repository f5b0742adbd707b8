//! Metrics of connections to upstreams, and of the certificates of upstreams.

use prometheus::{
    IntCounterVec, IntGauge, IntGaugeVec, Registry, register_int_counter_vec_with_registry,
    register_int_gauge_vec_with_registry,
};

/// Metrics with the label `upstream`. Clones share their values.
#[derive(Clone, Debug)]
pub(super) struct StreamMetrics {
    connections: IntGaugeVec,
    handshakes: IntCounterVec,
    expiries: IntGaugeVec,
    trusted: IntGaugeVec,
}

impl StreamMetrics {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            connections: register_gauge(
                registry,
                "connections",
                "Open connections to an upstream over TCP or TLS.",
            )?,
            handshakes: register_int_counter_vec_with_registry!(
                "kubedns_forward_tls_handshakes_total",
                "Completed TLS handshakes with an upstream; `resumed` ones continue an earlier session.",
                &["upstream", "kind"],
                registry
            )?,
            expiries: register_gauge(
                registry,
                "tls_certificate_expiry_timestamp_seconds",
                "Expiry of the certificate in the last handshake with an upstream, in seconds since 1970.",
            )?,
            trusted: register_gauge(
                registry,
                "tls_trusted",
                "1 if the certificate in the last handshake with an upstream is trusted; 0 if not, and then the upstream is not queried.",
            )?,
        })
    }

    pub(super) fn count_connection(&self, upstream: &str) -> ConnectionGuard {
        let connections = self.connections.with_label_values(&[upstream]);
        connections.inc();
        ConnectionGuard(connections)
    }

    pub(super) fn count_handshake(&self, upstream: &str, resumed: bool) {
        let kind = if resumed { "resumed" } else { "full" };
        self.handshakes.with_label_values(&[upstream, kind]).inc();
    }

    pub(super) fn record_expiry(&self, upstream: &str, expires: i64) {
        self.expiries.with_label_values(&[upstream]).set(expires);
    }

    pub(super) fn record_trust(&self, upstream: &str, trusted: bool) {
        self.trusted
            .with_label_values(&[upstream])
            .set(trusted.into());
    }

    /// Removes the metrics of an upstream's certificate.
    pub(super) fn remove_certificate(&self, upstream: &str) {
        // The removal fails if the upstream has no such metrics, for example without TLS.
        for gauge in [&self.expiries, &self.trusted] {
            let _ = gauge.remove_label_values(&[upstream]);
        }
    }
}

/// Registers the gauge `kubedns_forward_NAME` with the label `upstream`.
fn register_gauge(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntGaugeVec> {
    let name = format!("kubedns_forward_{name}");
    register_int_gauge_vec_with_registry!(name, help, &["upstream"], registry)
}

/// Counts an open connection until the guard is dropped.
pub(in crate::forward) struct ConnectionGuard(IntGauge);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
