//! Metrics of the watches, the index, the snapshot file and the configuration, and `kubedns_info`.
//! The crate `skydns` has the metrics of the DNS server. All other metrics are in the module of
//! their subject.
//!
//! The names of the metrics in this module begin with `kubedns_`. docs/metrics/kubedns.md lists all
//! metrics of kubedns.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::ValueEnum as _;
use clap::builder::PossibleValue;
use cluster::watch::WatchMetrics;
use daemon::metrics::MetricError;
use prometheus::{Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::options::DnsmasqTopology;

/// Buckets of the latencies, in seconds.
const LATENCIES: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 90.0,
];

/// The metrics of the watches, the index, the snapshot file and the configuration.
#[derive(Debug)]
pub struct Metrics {
    /// Objects in the index, by kind.
    pub objects: IntGaugeVec,
    /// Addresses in the objects of the index, by kind.
    pub addresses: IntGaugeVec,
    /// Endpoints objects that the control plane truncated.
    pub over_capacity: IntGauge,
    /// Address, SRV and CNAME records of Services and endpoints.
    pub records: IntGauge,
    /// 1 once the first lists are complete.
    pub synced: IntGauge,
    /// 1 while the records come from a snapshot file, before the first lists are complete.
    pub stale: IntGauge,
    /// 1 while the first lists are incomplete after `--initial-sync-timeout`.
    pub sync_overdue: IntGauge,
    /// Published versions of the records.
    pub publications: IntCounter,
    /// For each publication, the time since the arrival of its oldest event.
    pub publication: Histogram,
    /// Time from the change of a pod or Service to the publication. The control plane notes the
    /// time of the change on the endpoints.
    pub programming: Histogram,
    /// Attempts to write the snapshot file, by outcome.
    pub snapshots_written: IntCounterVec,
    /// The configuration.
    pub config: Arc<ConfigMetrics>,
    /// The watches of the API server.
    pub watch: WatchMetrics,
}

impl Metrics {
    /// Registers the metrics of this struct.
    ///
    /// # Errors
    ///
    /// When a metric name is taken.
    pub fn new(registry: &daemon::metrics::Metrics) -> Result<Arc<Self>, MetricError> {
        Ok(Arc::new(Self {
            objects: registry.int_gauge_vec(
                "kubedns_objects",
                "Kubernetes objects known, by kind.",
                &["kind"],
            )?,
            addresses: registry.int_gauge_vec(
                "kubedns_addresses",
                "IP addresses in the Kubernetes objects known, by kind.",
                &["kind"],
            )?,
            over_capacity: registry.int_gauge(
                "kubedns_endpoints_over_capacity",
                "Endpoints objects that the control plane truncated to 1000 addresses.",
            )?,
            records: registry.int_gauge(
                "kubedns_records",
                "Address, SRV and CNAME records of Services and endpoints.",
            )?,
            synced: registry.int_gauge(
                "kubedns_synced",
                "1 once the first lists of Services and endpoints are complete.",
            )?,
            stale: registry.int_gauge(
                "kubedns_stale",
                "1 while the records of a snapshot file are served, before the first lists are complete.",
            )?,
            sync_overdue: registry.int_gauge(
                "kubedns_initial_sync_overdue",
                "1 while the first lists are incomplete after --initial-sync-timeout.",
            )?,
            publications: registry
                .int_counter("kubedns_publications_total", "Published versions of the records.")?,
            publication: registry.histogram(
                "kubedns_publication_duration_seconds",
                "Time from the arrival of the oldest event in a publication to this publication.",
                &LATENCIES,
            )?,
            programming: registry.histogram(
                "kubedns_programming_duration_seconds",
                "Time from the change of a pod or Service, as noted on its endpoints, to the publication of the changed records.",
                &LATENCIES,
            )?,
            snapshots_written: registry.int_counter_vec(
                "kubedns_snapshots_written_total",
                "Attempts to write the snapshot file, by outcome.",
                &["outcome"],
            )?,
            config: Arc::new(ConfigMetrics::new(registry)?),
            watch: WatchMetrics::new(registry)?,
        }))
    }

    /// Observes a publication. `since_arrival` is the time since its oldest event arrived; `causes`
    /// are the times of the pod and Service changes that caused its events.
    pub fn observe_publication(&self, since_arrival: Duration, causes: &[SystemTime]) {
        self.publication.observe(since_arrival.as_secs_f64());

        let now = SystemTime::now();
        for cause in causes {
            // A negative latency is omitted. It occurs if this node's clock is behind the clock of
            // the control plane.
            if let Ok(latency) = now.duration_since(*cause) {
                self.programming.observe(latency.as_secs_f64());
            }
        }
    }
}

/// Exports the cluster domain and the topology as labels of `kubedns_info`. Without a cluster, the
/// domain is empty.
///
/// # Errors
///
/// When the metric name is taken.
pub fn export_info(
    registry: &daemon::metrics::Metrics,
    cluster_domain: &str,
    topology: DnsmasqTopology,
) -> Result<(), MetricError> {
    let help = "Cluster domain and topology of this kubedns; always 1.";
    let info = registry.int_gauge_vec("kubedns_info", help, &["domain", "topology"])?;

    let topology = topology.to_possible_value();
    let topology = topology.as_ref().map_or("", PossibleValue::get_name);
    info.with_label_values(&[cluster_domain, topology]).set(1);
    Ok(())
}

/// Metrics of the configuration.
#[derive(Debug)]
pub struct ConfigMetrics {
    /// Configurations that were rejected.
    pub rejected: IntCounter,
    /// 1 if the newest configuration that was read is in force, 0 if it was rejected.
    pub current: IntGauge,
    /// Keys of the newest configuration that are ignored.
    pub unknown_keys: IntGauge,
    /// Time when the configuration in force was loaded, in seconds since 1970.
    pub loaded: Gauge,
    /// Version of the configuration in force, as a label.
    pub info: daemon::metrics::InfoMetric,
    /// Unresolved names of stub servers.
    pub unresolved: IntGauge,
    /// Upstreams that forward queries back to kubedns. An upstream counts even if it does so for
    /// only one domain.
    pub forward_loops: IntGauge,
}

impl ConfigMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    ///
    /// When a metric name is taken.
    pub fn new(registry: &daemon::metrics::Metrics) -> Result<Self, MetricError> {
        Ok(Self {
            rejected: registry.int_counter(
                "kubedns_config_rejected_total",
                "Configurations that were rejected.",
            )?,
            unknown_keys: registry.int_gauge(
                "kubedns_config_unknown_keys",
                "Keys of the ConfigMap that are ignored.",
            )?,
            current: registry.int_gauge(
                "kubedns_config_current",
                "1 while the newest configuration that was read is in force, 0 while it is rejected.",
            )?,
            loaded: registry.gauge(
                "kubedns_config_loaded_timestamp_seconds",
                "Time when the configuration in force was loaded, in seconds since 1970.",
            )?,
            info: registry.info(
                "kubedns_config_info",
                "Version of the configuration in force; always 1.",
                "version",
            )?,
            unresolved: registry.int_gauge(
                "kubedns_stub_servers_unresolved",
                "Names of stub servers without an address.",
            )?,
            forward_loops: registry.int_gauge(
                "kubedns_forward_loops",
                "Upstreams that forward queries back to kubedns.",
            )?,
        })
    }
}
