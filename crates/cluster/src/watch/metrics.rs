//! Metrics of the watches; docs/metrics/kubedns.md lists them.

use std::collections::BTreeMap;
use std::time::SystemTime;

use daemon::metrics::{MetricError, unix_seconds};
use prometheus::core::Collector as _;
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use super::failure::RequestFailure;
use crate::objects::{EndpointsSource, Kind};

/// Counters and gauges of all watches, by kind of objects. `clone` only increments reference
/// counts.
#[derive(Debug, Clone)]
pub struct WatchMetrics {
    malformed: IntCounterVec,
    connected: IntGaugeVec,
    endpoints_source: IntGaugeVec,
    restarts: IntCounterVec,
    lists: IntCounterVec,
    events: IntCounterVec,
    bookmarks: IntCounterVec,
    last_event: GaugeVec,
}

impl WatchMetrics {
    /// Registers all metrics.
    ///
    /// # Errors
    ///
    /// [`MetricError`] if a name is already registered.
    pub fn new(registry: &daemon::metrics::Metrics) -> Result<Self, MetricError> {
        let name = "kubedns_last_event_timestamp_seconds";
        let last_event = GaugeVec::new(
            Opts::new(
                name,
                "Arrival time of the last change, in seconds since 1970, by kind; 0 if no change has arrived.",
            ),
            &["kind"],
        )
        .map_err(|source| MetricError {
            name: name.to_owned(),
            source,
        })?;
        registry.register(name, last_event.clone())?;

        Ok(Self {
            last_event,
            malformed: registry.int_counter_vec(
                "kubedns_malformed_objects_total",
                "Malformed objects or parts of objects that were left out, by kind.",
                &["kind"],
            )?,
            connected: registry.int_gauge_vec(
                "kubedns_watch_connected",
                "1 while the watch of this kind is open.",
                &["kind"],
            )?,
            endpoints_source: registry.int_gauge_vec(
                "kubedns_endpoints_source",
                "1 for the kind of objects that the endpoints in the records come from.",
                &["kind"],
            )?,
            restarts: registry.int_counter_vec(
                "kubedns_watch_restarts_total",
                "Lists that failed and watches that ended, by kind and reason; timeout is the regular end of a watch.",
                &["kind", "reason"],
            )?,
            lists: registry.int_counter_vec(
                "kubedns_lists_total",
                "Complete lists received, by kind.",
                &["kind"],
            )?,
            bookmarks: registry.int_counter_vec(
                "kubedns_bookmarks_total",
                "Bookmarks received, by kind.",
                &["kind"],
            )?,
            events: registry.int_counter_vec(
                "kubedns_events_total",
                "Changes received from lists and watches, by kind.",
                &["kind"],
            )?,
        })
    }

    /// The metrics of the feed of `kind`. A feed lists and watches one collection. Creates the
    /// missing series with the value zero.
    pub fn feed(&self, kind: Kind) -> FeedMetrics {
        let connected = self.connected.with_label_values(&[kind.label()]);
        FeedMetrics {
            connected: Some(connected),
            ..self.feed_without_connection(kind)
        }
    }

    /// The metrics of a feed of `kind` that does not set `kubedns_watch_connected`. Without another
    /// feed of the kind, this gauge has no series for the kind.
    pub(super) fn feed_without_connection(&self, kind: Kind) -> FeedMetrics {
        let label = [kind.label()];
        for reason in RequestFailure::REASONS.into_iter().chain(["timeout"]) {
            self.restarts.with_label_values(&[kind.label(), reason]);
        }

        FeedMetrics {
            kind,
            malformed: self.malformed.with_label_values(&label),
            connected: None,
            lists: self.lists.with_label_values(&label),
            bookmarks: self.bookmarks.with_label_values(&label),
            events: self.events.with_label_values(&label),
            last_event: self.last_event.with_label_values(&label),
            restarts: self.restarts.clone(),
        }
    }

    /// Reports the source of endpoints in use; `None` before the first one is in use.
    pub(super) fn report_endpoints_source(&self, in_use: Option<EndpointsSource>) {
        let sources = [
            (Kind::Endpoints, EndpointsSource::Endpoints),
            (Kind::EndpointSlice, EndpointsSource::EndpointSlices),
        ];
        for (kind, source) in sources {
            let gauge = self.endpoints_source.with_label_values(&[kind.label()]);
            gauge.set((in_use == Some(source)).into());
        }
    }

    /// Number of failed lists and ended watches of `kind` that were counted with `reason`.
    pub fn restart_count(&self, kind: Kind, reason: &str) -> u64 {
        self.restarts
            .with_label_values(&[kind.label(), reason])
            .get()
    }

    /// Whether the watch of each kind is open, by the label of the kind. Kinds without a series of
    /// `kubedns_watch_connected` are left out.
    pub fn connections(&self) -> BTreeMap<String, bool> {
        read_gauges(&self.connected)
    }

    /// Whether [`connections`](Self::connections) reports an open watch of `kind`.
    pub fn is_connected(&self, kind: Kind) -> bool {
        self.connections().get(kind.label()) == Some(&true)
    }

    /// The label of the kind of objects that the endpoints in the records come from; `None` before
    /// the first source is in use.
    pub fn endpoints_source(&self) -> Option<String> {
        let mut sources = read_gauges(&self.endpoints_source).into_iter();
        sources.find_map(|(kind, is_in_use)| is_in_use.then_some(kind))
    }
}

/// The existing series of `gauges` by their kind, and whether each is set. `with_label_values`
/// would create series for kinds that no feed follows.
fn read_gauges(gauges: &IntGaugeVec) -> BTreeMap<String, bool> {
    let families = gauges.collect();
    let series = families.iter().flat_map(MetricFamily::get_metric);

    let mut by_kind = BTreeMap::new();
    for metric in series {
        let is_set = metric.get_gauge().get_value() > 0.0;
        let labels = metric.get_label().iter();
        by_kind.extend(labels.map(|label| (label.value().to_owned(), is_set)));
    }
    by_kind
}

/// Counters and gauges of one feed.
#[derive(Debug, Clone)]
pub struct FeedMetrics {
    kind: Kind,
    pub(super) malformed: IntCounter,
    connected: Option<IntGauge>,
    pub(super) lists: IntCounter,
    pub(super) bookmarks: IntCounter,
    events: IntCounter,
    last_event: Gauge,
    restarts: IntCounterVec,
}

impl FeedMetrics {
    /// Number of malformed objects and parts of objects so far.
    pub fn malformed_count(&self) -> u64 {
        self.malformed.get()
    }

    /// Number of bookmarks so far.
    pub fn bookmark_count(&self) -> u64 {
        self.bookmarks.get()
    }

    /// The metrics for one of several feeds of a kind. Such a feed does not set
    /// `kubedns_watch_connected`.
    pub(super) fn without_connection(&self) -> Self {
        Self {
            connected: None,
            ..self.clone()
        }
    }

    /// Notes whether the watch is open.
    pub(super) fn set_connected(&self, connected: bool) {
        if let Some(gauge) = &self.connected {
            gauge.set(connected.into());
        }
    }

    /// Notes that a list failed, or that a watch ended.
    pub(super) fn count_restart(&self, reason: &str) {
        self.restarts
            .with_label_values(&[self.kind.label(), reason])
            .inc();
    }

    /// Counts a change from a list or a watch, and notes its time.
    pub(super) fn count_event(&self) {
        self.events.inc();
        self.last_event.set(unix_seconds(SystemTime::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feed_reports_only_its_own_kind() {
        let registry = daemon::metrics::Metrics::new("x").unwrap();
        let metrics = WatchMetrics::new(&registry).unwrap();
        let services = metrics.feed(Kind::Service);
        for open in [true, false] {
            services.set_connected(open);
            assert_eq!(
                (
                    metrics.is_connected(Kind::Service),
                    metrics.is_connected(Kind::Node)
                ),
                (open, false)
            );
        }
        assert!(!registry.render().unwrap().contains("nodes"));
    }
}
