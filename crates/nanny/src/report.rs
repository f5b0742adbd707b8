//! Events of the nanny, reported in one place: [`Status`], metrics, the status file, HTTP.

mod status;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use daemon::http;
use daemon::metrics::{MetricError, Metrics};
use dnsconfig::ConfigState;
use parking_lot::{Mutex, MutexGuard};
use prometheus::{IntCounter, IntCounterVec, IntGauge};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use warp::Filter;
use wire::Nameserver;

use self::status::Status;
use crate::config::routes::{Omission, Routes};
use crate::state_dir::StateDir;

pub(crate) const STATUS_FILE: &str = "status.json";
/// Changes within this time are written together.
const GATHER: Duration = Duration::from_millis(20);
/// The pause before a failed write of the status file is repeated.
const AGAIN: Duration = Duration::from_secs(3);

const KUBEDNS_DIFFERS: &str = "1 while the configuration of kubedns, which dnsmasq forwards to, differs from that of the nanny.";

/// The reason for a restart of dnsmasq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    Died,
    Hung,
    Configuration,
}

impl Restart {
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
pub(crate) enum Pending {
    /// Another try, because the last try failed.
    Failed,
    /// A restart, which -restartDnsmasq=false forbids.
    Restart,
}

/// Collects all events of the nanny. Clones share the state.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    status: Arc<Mutex<Status>>,
    changed: Arc<Notify>,
    counters: Arc<Counters>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Counters {
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

impl Counters {
    fn new(metrics: &Metrics) -> Result<Self, MetricError> {
        let gauge = |name: &str, help: &str| metrics.int_gauge(name, help);
        let counter = |name: &str, help: &str| metrics.int_counter(name, help);
        let counters = Self {
            config: ConfigCounters::new(metrics)?,
            up: gauge(
                "nanny_dnsmasq_up",
                "1 while dnsmasq runs and answers the probes.",
            )?,
            restarts: metrics.int_counter_vec(
                "nanny_dnsmasq_restarts_total",
                "Starts of dnsmasq after the first one, by reason.",
                &["reason"],
            )?,
            probe_failures: counter(
                "nanny_dnsmasq_probe_failures_total",
                "Probes of the nanny that dnsmasq did not answer within a second.",
            )?,
            too_many_queries: counter(
                "nanny_dnsmasq_too_many_queries_total",
                "Times dnsmasq logged that it had no room for another forwarded query.",
            )?,
            reloads: counter(
                "nanny_reloads_total",
                "Reloads of the servers by dnsmasq (SIGHUP).",
            )?,
            hasty_reloads: counter(
                "nanny_hasty_reloads_total",
                "Reloads that removed servers while queries may have been waiting for them.",
            )?,
            last_reload: gauge(
                "nanny_last_reload_timestamp_seconds",
                "Time of the last dnsmasq reload, in seconds since 1970; 0 for never.",
            )?,
            reload_failures: counter(
                "nanny_reload_failures_total",
                "Failed attempts to give dnsmasq the newest servers.",
            )?,
            restart_needed: gauge(
                "nanny_restart_needed",
                "1 while dnsmasq needs a restart to use the newest servers and -restartDnsmasq is off.",
            )?,
            routes_pending: gauge(
                "nanny_routes_pending",
                "1 while giving dnsmasq the newest servers fails and older ones stay in force.",
            )?,
            stub_domains: gauge("nanny_stub_domains", "Stub domains in force.")?,
            upstreams: gauge(
                "nanny_upstreams",
                "Upstream servers for all other names, without those on the command line of dnsmasq.",
            )?,
            unresolved: gauge(
                "nanny_stub_servers_unresolved",
                "Names of stub servers without an address.",
            )?,
            loops: gauge(
                "nanny_loops",
                "Servers left out because their queries come back to dnsmasq.",
            )?,
            kubedns_differs: gauge("nanny_kubedns_configuration_differs", KUBEDNS_DIFFERS)?,
        };
        for reason in [Restart::Died, Restart::Hung, Restart::Configuration] {
            counters.restarts.with_label_values(&[reason.label()]);
        }
        Ok(counters)
    }
}

/// Metrics of the configuration and its edits.
#[derive(Debug)]
struct ConfigCounters {
    info: daemon::metrics::Info,
    error: IntGauge,
    loaded: IntGauge,
    edits: IntCounter,
    rejected: IntCounter,
    unknown_keys: IntGauge,
}

impl ConfigCounters {
    fn new(metrics: &Metrics) -> Result<Self, MetricError> {
        let gauge = |name: &str, help: &str| metrics.int_gauge(name, help);
        let counter = |name: &str, help: &str| metrics.int_counter(name, help);
        Ok(Self {
            info: metrics.info(
                "nanny_config_info",
                "Version of the configuration in force; always 1.",
                "version",
            )?,
            error: gauge(
                "nanny_config_error",
                "1 while the newest configuration is rejected and the previous one stays in force.",
            )?,
            loaded: gauge(
                "nanny_config_loaded_timestamp_seconds",
                "Time when the configuration in force was loaded, in seconds since 1970.",
            )?,
            edits: counter(
                "nanny_config_edits_total",
                "Edits of the configuration that came into force.",
            )?,
            rejected: counter(
                "nanny_config_rejected_total",
                "Edits of the configuration that were rejected.",
            )?,
            unknown_keys: gauge(
                "nanny_config_unknown_keys",
                "Keys of the ConfigMap that are ignored.",
            )?,
        })
    }
}

impl Report {
    pub(crate) fn new() -> Result<Self, MetricError> {
        let metrics = Metrics::new("nanny")?;
        let counters = Arc::new(Counters::new(&metrics)?);
        let status = Status {
            version: daemon::version::VERSION,
            commit: daemon::version::COMMIT,
            ..Status::default()
        };
        Ok(Self {
            status: Arc::new(Mutex::new(status)),
            changed: Arc::default(),
            counters,
            metrics,
        })
    }

    /// Records the dnsmasq in use, and whether an edit reloads or restarts dnsmasq.
    pub(crate) fn uses(
        &self,
        version: &str,
        package: Option<&str>,
        missing_fixes: Vec<&'static str>,
        edits_by: &'static str,
    ) -> Result<(), MetricError> {
        let info = self.metrics.int_gauge_vec(
            "nanny_dnsmasq_info",
            "Version of dnsmasq and of its package; always 1.",
            &["version", "package"],
        )?;
        info.with_label_values(&[version, package.unwrap_or_default()])
            .set(1);
        let lacking = self.metrics.int_gauge(
            "nanny_dnsmasq_missing_fixes",
            "Security fixes of later dnsmasq releases that this version lacks.",
        )?;
        lacking.set(count(missing_fixes.len()));
        let mut status = self.edit();
        version.clone_into(&mut status.dnsmasq.version);
        status.dnsmasq.missing_fixes = missing_fixes;
        status.configuration.edits_by = edits_by;
        Ok(())
    }

    pub(crate) fn started(&self, pid: i32, again: Option<Restart>) {
        let mut status = self.edit();
        status.dnsmasq.pid = Some(pid);
        status.dnsmasq.started_at = Some(status::time(SystemTime::now()));
        if let Some(reason) = again {
            *status.dnsmasq.restarts.entry(reason.label()).or_default() += 1;
            self.counters
                .restarts
                .with_label_values(&[reason.label()])
                .inc();
        }
    }

    pub(crate) fn up(&self) {
        self.counters.up.set(1);
        self.edit().dnsmasq.up = true;
    }

    pub(crate) fn ended(&self, how: &str) {
        self.counters.up.set(0);
        let mut status = self.edit();
        status.dnsmasq.up = false;
        status.dnsmasq.pid = None;
        status.dnsmasq.last_end = Some(how.to_owned());
    }

    pub(crate) fn silent(&self) {
        self.counters.probe_failures.inc();
    }

    pub(crate) fn too_many_queries(&self) {
        self.counters.too_many_queries.inc();
    }

    /// Records a reload: dnsmasq reads its servers again.
    pub(crate) fn reloaded(&self) {
        self.counters.reloads.inc();
        self.counters.last_reload.set(seconds(SystemTime::now()));
        let mut status = self.edit();
        status.configuration.reloads += 1;
        status.configuration.last_reload_at = Some(status::time(SystemTime::now()));
    }

    /// Records a reload that removed servers while queries may have been waiting for them.
    pub(crate) fn hasty_reload(&self) {
        self.counters.hasty_reloads.inc();
    }

    /// Records the state of the configuration after an edit.
    pub(crate) fn configuration(&self, state: &ConfigState) {
        self.counters.config.info.set(&state.version.to_string());
        self.counters
            .config
            .error
            .set(i64::from(state.error.is_some()));
        self.counters.config.loaded.set(seconds(state.loaded_at));
        let (edits, rejected) = (&self.counters.config.edits, &self.counters.config.rejected);
        edits.inc_by(state.edits.saturating_sub(edits.get()));
        rejected.inc_by(state.rejected.saturating_sub(rejected.get()));
        self.counters
            .config
            .unknown_keys
            .set(count(state.unknown_keys.len()));
        self.edit().configuration.set(state);
    }

    pub(crate) fn routes(&self, routes: &Routes) {
        let mut status = self.edit();
        status.routes.set(routes);
        self.counters
            .stub_domains
            .set(count(routes.stub_domains.len()));
        self.counters.upstreams.set(count(routes.upstreams.len()));
        self.counters.loops.set(count(status.routes.loops.len()));
    }

    pub(crate) fn omissions(&self, omissions: &BTreeSet<Omission>) {
        let mut status = self.edit();
        status.routes.omit(omissions);
        self.counters
            .unresolved
            .set(count(status.routes.unresolved.len()));
        self.counters.loops.set(count(status.routes.loops.len()));
    }

    /// Records the version of kubedns' configuration, and whether it differs from the nanny's.
    pub(crate) fn kubedns(&self, configuration: Option<String>, differs: bool) {
        self.counters.kubedns_differs.set(differs.into());
        self.edit().routes.kubedns_configuration = configuration;
    }

    /// Records why dnsmasq does not have the newest routes. `None` means that the newest routes are
    /// in force.
    pub(crate) fn pending(&self, why: Option<(Pending, &str)>) {
        let is = |pending| i64::from(why.is_some_and(|(kind, _)| kind == pending));
        self.counters.routes_pending.set(is(Pending::Failed));
        self.counters.restart_needed.set(is(Pending::Restart));
        self.edit()
            .routes
            .set_pending(why.map(|(_, reason)| reason));
    }

    pub(crate) fn reload_failed(&self) {
        self.counters.reload_failures.inc();
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Records the address of the SERVFAIL server.
    pub(crate) fn servfail_server(&self, server: Nameserver) {
        self.edit().routes.servfail_server = Some(server.to_string());
    }

    /// Records a loop found by dnsmasq: queries to `server` come back to dnsmasq.
    pub(crate) fn found_loop(&self, server: Nameserver) {
        let mut status = self.edit();
        status.routes.add_loop(server);
        self.counters.loops.set(count(status.routes.loops.len()));
    }

    /// Locks the status for a change, and wakes the writer of the status file.
    fn edit(&self) -> MutexGuard<'_, Status> {
        self.changed.notify_one();
        self.status.lock()
    }

    pub(crate) fn json(&self) -> String {
        let status = self.status.lock().clone();
        serde_json::to_string_pretty(&status).unwrap_or_default() + "\n"
    }

    /// Keeps the status file up to date until cancelled.
    pub(crate) async fn write_file(self, directory: Arc<StateDir>, stop: CancellationToken) {
        let mut failed = false;
        while stop
            .run_until_cancelled(self.is_out_of_date(failed))
            .await
            .is_some()
        {
            let _ = stop.run_until_cancelled(sleep(GATHER)).await;
            failed = self.write(&directory, failed);
        }
        self.write(&directory, failed);
    }

    /// Waits for a change; after a failed write, waits no longer than [`AGAIN`].
    async fn is_out_of_date(&self, failed: bool) {
        let patience = if failed { AGAIN } else { Duration::MAX };
        let _ = timeout(patience, self.changed.notified()).await;
    }

    /// Writes the file. Logs a failure unless `told`. Returns whether the write failed.
    fn write(&self, directory: &StateDir, told: bool) -> bool {
        match directory.write(STATUS_FILE, self.json().as_bytes()) {
            Ok(()) => false,
            Err(error) => {
                if !told {
                    warn!(%error, "the status file cannot be written");
                }
                true
            }
        }
    }

    /// The pages `/status`, `/healthz` (200 while dnsmasq is up, else 503) and `/metrics`.
    pub(crate) fn pages(
        &self,
    ) -> impl Filter<Extract = (warp::reply::Response,), Error = warp::Rejection>
    + Clone
    + Send
    + Sync
    + 'static {
        use warp::http::StatusCode;

        let (report, health) = (self.clone(), self.clone());
        let status_page = http::exact_path("/status")
            .map(move || http::with_type(StatusCode::OK, "application/json", report.json()));
        let healthz = http::exact_path("/healthz").map(move || {
            let up = health.status.lock().dnsmasq.up;
            if up {
                http::text(StatusCode::OK, "ok\n")
            } else {
                http::text(StatusCode::SERVICE_UNAVAILABLE, "dnsmasq is down\n")
            }
        });
        status_page
            .or(healthz)
            .unify()
            .or(self.metrics.route("/metrics"))
            .unify()
    }
}

fn count(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

fn seconds(time: SystemTime) -> i64 {
    count(
        time.duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs(),
    )
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_status_file_that_could_not_be_written_is_tried_again() {
        let place = tempfile::tempdir().unwrap();
        let directory = Arc::new(StateDir::open(Some(place.path())).unwrap());
        let file = directory.file(STATUS_FILE);
        // A directory blocks the path of the new file.
        let obstacle = place.path().join(format!("{STATUS_FILE}.new"));
        std::fs::create_dir(&obstacle).unwrap();
        let report = Report::new().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(
            report
                .clone()
                .write_file(directory, CancellationToken::new()),
        );
        report.up();
        sleep(10 * AGAIN).await;
        assert!(!file.exists());

        std::fs::remove_dir(&obstacle).unwrap();
        sleep(10 * AGAIN).await;
        assert_eq!(std::fs::read_to_string(&file).unwrap(), report.json());
    }
}
