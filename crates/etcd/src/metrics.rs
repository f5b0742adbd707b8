//! What is measured of the zones of etcd.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// The metrics of all zones.
#[derive(Debug, Clone)]
pub struct Metrics {
    connected: IntGaugeVec,
    records: IntGaugeVec,
    lists: IntCounterVec,
    failures: IntCounterVec,
    skipped: IntCounterVec,
}

/// The metrics of one zone.
#[derive(Debug, Clone)]
pub struct FeedMetrics {
    pub(crate) connected: IntGauge,
    pub(crate) records: IntGauge,
    pub(crate) lists: IntCounter,
    pub(crate) failures: IntCounter,
    pub(crate) skipped: IntCounter,
}

impl Metrics {
    /// Registers them.
    ///
    /// # Errors
    ///
    /// When one of their names is taken.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| {
            let made = IntGaugeVec::new(Opts::new(name, help), &["zone"])?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let counter = |name: &str, help: &str| {
            let made = IntCounterVec::new(Opts::new(name, help), &["zone"])?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        Ok(Self {
            connected: gauge(
                "kubedns_etcd_connected",
                "Whether the keys of the zone are being watched; the last records are served while not.",
            )?,
            records: gauge("kubedns_etcd_records", "Messages of the zone in memory.")?,
            lists: counter("kubedns_etcd_lists_total", "Whole lists of the zone's keys that were read.")?,
            failures: counter(
                "kubedns_etcd_failures_total",
                "Sessions with etcd that failed, or could not begin.",
            )?,
            skipped: counter(
                "kubedns_etcd_skipped_keys_total",
                "Keys that were skipped, each time they were read: key or value cannot be used.",
            )?,
        })
    }

    /// Those of one zone, from 0 on.
    pub fn feed(&self, zone: &str) -> FeedMetrics {
        FeedMetrics {
            connected: self.connected.with_label_values(&[zone]),
            records: self.records.with_label_values(&[zone]),
            lists: self.lists.with_label_values(&[zone]),
            failures: self.failures.with_label_values(&[zone]),
            skipped: self.skipped.with_label_values(&[zone]),
        }
    }
}
