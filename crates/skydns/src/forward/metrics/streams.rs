//! Metrics of connections to upstreams, and of their certificates.

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
        let gauge = |name: &str, help: &str| {
            register_int_gauge_vec_with_registry!(
                format!("kubedns_forward_{name}"),
                help,
                &["upstream"],
                registry
            )
        };
        Ok(Self {
            connections: gauge(
                "connections",
                "Open connections to an upstream over TCP or TLS.",
            )?,
            handshakes: register_int_counter_vec_with_registry!(
                "kubedns_forward_tls_handshakes_total",
                "Completed TLS handshakes with an upstream; `resumed` ones continue an earlier session.",
                &["upstream", "kind"],
                registry
            )?,
            expiries: gauge(
                "tls_certificate_expiry_timestamp_seconds",
                "Expiry of the certificate in the last handshake with an upstream, in seconds since 1970.",
            )?,
            trusted: gauge(
                "tls_trusted",
                "1 if the certificate in the last handshake with an upstream is trusted, else 0: it is not queried.",
            )?,
        })
    }

    pub(super) fn connected(&self, upstream: &str) -> Connected {
        let connections = self.connections.with_label_values(&[upstream]);
        connections.inc();
        Connected(connections)
    }

    pub(super) fn handshake(&self, upstream: &str, resumed: bool) {
        let kind = if resumed { "resumed" } else { "full" };
        self.handshakes.with_label_values(&[upstream, kind]).inc();
    }

    pub(super) fn expires(&self, upstream: &str, expires: i64) {
        self.expiries.with_label_values(&[upstream]).set(expires);
    }

    pub(super) fn trusted(&self, upstream: &str, trusted: bool) {
        self.trusted
            .with_label_values(&[upstream])
            .set(trusted.into());
    }

    /// Removes the metrics of an upstream's certificate.
    pub(super) fn forget(&self, upstream: &str) {
        for certificates in [&self.expiries, &self.trusted] {
            // Only upstreams over TLS have certificate metrics; for others the removal fails.
            let _ = certificates.remove_label_values(&[upstream]);
        }
    }
}

pub(in crate::forward) struct Connected(IntGauge);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.dec();
    }
}
