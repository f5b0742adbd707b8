//! Metrics of the zones in etcd.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

/// The metrics of all zones. A clone shares the same metrics.
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
    /// Creates the metrics, without values for any zone. The caller registers them.
    ///
    /// # Errors
    ///
    /// Never, since the names of the metrics are valid.
    pub fn new() -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| IntGaugeVec::new(Opts::new(name, help), &["zone"]);
        let counter = |name: &str, help: &str| IntCounterVec::new(Opts::new(name, help), &["zone"]);
        Ok(Self {
            connected: gauge(
                "kubedns_etcd_connected",
                "1 while the keys of the zone are watched, 0 while the last records are served without a watch.",
            )?,
            records: gauge("kubedns_etcd_records", "Messages of the zone in memory.")?,
            lists: counter(
                "kubedns_etcd_lists_total",
                "Complete lists of the zone's keys that were read.",
            )?,
            failures: counter(
                "kubedns_etcd_failures_total",
                "Sessions with etcd that failed, or could not begin.",
            )?,
            skipped: counter(
                "kubedns_etcd_skipped_keys_total",
                "Keys skipped because key or value is invalid, counted each time they were read.",
            )?,
        })
    }

    /// The metrics of one zone, each with the value 0 at first.
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

impl Metrics {
    fn all(&self) -> [&dyn Collector; 5] {
        [
            &self.connected,
            &self.records,
            &self.lists,
            &self.failures,
            &self.skipped,
        ]
    }
}

impl Collector for Metrics {
    fn desc(&self) -> Vec<&Desc> {
        self.all().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.all()
            .into_iter()
            .flat_map(Collector::collect)
            .collect()
    }
}
