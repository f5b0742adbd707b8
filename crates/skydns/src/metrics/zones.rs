//! Counts the queries for names in further zones, by zone and RCODE. The further zones are all
//! zones except the cluster's.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Metric, MetricFamily, MetricType};

use super::kinds::{OTHER, RCODES, rcode_label, row};
use super::{FamilySpec, Metrics, counter};
use crate::backend::{Backend, View};

/// Maximum number of zones with labels of their own. All other zones share the label `other`.
const MAX_ZONES: usize = 40;

const ZONE_QUERIES: FamilySpec = FamilySpec {
    name: "kubedns_zone_queries_total",
    help: "Queries for names in further zones (not the cluster's), by zone and RCODE.",
    kind: MetricType::COUNTER,
    labels: &["zone", "rcode"],
    has_prefix: false,
};

/// The counters of one [`Shard`](super::Shard). The first index is the number of the zone. All
/// zones without a label of their own share the last index. The second index is that of the RCODE
/// in [`RCODES`].
#[derive(Debug)]
pub(super) struct ZoneCounters([[AtomicU64; RCODES.len()]; MAX_ZONES + 1]);

impl Default for ZoneCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| {
            std::array::from_fn(|_| AtomicU64::new(0))
        }))
    }
}

impl ZoneCounters {
    pub(super) fn counter(&self, number: u8, rcode: u16) -> &AtomicU64 {
        &self.0[usize::from(number).min(MAX_ZONES)][row(&RCODES, rcode)]
    }
}

/// Collects the counters of all threads. The labels are the names of the zones in `backend`.
#[derive(Debug)]
pub struct ZoneMetrics<B> {
    metrics: Metrics,
    backend: Arc<B>,
    desc: Desc,
}

impl<B: Backend> ZoneMetrics<B> {
    /// Creates a collector for the zones of `backend` that are counted in `metrics`.
    ///
    /// # Errors
    ///
    /// Fails if Prometheus does not allow the name of the metric.
    pub fn new(metrics: Metrics, backend: Arc<B>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            desc: ZONE_QUERIES.describe(&metrics.prefix)?,
            metrics,
            backend,
        })
    }

    /// The series of the zone with this number. RCODEs that have not occurred have no series.
    fn series(&self, number: usize, zone: &str) -> Vec<Metric> {
        let shards = self.metrics.shards();
        let mut series = Vec::new();
        for (column, rcode) in RCODES.into_iter().enumerate() {
            let counts = shards
                .iter()
                .map(|shard| shard.zones.0[number][column].load(Relaxed));
            let count = counts.sum();
            if count > 0 {
                let labels = [("zone", zone), ("rcode", rcode_label(rcode))];
                series.push(counter(&labels, count));
            }
        }
        series
    }
}

impl<B: Backend> Collector for ZoneMetrics<B> {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let view = self.backend.view();
        let mut series = Vec::new();
        for zone in view.zones().iter() {
            if usize::from(zone.number) < MAX_ZONES {
                series.extend(self.series(zone.number.into(), &zone.domain.to_string()));
            }
        }
        // The zones beyond the maximum share the last index.
        series.extend(self.series(MAX_ZONES, OTHER));

        if series.is_empty() {
            return Vec::new();
        }
        vec![ZONE_QUERIES.family(&self.metrics.prefix, series)]
    }
}
