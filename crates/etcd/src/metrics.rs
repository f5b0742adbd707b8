//! Metrics of the zones in etcd.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

/// The metrics of all zones. A clone shares the same metrics.
#[derive(Debug, Clone)]
pub struct EtcdMetrics {
    connected: IntGaugeVec,
    records: IntGaugeVec,
    lists: IntCounterVec,
    failures: IntCounterVec,
    skipped: IntCounterVec,
}

/// The metrics of one zone.
#[derive(Debug, Clone)]
pub struct EtcdFeedMetrics {
    pub(crate) connected: IntGauge,
    pub(crate) records: IntGauge,
    pub(crate) lists: IntCounter,
    pub(crate) failures: IntCounter,
    pub(crate) skipped: IntCounter,
}

impl EtcdMetrics {
    /// Creates the metrics, without values for any zone. The caller registers them.
    ///
    /// # Errors
    ///
    /// Never, because the names of the metrics are valid.
    pub fn new() -> prometheus::Result<Self> {
        Ok(Self {
            connected: gauge_per_zone(
                "kubedns_etcd_connected",
                "1 while the keys of the zone are watched.",
            )?,
            records: gauge_per_zone(
                "kubedns_etcd_records",
                "Keys of the zone in memory, without the skipped keys.",
            )?,
            lists: counter_per_zone(
                "kubedns_etcd_lists_total",
                "Complete lists of the zone's keys that were read.",
            )?,
            failures: counter_per_zone(
                "kubedns_etcd_failures_total",
                "Sessions with etcd that failed, or could not begin.",
            )?,
            skipped: counter_per_zone(
                "kubedns_etcd_skipped_keys_total",
                "Keys skipped because the key or its value is invalid, counted at each read.",
            )?,
        })
    }

    /// The metrics of one zone, each with the value 0 at first.
    pub fn for_zone(&self, zone: &str) -> EtcdFeedMetrics {
        EtcdFeedMetrics {
            connected: self.connected.with_label_values(&[zone]),
            records: self.records.with_label_values(&[zone]),
            lists: self.lists.with_label_values(&[zone]),
            failures: self.failures.with_label_values(&[zone]),
            skipped: self.skipped.with_label_values(&[zone]),
        }
    }
}

impl EtcdMetrics {
    fn collectors(&self) -> [&dyn Collector; 5] {
        [
            &self.connected,
            &self.records,
            &self.lists,
            &self.failures,
            &self.skipped,
        ]
    }
}

fn gauge_per_zone(name: &str, help: &str) -> prometheus::Result<IntGaugeVec> {
    IntGaugeVec::new(Opts::new(name, help), &["zone"])
}

fn counter_per_zone(name: &str, help: &str) -> prometheus::Result<IntCounterVec> {
    IntCounterVec::new(Opts::new(name, help), &["zone"])
}

impl Collector for EtcdMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors()
            .into_iter()
            .flat_map(Collector::desc)
            .collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.collectors()
            .into_iter()
            .flat_map(Collector::collect)
            .collect()
    }
}
