//! Metrics of the zones in etcd.

use std::sync::Arc;

use daemon::metrics::gauge_value;
use parking_lot::Mutex;
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

/// The metrics of one [`EtcdFeed`](crate::EtcdFeed). All feeds of a zone share the counters of the
/// zone.
#[derive(Debug)]
pub struct EtcdFeedMetrics {
    gauges: Arc<ZoneGauges>,
    /// The index of the feed among the feeds of its zone.
    feed: usize,
    pub(crate) lists: IntCounter,
    pub(crate) failures: IntCounter,
    pub(crate) skipped: IntCounter,
}

/// The gauges of one zone, which all feeds of the zone set together.
#[derive(Debug)]
struct ZoneGauges {
    connected: IntGauge,
    records: IntGauge,
    feeds: Mutex<Vec<FeedState>>,
}

/// The contribution of one feed to the gauges of its zone.
#[derive(Debug, Clone, Default)]
struct FeedState {
    is_connected: bool,
    records: usize,
}

impl EtcdFeedMetrics {
    /// Sets whether the keys of this feed are watched.
    pub(crate) fn set_connected(&self, is_connected: bool) {
        self.update(|state| state.is_connected = is_connected);
    }

    /// Sets the number of keys of this feed in memory.
    pub(crate) fn set_records(&self, records: usize) {
        self.update(|state| state.records = records);
    }

    fn update(&self, change: impl FnOnce(&mut FeedState)) {
        let mut feeds = self.gauges.feeds.lock();
        if let Some(state) = feeds.get_mut(self.feed) {
            change(state);
        }

        // The lock is kept, so that the gauges have the newest state.
        let records = feeds.iter().map(|state| state.records).sum();
        let all_connected = feeds.iter().all(|state| state.is_connected);
        self.gauges.records.set(gauge_value(records));
        self.gauges.connected.set(all_connected.into());
    }
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
                "1 while the keys of the zone are watched in every etcd that the zone comes from.",
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

    /// The metrics of each of the `count` feeds of one zone. All values are 0 at first.
    pub fn for_feeds(&self, zone: &str, count: usize) -> Vec<EtcdFeedMetrics> {
        let gauges = Arc::new(ZoneGauges {
            connected: self.connected.with_label_values(&[zone]),
            records: self.records.with_label_values(&[zone]),
            feeds: Mutex::new(vec![FeedState::default(); count]),
        });
        let lists = self.lists.with_label_values(&[zone]);
        let failures = self.failures.with_label_values(&[zone]);
        let skipped = self.skipped.with_label_values(&[zone]);

        let feeds = (0..count).map(|feed| EtcdFeedMetrics {
            gauges: Arc::clone(&gauges),
            feed,
            lists: lists.clone(),
            failures: failures.clone(),
            skipped: skipped.clone(),
        });
        feeds.collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of the gauges `connected` and `records`.
    fn gauges(metrics: &EtcdMetrics) -> [i64; 2] {
        [&metrics.connected, &metrics.records]
            .map(|gauge| gauge.with_label_values(&["arpa."]).get())
    }

    #[test]
    fn feeds_of_zone_share_gauges() {
        let metrics = EtcdMetrics::new().unwrap();
        let feeds = metrics.for_feeds("arpa.", 2);
        assert_eq!(gauges(&metrics), [0, 0]);

        feeds[0].set_connected(true);
        feeds[0].set_records(3);
        assert_eq!(gauges(&metrics), [0, 3], "one feed is connected");
        feeds[1].set_connected(true);
        feeds[1].set_records(4);
        assert_eq!(gauges(&metrics), [1, 7], "both feeds are connected");
        feeds[0].set_connected(false);
        feeds[1].set_connected(true);
        feeds[1].set_records(1);
        assert_eq!(gauges(&metrics), [0, 4], "one connection is lost");
    }
}
