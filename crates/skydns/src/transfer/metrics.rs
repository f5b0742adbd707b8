//! Metrics of zone transfers and notifications.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};
use wire::Name;

/// Metrics of zone transfers. The metrics are exported only if there are peers.
#[derive(Debug, Clone)]
pub struct TransferMetrics {
    transfers: IntCounterVec,
    notifies: IntCounterVec,
    pub(super) running: IntGauge,
    serials: IntGaugeVec,
}

/// The form of a response to a transfer query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseForm {
    /// The whole zone.
    Whole,
    /// Only the changes.
    Incremental,
    /// Only the SOA: the zone has not changed, or the query came over UDP.
    Soa,
    /// An error response.
    Error,
}

impl TransferMetrics {
    /// Creates the metrics. A registry accepts [`TransferMetrics`] as one collector.
    ///
    /// # Errors
    ///
    /// Fails if Prometheus does not accept a name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let transfers = IntCounterVec::new(
            Opts::new(
                "kubedns_transfers_total",
                "Zone transfer queries, by form of the response and result.",
            ),
            &["form", "result"],
        )?;
        let notifies = IntCounterVec::new(
            Opts::new(
                "kubedns_notifies_total",
                "Changes of zones notified to secondaries, by result.",
            ),
            &["result"],
        )?;
        let running = IntGauge::new("kubedns_transfers_running", "Zone transfers in progress.")?;
        let serials = IntGaugeVec::new(
            Opts::new(
                "kubedns_zone_serial",
                "Current serial of each transferred zone.",
            ),
            &["zone"],
        )?;
        let metrics = Self {
            transfers,
            notifies,
            running,
            serials,
        };
        // The series start at zero, so that the first event is visible as an increase.
        for form in [
            ResponseForm::Whole,
            ResponseForm::Incremental,
            ResponseForm::Soa,
        ] {
            metrics.transfer(form, "completed");
        }
        for result in ["acknowledged", "refused", "unanswered"] {
            metrics.notify(result);
        }
        Ok(metrics)
    }

    fn all(&self) -> [&dyn Collector; 4] {
        [
            &self.transfers,
            &self.notifies,
            &self.running,
            &self.serials,
        ]
    }

    pub(super) fn transfer(&self, form: ResponseForm, result: &str) -> IntCounter {
        let form = match form {
            ResponseForm::Whole => "axfr",
            ResponseForm::Incremental => "ixfr",
            ResponseForm::Soa => "soa",
            ResponseForm::Error => "error",
        };
        self.transfers.with_label_values(&[form, result])
    }

    pub(super) fn set_serial(&self, zone: &Name, serial: u32) {
        self.serials
            .with_label_values(&[zone.to_string().as_str()])
            .set(serial.into());
    }

    pub(super) fn notify(&self, result: &str) -> IntCounter {
        self.notifies.with_label_values(&[result])
    }
}

impl Collector for TransferMetrics {
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
