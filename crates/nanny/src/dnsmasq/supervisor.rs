//! Supervision of one dnsmasq at a time: start, restart, new routes, stop.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use daemon::tasks::pending_if_none;
use futures::StreamExt as _;
use futures::stream;
use nix::sys::signal::Signal;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};
use wire::Nameserver;

use crate::config::arguments::conf_file;
use crate::config::routes::Routes;
use crate::dnsmasq::delivery::{DeliveryError, RouteDelivery};
use crate::dnsmasq::exit_status;
use crate::dnsmasq::health::{HealthProbe, ProbeFinding};
use crate::dnsmasq::instance::{ArgumentTrial, DnsmasqInstance, InstanceEnd};
use crate::dnsmasq::launch::{EditMode, LaunchPlan};
use crate::dnsmasq::log_lines::LogEvent;
use crate::dnsmasq::loop_finder::LoopMark;
use crate::dnsmasq::memory_kills::MemoryKills;
use crate::dnsmasq::process::{DnsmasqProcess, QueryLines};
use crate::dnsmasq::quiet_moment::{QuietMoments, SignalTiming};
use crate::dnsmasq::restart_limit::{DeathReaction, RestartLimit};
use crate::dnsmasq::servers_file;
use crate::report::{Report, RestartReason};
use crate::state_dir::StateDir;

/// The text for the end of a dnsmasq that the kernel killed for lack of memory.
const MEMORY_LIMIT: &str =
    "OOM kill: the kernel sent SIGKILL, usually because of the container's memory limit";
/// The text for the end of a dnsmasq that hung.
const HANG: &str = "a hang: it did not answer its probes, and the nanny killed it";
/// The longest wait for the end of dnsmasq after SIGTERM.
const STOPPING: Duration = Duration::from_secs(3);
/// A dnsmasq that does not report its start is assumed to be up after this time.
const SURELY_UP: Duration = Duration::from_secs(3);
/// The interval at which [`QuietMoments::observe`] is called.
const OBSERVATION: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) program: PathBuf,
    pub(crate) plan: LaunchPlan,
    /// The mark with which dnsmasq answers probes for loops; `None` with `-forward=kubedns`.
    pub(crate) loop_mark: Option<LoopMark>,
    /// The directory of the servers file; `None` if no directory is writable and has space.
    pub(crate) directory: Option<Arc<StateDir>>,
    pub(crate) delivery: RouteDelivery,
    pub(crate) port: u16,
    /// Whether each query that dnsmasq forwards has a socket of its own.
    pub(crate) has_query_sockets: bool,
    /// The address for probes of dnsmasq; `None` if dnsmasq would not answer them.
    pub(crate) probe: Option<Nameserver>,
    /// Interval at which dnsmasq logs its statistics; zero for never.
    pub(crate) log_interval: Duration,
    /// The flag `-restartDnsmasq`: whether dnsmasq may be restarted to change its arguments. If
    /// false, a restart is still possible when a stub domain without a usable server gets one.
    pub(crate) may_restart: bool,
    /// The destinations of `--log-queries` lines.
    pub(crate) query_lines: QueryLines,
    /// True while dnsmasq has to run with `--log-queries=extra` because the configuration turns on
    /// the nanny's query log. Always false if the user's arguments already contain this option.
    pub(crate) follow_queries: watch::Receiver<bool>,
    pub(crate) memory_kills: MemoryKills,
    pub(crate) report: Report,
}

/// The end of an instance, for log lines and errors.
struct EndDescription {
    how: String,
    last_line: String,
}

/// dnsmasq's arguments for its next start.
struct StartArguments {
    argv: Vec<OsString>,
    /// Whether dnsmasq reads the servers file.
    reads_file: bool,
}

impl Supervisor {
    /// Runs dnsmasq until `stop` is cancelled, and then stops dnsmasq. Returns an error if dnsmasq
    /// cannot be started, dies too often, or cannot be stopped.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut limit = RestartLimit::default();
        let mut last_restart = None;
        loop {
            let mut instance = self.start_instance(last_restart)?;
            let end = self.supervise(&mut instance, &stop).await;
            let was_up = instance.up;
            let restart = end.restart_reason();
            let EndDescription { how, last_line } = self.end_instance(instance, end).await?;

            match restart {
                None => return Ok(()),
                Some(RestartReason::Died) if !was_up && last_restart.is_none() => {
                    // The first start has failed, for example because of wrong arguments. The nanny
                    // exits, and the kubelet restarts the container.
                    bail!("dnsmasq did not start: {how}: {last_line}");
                }
                Some(_) => last_restart = restart,
            }
            // A restart for new arguments is not counted as a death.
            if restart == Some(RestartReason::Configuration) {
                continue;
            }

            self.report.record_death(&how);
            match limit.count_death(Instant::now()) {
                DeathReaction::GiveUp(count) => bail!(
                    "dnsmasq ended {count} times within a minute, most recently: {how}: \
                     {last_line}"
                ),
                DeathReaction::Restart(pause) => {
                    error!(%how, last_words = last_line, ?pause, "dnsmasq ended, starting it again");
                    if stop.run_until_cancelled(sleep(pause)).await.is_none() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Starts dnsmasq. `restart` is the reason for a restart; `None` at the first start.
    fn start_instance(
        &mut self,
        restart: Option<RestartReason>,
    ) -> anyhow::Result<DnsmasqInstance> {
        let is_first = restart.is_none();
        let StartArguments {
            mut argv,
            reads_file,
        } = self.select_arguments(is_first);
        argv.extend(self.loop_mark.as_ref().map(LoopMark::argument));
        let logs_queries = *self.follow_queries.borrow_and_update();
        if logs_queries {
            argv.push("--log-queries=extra".into());
        }

        info!(program = %self.program.display(), "starting dnsmasq");
        debug!(arguments = join_words(&argv), "arguments of dnsmasq");
        let (process, events) =
            DnsmasqProcess::start(&self.program, &argv, self.query_lines.clone())
                .context("cannot start a process for dnsmasq")?;
        self.report.record_start(process.pid().as_raw(), restart);

        // With `--port=0` or `--no-ident`, dnsmasq answers no probes.
        let findings = match self.probe {
            Some(server) => HealthProbe::new(server, process.pid()).findings(),
            None => stream::pending().boxed(),
        };
        let quiet = QuietMoments::new(process.pid(), self.port, self.has_query_sockets);
        Ok(DnsmasqInstance {
            process,
            events,
            findings,
            quiet,
            up: false,
            reads_file,
            logs_queries,
            trial: None,
        })
    }

    /// Supervises a running dnsmasq until it ends, hangs, has to be replaced, or `stop` is
    /// cancelled.
    async fn supervise(
        &mut self,
        instance: &mut DnsmasqInstance,
        stop: &CancellationToken,
    ) -> InstanceEnd {
        let surely_up = sleep(SURELY_UP);
        tokio::pin!(surely_up);
        let mut statistics = start_interval(self.log_interval);
        let mut observation = start_interval(OBSERVATION);

        loop {
            let may_deliver = instance.up && instance.trial.is_none();
            let may_change_logging = instance.up && self.may_restart;

            // Every branch must be cancel safe: when one branch completes, the other branches are
            // dropped.
            tokio::select! {
                biased;
                () = stop.cancelled() => return InstanceEnd::Stop,
                status = instance.process.wait() => return InstanceEnd::Exited(status),
                Some(event) = instance.events.recv() => self.handle_event(instance, &event),
                routes = self.delivery.next_due(), if may_deliver => {
                    self.deliver(instance, routes).await;
                }
                trial = pending_if_none(instance.trial.as_mut()) => {
                    instance.trial = None;
                    if self.accept_trial(trial) {
                        return InstanceEnd::Replace;
                    }
                }
                () = logging_changed(&mut self.follow_queries, instance.logs_queries),
                    if may_change_logging =>
                {
                    let logs_queries = !instance.logs_queries;
                    info!(logs_queries, "restarting dnsmasq to change its query logging");
                    return InstanceEnd::Replace;
                }
                Some(finding) = instance.findings.next() => match finding {
                    ProbeFinding::Answers => self.mark_up(instance),
                    ProbeFinding::Silent => self.report.count_probe_failure(),
                    ProbeFinding::Hangs => return InstanceEnd::Hangs,
                },
                _ = pending_if_none(statistics.as_mut().map(Interval::tick)), if instance.up => {
                    request_statistics(instance).await;
                }
                _ = pending_if_none(observation.as_mut().map(Interval::tick)), if instance.up => {
                    instance.quiet.observe();
                }
                () = &mut surely_up, if !instance.up => self.mark_up(instance),
            }
        }
    }

    /// Ends the process if it still runs, and describes its end.
    async fn end_instance(
        &mut self,
        mut instance: DnsmasqInstance,
        end: InstanceEnd,
    ) -> anyhow::Result<EndDescription> {
        let is_hang = matches!(end, InstanceEnd::Hangs);
        match end {
            InstanceEnd::Exited(status) => {
                let how = self.describe_exit(status);
                let last_line = instance.process.clean_up().await;
                self.report.record_end(&how);
                return Ok(EndDescription { how, last_line });
            }
            InstanceEnd::Hangs => {
                // If SIGKILL cannot be sent, `stop` below fails, too, and reports the error.
                let _ = instance.process.send_signal(Signal::SIGKILL).await;
            }
            InstanceEnd::Replace => {
                // A failure needs no handling here, because `stop` below sends SIGTERM in any case.
                let sent = instance.signal_quietly(Signal::SIGTERM).await;
                debug!(?sent, "dnsmasq ends and is replaced");
            }
            InstanceEnd::Stop => {}
        }

        let stopped = instance.process.stop(STOPPING).await;
        let status = exit_status::describe(stopped.context("dnsmasq cannot be stopped")?);
        info!(how = %status, "dnsmasq stopped");
        // A hang ends with the nanny's SIGKILL, which must not look like an OOM kill.
        let how = if is_hang { HANG.to_owned() } else { status };
        self.report.record_end(&how);
        Ok(EndDescription {
            how,
            last_line: "killed by the nanny".to_owned(),
        })
    }

    /// Describes the end of a dnsmasq that ended by itself, or by a signal that the nanny did not
    /// send.
    fn describe_exit(&mut self, status: io::Result<ExitStatus>) -> String {
        let is_kill =
            matches!(&status, Ok(status) if status.signal() == Some(Signal::SIGKILL as i32));
        if self.memory_kills.take_new() && is_kill {
            return MEMORY_LIMIT.to_owned();
        }
        status.map_or_else(
            |error| format!("an unknown status ({error})"),
            exit_status::describe,
        )
    }

    fn handle_event(&self, instance: &mut DnsmasqInstance, event: &LogEvent) {
        match event {
            LogEvent::Started => self.mark_up(instance),
            LogEvent::OwnAddress(ip) => {
                warn!(%ip, "dnsmasq ignores a server: dnsmasq itself listens on this address");
            }
            LogEvent::TooManyQueries => self.report.count_too_many_queries(),
        }
    }

    /// Records that dnsmasq is up. From now on dnsmasq handles signals. Before that, a SIGHUP would
    /// be lost or kill dnsmasq.
    fn mark_up(&self, instance: &mut DnsmasqInstance) {
        if !std::mem::replace(&mut instance.up, true) {
            instance.quiet.observe();
            self.report.mark_up();
        }
    }

    /// Delivers new routes to dnsmasq, or starts a trial of the arguments for them.
    async fn deliver(&mut self, instance: &mut DnsmasqInstance, routes: Routes) {
        let in_force = self.delivery.in_force();
        let delivered = if instance.reads_file {
            self.replace_servers(instance, &routes).await
        // The servers are the same, but dnsmasq has to flush its cache.
        } else if routes.equal_except_flushes(in_force) {
            self.send_sighup(instance).await
        } else if self.may_restart || routes.restore_stub_domain_of(in_force) {
            // Even with -restartDnsmasq=false, dnsmasq is restarted when a stub domain without
            // usable servers gets one.
            let argv = self.plan.argv_without_file(&routes);
            let trial = ArgumentTrial::run(self.program.clone(), argv, routes);
            instance.trial = Some(Box::pin(trial));
            return;
        } else {
            Err(DeliveryError::RestartForbidden)
        };

        match delivered {
            Ok(()) => self.delivery.mark_in_force(routes),
            Err(error) => self.delivery.mark_failed(&error),
        }
    }

    /// Returns whether dnsmasq accepts the arguments of the trial. If so, the caller has to restart
    /// dnsmasq with these arguments.
    fn accept_trial(&mut self, trial: ArgumentTrial) -> bool {
        match trial.outcome {
            Ok(()) => {
                self.delivery.mark_in_force(trial.routes);
                true
            }
            Err(text) => {
                let error = DeliveryError::ArgumentsRejected(text);
                self.delivery.mark_failed(&error);
                false
            }
        }
    }

    /// Writes the servers file and makes dnsmasq read it.
    async fn replace_servers(
        &self,
        instance: &mut DnsmasqInstance,
        routes: &Routes,
    ) -> Result<(), DeliveryError> {
        self.write_servers(routes)?;

        // A reload drops the queries that wait for a removed server, so a quiet moment is needed.
        if routes.drop_server_of(self.delivery.in_force()) {
            self.reload_quietly(instance).await?;
        } else {
            self.send_sighup(instance).await?;
        }

        debug!(
            stub_domains = routes.stub_domains.len(),
            upstreams = join_servers(&routes.upstreams),
            "dnsmasq reads its servers again"
        );
        Ok(())
    }

    async fn reload_quietly(&self, instance: &mut DnsmasqInstance) -> Result<(), DeliveryError> {
        let sent = if let Some(sent) = instance.signal_quietly(Signal::SIGHUP).await {
            self.report.record_reload();
            sent
        } else {
            self.send_sighup(instance).await?;
            SignalTiming::Anyway
        };

        debug!(?sent, "reload removes servers");
        // Without a quiet moment, queries may have been dropped.
        if sent == SignalTiming::Anyway {
            self.report.count_hasty_reload();
        }
        Ok(())
    }

    /// Makes dnsmasq flush its cache, and read its servers file again if it has one.
    async fn send_sighup(&self, instance: &mut DnsmasqInstance) -> Result<(), DeliveryError> {
        instance
            .process
            .send_signal(Signal::SIGHUP)
            .await
            .map_err(DeliveryError::Signal)?;
        self.report.record_reload();
        Ok(())
    }

    /// Selects the routes and arguments for a start of dnsmasq.
    ///
    /// In [`EditMode::Restart`], the first start uses the newest routes, and a restart uses the
    /// routes in force. In [`EditMode::Reload`], the newest routes are written to the servers file.
    /// If the file cannot be written, the newest servers become arguments, with one exception: a
    /// restart uses the routes in force if the file still contains them.
    fn select_arguments(&mut self, is_first: bool) -> StartArguments {
        if self.plan.mode == EditMode::Restart {
            // In this mode, new arguments need a trial, except at the first start. So a restart
            // does not use newer routes: these routes stay pending, and their trial follows the
            // restart.
            if is_first {
                let newest = self.delivery.take_newest();
                self.delivery.mark_in_force(newest);
            }
            return StartArguments {
                argv: self.plan.argv(self.delivery.in_force()),
                reads_file: false,
            };
        }

        let newest = self.delivery.take_newest();
        let reads_file = match self.write_servers(&newest) {
            Ok(()) => true,
            Err(error) if !is_first && self.has_servers_in_force() => {
                self.delivery.mark_failed(&error);
                return StartArguments {
                    argv: self.plan.argv(self.delivery.in_force()),
                    reads_file: true,
                };
            }
            Err(obstacle) => {
                warn!(%obstacle, "dnsmasq gets its servers as arguments, so a change of its servers needs a restart");
                false
            }
        };

        self.delivery.mark_in_force(newest);
        let routes = self.delivery.in_force();
        let argv = if reads_file {
            self.plan.argv(routes)
        } else {
            self.plan.argv_without_file(routes)
        };
        StartArguments { argv, reads_file }
    }

    /// Returns whether the servers file contains the routes in force.
    fn has_servers_in_force(&self) -> bool {
        let EditMode::Reload { file } = &self.plan.mode else {
            return false;
        };
        let text = servers_file::render(self.delivery.in_force(), &self.read_extra_servers());
        std::fs::read(file).is_ok_and(|written| written == text)
    }

    /// Writes the servers file, if there is one.
    fn write_servers(&self, routes: &Routes) -> Result<(), DeliveryError> {
        let (EditMode::Reload { file }, Some(directory)) = (&self.plan.mode, &self.directory)
        else {
            return Ok(());
        };

        let text = servers_file::render(routes, &self.read_extra_servers());
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        directory
            .write_file(&name, &text)
            .map_err(|reason| DeliveryError::Unwritable {
                path: file.clone(),
                reason,
            })
    }

    /// Reads the user's own servers file; empty if there is none, or if it is not usable.
    fn read_extra_servers(&self) -> Vec<u8> {
        let Some(path) = &self.plan.extra_servers else {
            return Vec::new();
        };

        conf_file::read_file(path).unwrap_or_else(|reason| {
            warn!(
                file = %path.display(),
                reason,
                "cannot read the file given with --servers-file, so its servers are not used"
            );
            Vec::new()
        })
    }
}

async fn request_statistics(instance: &mut DnsmasqInstance) {
    if let Err(error) = instance.process.send_signal(Signal::SIGUSR1).await {
        warn!(%error, "cannot request statistics from dnsmasq");
    }
}

/// Waits until `wanted` differs from `logs_queries`, so that dnsmasq has to start or stop logging
/// queries.
async fn logging_changed(wanted: &mut watch::Receiver<bool>, logs_queries: bool) {
    let changed = wanted.wait_for(|wanted| *wanted != logs_queries);
    if changed.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// A timer that ticks after each period. `None` if the period is zero or too long for the clock.
fn start_interval(period: Duration) -> Option<Interval> {
    let first = Instant::now()
        .checked_add(period)
        .filter(|_| !period.is_zero())?;
    let mut interval = interval_at(first, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Some(interval)
}

fn join_words(argv: &[OsString]) -> String {
    let words: Vec<_> = argv.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

fn join_servers(servers: &[Nameserver]) -> String {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    servers.join(" ")
}
