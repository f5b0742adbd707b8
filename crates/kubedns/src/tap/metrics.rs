//! Metrics of the tap, which copies answered queries to the readers of `/tap`, to dnstap and to the
//! query log.

use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGauge, Opts};
use skydns::tap::{QueryTap, TapCounts};

const RECORDS: &str = "kubedns_tap_records_total";
const HELP_RECORDS: &str = "Copies of answered queries for the readers of /tap, the query log and dnstap, by result: sent, rate_limited or dropped. A query counts once for each reader whose filter it matches.";
const TAPS: &str = "kubedns_taps";
const HELP_TAPS: &str =
    "Open readers of answered queries: requests for /tap, query logs and dnstap connections.";

/// Exports the counts of a tap.
#[derive(Debug)]
pub(crate) struct TapMetrics {
    tap: Arc<QueryTap>,
    records: IntCounterVec,
    taps: IntGauge,
}

impl TapMetrics {
    pub(crate) fn new(tap: Arc<QueryTap>) -> prometheus::Result<Self> {
        let records = IntCounterVec::new(Opts::new(RECORDS, HELP_RECORDS), &["result"])?;
        Ok(Self {
            tap,
            records,
            taps: IntGauge::new(TAPS, HELP_TAPS)?,
        })
    }
}

impl Collector for TapMetrics {
    fn desc(&self) -> Vec<&Desc> {
        [self.records.desc(), self.taps.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let TapCounts {
            taken,
            over_rate,
            dropped,
            watches,
        } = self.tap.counts();

        for (result, count) in [
            ("sent", taken),
            ("rate_limited", over_rate),
            ("dropped", dropped),
        ] {
            let counter = self.records.with_label_values(&[result]);
            // A counter can only be increased, so the difference is added.
            counter.inc_by(count.saturating_sub(counter.get()));
        }

        self.taps.set(daemon::metrics::gauge_value(watches));
        [self.records.collect(), self.taps.collect()].concat()
    }
}
