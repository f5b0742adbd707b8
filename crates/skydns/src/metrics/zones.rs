//! Queries by further zone and RCODE. Names of the cluster's zone are not counted here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Metric, MetricFamily, MetricType};

use super::kinds::{OTHER, RCODES, rcode_label, row};
use super::{Metrics, counter, family};
use crate::backend::{Backend, View};

/// Maximum number of zones with labels of their own. All other zones share the label `other`.
const MAX_ZONES: usize = 40;

const NAME: &str = "kubedns_zone_queries_total";
const HELP: &str = "Queries for names in further zones (not the cluster's), by zone and RCODE.";

/// The counters of one thread, by the number of the zone and the row of the RCODE in [`RCODES`]. The
/// last number stands for all zones without a label of their own.
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
        let labels = vec!["zone".to_owned(), "rcode".to_owned()];
        let desc = Desc::new(NAME.to_owned(), HELP.to_owned(), labels, HashMap::new())?;
        Ok(Self {
            metrics,
            backend,
            desc,
        })
    }

    /// The series of the zone with this number. RCODEs that have not occurred have no series.
    fn series(&self, number: usize, zone: &str) -> Vec<Metric> {
        let shards = self.metrics.shards();
        let count = |row: usize| {
            shards
                .iter()
                .map(|shard| shard.zones.0[number][row].load(Relaxed))
                .sum()
        };
        let counts = RCODES
            .iter()
            .enumerate()
            .map(|(row, rcode)| (rcode_label(*rcode), count(row)));
        counts
            .filter(|(_, count)| *count > 0)
            .map(|(rcode, count)| counter(&[("zone", zone), ("rcode", rcode)], count))
            .collect()
    }
}

impl<B: Backend> Collector for ZoneMetrics<B> {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let view = self.backend.view();
        let named = view
            .zones()
            .iter()
            .filter(|zone| usize::from(zone.number) < MAX_ZONES);
        let mut series: Vec<Metric> = named
            .flat_map(|zone| self.series(zone.number.into(), &zone.domain.to_string()))
            .collect();
        series.extend(self.series(MAX_ZONES, OTHER));
        // The text encoder rejects a family without series.
        let has_series = !series.is_empty();
        has_series
            .then(|| family(NAME.to_owned(), HELP, MetricType::COUNTER, series))
            .into_iter()
            .collect()
    }
}
