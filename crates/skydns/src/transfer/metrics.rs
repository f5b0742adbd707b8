//! Metrics of zone transfers and notifications.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use wire::Name;

/// Metrics of zone transfers. The metrics are exported only with `--transfer-to`.
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
    /// Only the SOA: the client's version is not older than ours, or the query came over UDP.
    Soa,
    /// An error response.
    Error,
}

/// The result of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferResult {
    Completed,
    Refused,
    /// The client disconnected or read too slowly, a message could not be made, or the server
    /// stopped.
    Failed,
}

/// The result of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotifyResult {
    Acknowledged,
    Refused,
    Unanswered,
}

impl ResponseForm {
    fn label(self) -> &'static str {
        match self {
            Self::Whole => "axfr",
            Self::Incremental => "ixfr",
            Self::Soa => "soa",
            Self::Error => "error",
        }
    }
}

impl TransferResult {
    fn label(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl NotifyResult {
    const ALL: [Self; 3] = [Self::Acknowledged, Self::Refused, Self::Unanswered];

    fn label(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::Refused => "refused",
            Self::Unanswered => "unanswered",
        }
    }
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
                "Notifications of zone changes sent to secondaries, by result.",
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
        // These series start at zero, so that the first event is visible as an increase.
        for form in [
            ResponseForm::Whole,
            ResponseForm::Incremental,
            ResponseForm::Soa,
        ] {
            metrics.transfer_counter(form, TransferResult::Completed);
        }
        for result in NotifyResult::ALL {
            metrics.notify_counter(result);
        }
        Ok(metrics)
    }

    fn collectors(&self) -> [&dyn Collector; 4] {
        [
            &self.transfers,
            &self.notifies,
            &self.running,
            &self.serials,
        ]
    }

    pub(super) fn count_transfer(&self, form: ResponseForm, result: TransferResult) {
        self.transfer_counter(form, result).inc();
    }

    pub(super) fn count_notify(&self, result: NotifyResult) {
        self.notify_counter(result).inc();
    }

    fn transfer_counter(&self, form: ResponseForm, result: TransferResult) -> IntCounter {
        self.transfers
            .with_label_values(&[form.label(), result.label()])
    }

    fn notify_counter(&self, result: NotifyResult) -> IntCounter {
        self.notifies.with_label_values(&[result.label()])
    }

    /// Removes the serial of a zone that is no longer transferred.
    pub(super) fn remove_serial(&self, zone: &Name) {
        // This call fails if the zone has no serial.
        let _ = self
            .serials
            .remove_label_values(&[zone.to_string().as_str()]);
    }

    pub(super) fn set_serial(&self, zone: &Name, serial: u32) {
        self.serials
            .with_label_values(&[zone.to_string().as_str()])
            .set(serial.into());
    }
}

impl Collector for TransferMetrics {
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
