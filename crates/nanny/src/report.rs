//! Collects the events of the nanny in a [`StatusRecord`] and in metrics. Writes the status file,
//! and serves the status and the metrics over HTTP.

mod status;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use daemon::http;
use daemon::metrics::{MetricError, Metrics};
use dnsconfig::ConfigState;
use parking_lot::{Mutex, MutexGuard};
use prometheus::{IntCounter, IntCounterVec, IntGauge};
use reports::nanny::DnsmasqEnd;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use warp::Filter;
use warp::http::StatusCode;
use wire::Nameserver;

use self::status::{StatusRecord, format_time};
use crate::config::routes::{OmittedServer, Routes};
use crate::dnsmasq::version::DnsmasqVersion;
use crate::state_dir::StateDir;

pub(crate) const STATUS_FILE: &str = "status.json";
/// Changes within this time are written together.
const GATHER: Duration = Duration::from_millis(20);
/// Maximum number of unplanned ends of dnsmasq that the status lists.
const MAX_RECENT_ENDS: usize = 10;
/// After a failed write of the status file, the pause before the next attempt.
const RETRY_PAUSE: Duration = Duration::from_secs(3);

const KUBEDNS_DIFFERS: &str = "1 while the configuration of kubedns, which dnsmasq forwards to, \
                               differs from that of the nanny.";

/// The reason for a restart of dnsmasq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartReason {
    Died,
    Hung,
    Configuration,
}

impl RestartReason {
    fn label(self) -> &'static str {
        match self {
            Self::Died => "died",
            Self::Hung => "hung",
            Self::Configuration => "configuration",
        }
    }
}

/// The step that delivers the newest routes to dnsmasq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingStep {
    /// Another try, because the last try failed.
    Retry,
    /// A restart, which -restartDnsmasq=false forbids.
    Restart,
}

/// Collects all events of the nanny. Clones share the state.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    status: Arc<Mutex<StatusRecord>>,
    changed: Arc<Notify>,
    counters: Arc<NannyCounters>,
    metrics: Metrics,
}

#[derive(Debug)]
struct NannyCounters {
    config: ConfigCounters,
    up: IntGauge,
    restarts: IntCounterVec,
    probe_failures: IntCounter,
    too_many_queries: IntCounter,
    reloads: IntCounter,
    hasty_reloads: IntCounter,
    last_reload: IntGauge,
    reload_failures: IntCounter,
    routes_pending: IntGauge,
    restart_needed: IntGauge,
    stub_domains: IntGauge,
    upstreams: IntGauge,
    unresolved: IntGauge,
    loops: IntGauge,
    kubedns_differs: IntGauge,
}

impl NannyCounters {
    fn new(metrics: &Metrics) -> Result<Self, MetricError> {
        let counters = Self {
            config: ConfigCounters::new(metrics)?,
            up: metrics.int_gauge(
                "nanny_dnsmasq_up",
                "1 while dnsmasq runs, even if it hangs.",
            )?,
            restarts: metrics.int_counter_vec(
                "nanny_dnsmasq_restarts_total",
                "Starts of dnsmasq after the first one, by reason.",
                &["reason"],
            )?,
            probe_failures: metrics.int_counter(
                "nanny_dnsmasq_probe_failures_total",
                "Probes of the nanny that dnsmasq did not answer within a second.",
            )?,
            too_many_queries: metrics.int_counter(
                "nanny_dnsmasq_too_many_queries_total",
                "Times dnsmasq logged that it had no room for another forwarded query.",
            )?,
            reloads: metrics.int_counter(
                "nanny_reloads_total",
                "Reloads of the servers by dnsmasq (SIGHUP).",
            )?,
            hasty_reloads: metrics.int_counter(
                "nanny_hasty_reloads_total",
                "Reloads that removed servers while queries may have been waiting for them.",
            )?,
            last_reload: metrics.int_gauge(
                "nanny_last_reload_timestamp_seconds",
                "Time of the last dnsmasq reload, in seconds since 1970; 0 for never.",
            )?,
            reload_failures: metrics.int_counter(
                "nanny_reload_failures_total",
                "Failed attempts to give dnsmasq the newest servers.",
            )?,
            restart_needed: metrics.int_gauge(
                "nanny_restart_needed",
                "1 while dnsmasq needs a restart to use the newest servers, but -restartDnsmasq=false forbids it.",
            )?,
            routes_pending: metrics.int_gauge(
                "nanny_routes_pending",
                "1 while dnsmasq uses older servers, because the nanny could not deliver the newest servers.",
            )?,
            stub_domains: metrics.int_gauge("nanny_stub_domains", "Stub domains in force.")?,
            upstreams: metrics.int_gauge(
                "nanny_upstreams",
                "Upstream servers for names outside the stub domains, without those on the command line of dnsmasq.",
            )?,
            unresolved: metrics.int_gauge(
                "nanny_stub_servers_unresolved",
                "Names of stub servers without an address.",
            )?,
            loops: metrics.int_gauge(
                "nanny_loops",
                "Servers left out because queries to them come back to dnsmasq.",
            )?,
            kubedns_differs: metrics.int_gauge("nanny_kubedns_configuration_differs", KUBEDNS_DIFFERS)?,
        };
        // Each series exists before its first event.
        for reason in [
            RestartReason::Died,
            RestartReason::Hung,
            RestartReason::Configuration,
        ] {
            counters.restarts.with_label_values(&[reason.label()]);
        }
        Ok(counters)
    }
}

/// Metrics of the configuration and its edits.
#[derive(Debug)]
struct ConfigCounters {
    info: daemon::metrics::InfoMetric,
    error: IntGauge,
    loaded: IntGauge,
    edits: IntCounter,
    rejected: IntCounter,
    unknown_keys: IntGauge,
}

impl ConfigCounters {
    fn new(metrics: &Metrics) -> Result<Self, MetricError> {
        Ok(Self {
            info: metrics.info(
                "nanny_config_info",
                "Version of the configuration in force; always 1.",
                "version",
            )?,
            error: metrics.int_gauge(
                "nanny_config_error",
                "1 while the newest configuration is rejected. The previous one is in force, or the defaults if there was none.",
            )?,
            loaded: metrics.int_gauge(
                "nanny_config_loaded_timestamp_seconds",
                "Time when the configuration in force was loaded, in seconds since 1970.",
            )?,
            edits: metrics.int_counter(
                "nanny_config_edits_total",
                "Edits of the configuration that came into force.",
            )?,
            rejected: metrics.int_counter(
                "nanny_config_rejected_total",
                "Edits of the configuration that were rejected.",
            )?,
            unknown_keys: metrics.int_gauge(
                "nanny_config_unknown_keys",
                "Keys of the ConfigMap that are ignored.",
            )?,
        })
    }
}

impl Report {
    pub(crate) fn new() -> Result<Self, MetricError> {
        let metrics = Metrics::new("nanny")?;
        let counters = Arc::new(NannyCounters::new(&metrics)?);
        Ok(Self {
            status: Arc::new(Mutex::new(StatusRecord::new())),
            changed: Arc::default(),
            counters,
            metrics,
        })
    }

    /// Records the dnsmasq in use. `edits_by` is what an edit of the configuration causes: `reload`,
    /// `restart` or `none`.
    pub(crate) fn set_dnsmasq(
        &self,
        dnsmasq: &DnsmasqVersion,
        edits_by: &'static str,
    ) -> Result<(), MetricError> {
        let package = dnsmasq.package.as_deref().unwrap_or_default();
        let info = self.metrics.int_gauge_vec(
            "nanny_dnsmasq_info",
            "Version of dnsmasq and of its package; always 1.",
            &["version", "package"],
        )?;
        info.with_label_values(&[dnsmasq.version.as_str(), package])
            .set(1);

        let missing_fixes = dnsmasq.missing_fixes();
        let lacking = self.metrics.int_gauge(
            "nanny_dnsmasq_missing_fixes",
            "Security fixes of later dnsmasq releases that this version lacks.",
        )?;
        lacking.set(to_gauge(missing_fixes.len()));

        let document = &mut self.lock_status().document;
        document.dnsmasq.version = Some(dnsmasq.version.clone());
        document.dnsmasq.missing_fixes = missing_fixes.into_iter().map(str::to_owned).collect();
        document.configuration.edits_by = edits_by.into();
        Ok(())
    }

    /// Records a start. `restart` is the reason for a restart; `None` at the first start.
    pub(crate) fn record_start(&self, pid: i32, restart: Option<RestartReason>) {
        let dnsmasq = &mut self.lock_status().document.dnsmasq;
        dnsmasq.pid = Some(pid).into();
        dnsmasq.started_at = Some(format_time(SystemTime::now()));

        if let Some(reason) = restart {
            let reason = reason.label();
            *dnsmasq.restarts.entry(reason.to_owned()).or_default() += 1;
            self.counters.restarts.with_label_values(&[reason]).inc();
        }
    }

    pub(crate) fn mark_up(&self) {
        self.counters.up.set(1);
        self.lock_status().document.dnsmasq.up = true.into();
    }

    pub(crate) fn record_end(&self, how: &str) {
        self.counters.up.set(0);
        let dnsmasq = &mut self.lock_status().document.dnsmasq;
        dnsmasq.up = false.into();
        dnsmasq.pid = None.into();
        dnsmasq.last_end = Some(how.to_owned());
    }

    /// Records an unplanned end: a death, or the kill of a dnsmasq that hung.
    pub(crate) fn record_death(&self, how: &str) {
        let ends = &mut self.lock_status().document.dnsmasq.recent_ends;
        if ends.len() >= MAX_RECENT_ENDS {
            ends.remove(0);
        }
        ends.push(DnsmasqEnd {
            at: format_time(SystemTime::now()),
            how: how.to_owned(),
        });
    }

    pub(crate) fn count_probe_failure(&self) {
        self.counters.probe_failures.inc();
    }

    pub(crate) fn count_too_many_queries(&self) {
        self.counters.too_many_queries.inc();
    }

    /// Records a reload: dnsmasq reads its servers again.
    pub(crate) fn record_reload(&self) {
        let now = SystemTime::now();
        self.counters.reloads.inc();
        self.counters.last_reload.set(unix_seconds(now));
        let configuration = &mut self.lock_status().document.configuration;
        configuration.reloads.increment();
        configuration.last_reload_at = Some(format_time(now)).into();
    }

    /// Records a reload that removed servers while queries may have been waiting for them.
    pub(crate) fn count_hasty_reload(&self) {
        self.counters.hasty_reloads.inc();
    }

    /// Records the state of the configuration.
    pub(crate) fn set_configuration(&self, state: &ConfigState) {
        let counters = &self.counters.config;
        counters.info.set(&state.version.to_string());
        counters.error.set(i64::from(state.error.is_some()));
        counters.loaded.set(unix_seconds(state.loaded_at));
        let unknown_keys = to_gauge(state.unknown_keys.len());
        counters.unknown_keys.set(unknown_keys);

        // `state` has the totals since the start. A counter can only be increased, so the difference
        // is added.
        let edits = state.edits.saturating_sub(counters.edits.get());
        counters.edits.inc_by(edits);
        let rejected = state.rejected.saturating_sub(counters.rejected.get());
        counters.rejected.inc_by(rejected);

        self.lock_status().set_configuration(state);
    }

    pub(crate) fn set_routes(&self, routes: &Routes) {
        self.lock_status().set_routes(routes);

        let stub_domains = to_gauge(routes.stub_domains.len());
        self.counters.stub_domains.set(stub_domains);
        self.counters
            .upstreams
            .set(to_gauge(routes.upstreams.len()));
    }

    pub(crate) fn set_omitted(&self, omitted: &BTreeSet<OmittedServer>) {
        let mut status = self.lock_status();
        status.set_omissions(omitted);

        let unresolved = to_gauge(status.document.routes.unresolved.len());
        self.counters.unresolved.set(unresolved);
        let loops = to_gauge(status.document.routes.loops.len());
        self.counters.loops.set(loops);
    }

    /// Records the version of kubedns' configuration, and whether it differs from the nanny's.
    pub(crate) fn set_kubedns(&self, configuration: Option<String>, differs: bool) {
        self.counters.kubedns_differs.set(differs.into());
        self.lock_status().document.routes.kubedns_configuration = configuration;
    }

    /// Records why dnsmasq does not have the newest routes.
    pub(crate) fn set_pending(&self, step: PendingStep, reason: &str) {
        self.set_pending_gauges(Some(step));
        self.lock_status().set_pending(Some(reason));
    }

    /// Records that the newest routes are in force.
    pub(crate) fn clear_pending(&self) {
        self.set_pending_gauges(None);
        self.lock_status().set_pending(None);
    }

    fn set_pending_gauges(&self, step: Option<PendingStep>) {
        let is_retry = step == Some(PendingStep::Retry);
        let is_restart = step == Some(PendingStep::Restart);
        self.counters.routes_pending.set(is_retry.into());
        self.counters.restart_needed.set(is_restart.into());
    }

    pub(crate) fn count_reload_failure(&self) {
        self.counters.reload_failures.inc();
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Records the address of the server that answers SERVFAIL for stub domains without a usable
    /// server.
    pub(crate) fn set_servfail_server(&self, server: Nameserver) {
        self.lock_status().document.routes.servfail_server = Some(server.to_string());
    }

    /// Records the address of kubedns.
    pub(crate) fn set_kubedns_server(&self, server: Nameserver) {
        self.lock_status().document.routes.kubedns_server = Some(server.to_string());
    }

    /// Records the options of dnsmasq.
    pub(crate) fn set_arguments(&self, arguments: Vec<String>) {
        self.lock_status().document.dnsmasq.arguments = arguments;
    }

    /// Records the servers in dnsmasq's arguments that serve external names. `are_all` is true if
    /// dnsmasq queries no servers for external names except `servers`, kubedns and the upstreams.
    pub(crate) fn set_argument_servers(&self, servers: &[Nameserver], are_all: bool) {
        let servers = servers.iter().map(ToString::to_string).collect();
        let mut status = self.lock_status();
        status.document.routes.argument_servers = servers;
        status.document.routes.lists_all_upstreams = are_all;
    }

    /// Locks the status for a change, and wakes the writer of the status file.
    fn lock_status(&self) -> MutexGuard<'_, StatusRecord> {
        let status = self.status.lock();
        // The writer needs the lock, so it cannot write before the change is made.
        self.changed.notify_one();
        status
    }

    pub(crate) fn status_json(&self) -> String {
        let status = self.status.lock().document.clone();
        serde_json::to_string_pretty(&status).unwrap_or_default() + "\n"
    }

    /// Keeps the status file up to date until cancelled.
    pub(crate) async fn keep_status_file(self, directory: Arc<StateDir>, stop: CancellationToken) {
        let mut failed = false;
        while stop
            .run_until_cancelled(self.wait_for_change(failed))
            .await
            .is_some()
        {
            // Changes often come together, so one write covers several changes.
            let _ = stop.run_until_cancelled(sleep(GATHER)).await;
            failed = self.write_status_file(&directory, failed).is_err();
        }

        // This writes the last changes.
        let _ = self.write_status_file(&directory, failed);
    }

    /// Waits for a change; after a failed write, waits no longer than [`RETRY_PAUSE`].
    async fn wait_for_change(&self, write_failed: bool) {
        let limit = if write_failed {
            RETRY_PAUSE
        } else {
            Duration::MAX
        };
        let _ = timeout(limit, self.changed.notified()).await;
    }

    /// Writes the status file. Logs a failure unless the previous write failed, too
    /// (`failed_before`).
    fn write_status_file(&self, directory: &StateDir, failed_before: bool) -> io::Result<()> {
        let written = directory.write_file(STATUS_FILE, self.status_json().as_bytes());
        if let Err(error) = &written
            && !failed_before
        {
            let path = directory.file_path(STATUS_FILE);
            warn!(?path, %error, "the status file cannot be written");
        }
        written
    }

    /// The pages `/status`, `/healthz` (200 while dnsmasq is up, else 503) and `/metrics`.
    pub(crate) fn pages(
        &self,
    ) -> impl Filter<Extract = (warp::reply::Response,), Error = warp::Rejection>
    + Clone
    + Send
    + Sync
    + 'static {
        let report = self.clone();
        let status_page = http::exact_path("/status").map(move || {
            let json = report.status_json();
            http::with_type(StatusCode::OK, "application/json", json)
        });

        let report = self.clone();
        let healthz = http::exact_path("/healthz").map(move || report.health_reply());

        status_page
            .or(healthz)
            .unify()
            .or(self.metrics.route("/metrics"))
            .unify()
    }

    fn health_reply(&self) -> warp::reply::Response {
        if self.status.lock().document.dnsmasq.up.get() == Some(&true) {
            http::text(StatusCode::OK, "ok\n")
        } else {
            http::text(StatusCode::SERVICE_UNAVAILABLE, "dnsmasq is down\n")
        }
    }
}

fn to_gauge(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

fn unix_seconds(time: SystemTime) -> i64 {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    to_gauge(since_1970.as_secs())
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failed_status_write_is_repeated() {
        let place = tempfile::tempdir().unwrap();
        let directory = Arc::new(StateDir::open(Some(place.path())).unwrap());
        let file = directory.file_path(STATUS_FILE);
        // A directory blocks the path of the new file.
        let obstacle = place.path().join(format!("{STATUS_FILE}.new"));
        std::fs::create_dir(&obstacle).unwrap();
        let report = Report::new().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(
            report
                .clone()
                .keep_status_file(directory, CancellationToken::new()),
        );
        report.mark_up();
        sleep(10 * RETRY_PAUSE).await;
        assert!(!file.exists());

        std::fs::remove_dir(&obstacle).unwrap();
        sleep(10 * RETRY_PAUSE).await;
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            report.status_json()
        );
    }
}
