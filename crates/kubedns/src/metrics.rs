//! What is measured beside the query metrics of the DNS server: the API server's side and the configuration.
//!
//! All names begin with `kubedns_`; docs/metrics.md lists them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use daemon::metrics::MetricError;
use prometheus::{Gauge, GaugeVec, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use crate::objects::Kind;
use crate::watch::Failure;

/// From less than a millisecond to a minute and a half.
const LATENCIES: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 90.0];

/// The metrics of kubedns beside those of its DNS server. The index sets what it knows, the watchers what they see.
#[derive(Debug)]
pub struct Metrics {
    /// Objects known, by kind.
    pub objects: IntGaugeVec,
    /// Addresses in the objects known, by kind.
    pub addresses: IntGaugeVec,
    /// Endpoints objects from which addresses were left out by the control plane.
    pub over_capacity: IntGauge,
    /// Records served.
    pub records: IntGauge,
    /// 1 once both first lists are in.
    pub synced: IntGauge,
    /// 1 while records of an earlier run are served, before the first lists are in.
    pub stale: IntGauge,
    /// 1 if the first lists have not come within `--initial-sync-timeout` and are still missing.
    pub sync_overdue: IntGauge,
    /// New versions of the records.
    pub publications: IntCounter,
    /// From the arrival of an event to the publication of the records that it changes.
    pub publication: Histogram,
    /// From the change of a pod or Service, as the control plane notes it on endpoints, to the publication.
    pub programming: Histogram,
    /// Snapshot files written, by outcome.
    pub snapshots_written: IntCounterVec,
    /// Upstreams that are left out because their queries come back to us.
    pub forward_loops: IntGauge,
    /// The configuration.
    pub config: ConfigMetrics,
    api: ApiMetrics,
}

impl Metrics {
    /// Registers all of them.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub fn new(registry: &daemon::metrics::Metrics) -> Result<Arc<Self>, MetricError> {
        Ok(Arc::new(Self {
            objects: registry.int_gauge_vec("kubedns_objects", "Kubernetes objects known", &["kind"])?,
            addresses: registry.int_gauge_vec(
                "kubedns_addresses",
                "IP addresses in the Kubernetes objects known",
                &["kind"],
            )?,
            over_capacity: registry.int_gauge(
                "kubedns_endpoints_over_capacity",
                "Endpoints objects from which the control plane left addresses out (more than 1000)",
            )?,
            records: registry.int_gauge("kubedns_records", "DNS records served")?,
            synced: registry
                .int_gauge("kubedns_synced", "1 once the first lists of Services and endpoints are in")?,
            stale: registry.int_gauge(
                "kubedns_stale",
                "1 while records loaded from a snapshot file are served, before the first lists are in",
            )?,
            sync_overdue: registry.int_gauge(
                "kubedns_initial_sync_overdue",
                "1 if the first lists have not come within --initial-sync-timeout and are still missing",
            )?,
            publications: registry.int_counter(
                "kubedns_publications_total",
                "New versions of the records that were put in force",
            )?,
            publication: registry.histogram(
                "kubedns_publication_duration_seconds",
                "Time from the arrival of an event to the publication of the records it changes",
                &LATENCIES,
            )?,
            programming: registry.histogram(
                "kubedns_programming_duration_seconds",
                "Time from the change of a pod or Service, as noted on its endpoints, to the publication",
                &LATENCIES,
            )?,
            snapshots_written: registry.int_counter_vec(
                "kubedns_snapshots_written_total",
                "Snapshot files written, by outcome",
                &["outcome"],
            )?,
            forward_loops: registry.int_gauge(
                "kubedns_forward_loops",
                "Upstreams left out because their queries come back to kubedns",
            )?,
            config: ConfigMetrics::new(registry)?,
            api: ApiMetrics::new(registry)?,
        }))
    }

    /// The metrics of the feed of `kind`, all at zero.
    pub fn feed(&self, kind: Kind) -> FeedMetrics {
        let (api, label) = (&self.api, [kind.plural()]);
        for reason in Failure::REASONS.into_iter().chain(["timeout"]) {
            api.restarts.with_label_values(&[kind.plural(), reason]);
        }
        FeedMetrics {
            kind,
            malformed: api.malformed.with_label_values(&label),
            connected: api.connected.with_label_values(&label),
            lists: api.lists.with_label_values(&label),
            bookmarks: api.bookmarks.with_label_values(&label),
            events: api.events.with_label_values(&label),
            last_event: api.last_event.with_label_values(&label),
            restarts: api.restarts.clone(),
        }
    }

    /// How often lists and watches of `kind` have ended for `reason`.
    pub fn restarts(&self, kind: Kind, reason: &str) -> u64 {
        self.api.restarts.with_label_values(&[kind.plural(), reason]).get()
    }

    /// 1 while a watch of `kind` is open.
    pub fn connected(&self, kind: Kind) -> i64 {
        self.api.connected.with_label_values(&[kind.plural()]).get()
    }

    /// Records were put in force that are due to events of which the oldest arrived `since_arrival` ago, and to
    /// changes that happened at `causes`.
    pub fn published(&self, since_arrival: Duration, causes: &[SystemTime]) {
        self.publication.observe(since_arrival.as_secs_f64());
        // A clock that is behind the control plane's makes this negative, and so meaningless.
        for latency in causes.iter().filter_map(|cause| SystemTime::now().duration_since(*cause).ok()) {
            self.programming.observe(latency.as_secs_f64());
        }
    }
}

/// Which configuration is in force, and whether it is the newest.
#[derive(Debug)]
pub struct ConfigMetrics {
    /// Configurations that were refused.
    pub rejected: IntCounter,
    /// 1 if the newest configuration is in force, 0 if it was refused.
    pub current: IntGauge,
    /// When the configuration in force was loaded.
    pub loaded: Gauge,
    /// Which configuration is in force: its version as a label.
    pub info: IntGaugeVec,
}

impl ConfigMetrics {
    fn new(registry: &daemon::metrics::Metrics) -> Result<Self, MetricError> {
        Ok(Self {
            rejected: registry
                .int_counter("kubedns_config_rejected_total", "Configurations that were refused")?,
            current: registry.int_gauge(
                "kubedns_config_current",
                "1 if the newest configuration is in force, 0 if it was refused",
            )?,
            loaded: registry.gauge(
                "kubedns_config_loaded_timestamp_seconds",
                "When the configuration in force was loaded",
            )?,
            info: registry.int_gauge_vec(
                "kubedns_config_info",
                "The version of the configuration in force; always 1",
                &["version"],
            )?,
        })
    }
}

/// What the watchers count, by kind of objects.
#[derive(Debug)]
struct ApiMetrics {
    malformed: IntCounterVec,
    connected: IntGaugeVec,
    restarts: IntCounterVec,
    lists: IntCounterVec,
    events: IntCounterVec,
    bookmarks: IntCounterVec,
    last_event: GaugeVec,
}

impl ApiMetrics {
    fn new(registry: &daemon::metrics::Metrics) -> Result<Self, MetricError> {
        let name = "kubedns_last_event_timestamp_seconds";
        let last_event = GaugeVec::new(Opts::new(name, "When the last event arrived"), &["kind"])
            .map_err(|source| MetricError { name: name.to_owned(), source })?;
        registry.register(name, last_event.clone())?;
        Ok(Self {
            last_event,
            malformed: registry.int_counter_vec(
                "kubedns_malformed_objects_total",
                "Objects or parts of objects that were left out because they make no sense",
                &["kind"],
            )?,
            connected: registry.int_gauge_vec(
                "kubedns_watch_connected",
                "1 while the watch of this kind is open",
                &["kind"],
            )?,
            restarts: registry.int_counter_vec(
                "kubedns_watch_restarts_total",
                "Lists and watches that ended, by reason; timeout is the regular end, also of a quiet watch",
                &["kind", "reason"],
            )?,
            lists: registry.int_counter_vec("kubedns_lists_total", "Complete lists received", &["kind"])?,
            bookmarks: registry.int_counter_vec(
                "kubedns_bookmarks_total",
                "Bookmarks received, which move the version of a watch without events on",
                &["kind"],
            )?,
            events: registry.int_counter_vec(
                "kubedns_events_total",
                "Changes taken from lists and watches",
                &["kind"],
            )?,
        })
    }
}

/// What one feed counts.
#[derive(Debug, Clone)]
pub struct FeedMetrics {
    kind: Kind,
    pub(crate) malformed: IntCounter,
    pub(crate) connected: IntGauge,
    pub(crate) lists: IntCounter,
    pub(crate) bookmarks: IntCounter,
    events: IntCounter,
    last_event: Gauge,
    restarts: IntCounterVec,
}

impl FeedMetrics {
    /// Objects and parts of objects that were left out so far.
    pub fn malformed(&self) -> u64 {
        self.malformed.get()
    }

    /// Bookmarks so far.
    pub fn bookmarks(&self) -> u64 {
        self.bookmarks.get()
    }

    /// A list or watch ended.
    pub(crate) fn restarted(&self, reason: &str) {
        self.restarts.with_label_values(&[self.kind.plural(), reason]).inc();
    }

    /// An event arrived.
    pub(crate) fn event(&self) {
        self.events.inc();
        self.last_event.set(unix_seconds(SystemTime::now()));
    }
}

/// Seconds since 1970, for gauges.
pub(crate) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
