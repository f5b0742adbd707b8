//! Supervision of one dnsmasq at a time: start, restart, new routes, stop.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use futures::stream;
use nix::sys::signal::Signal;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};
use wire::Nameserver;

use crate::config::routes::Routes;
use crate::dnsmasq::deaths::{Deaths, Verdict};
use crate::dnsmasq::delivery::{Delivery, Obstacle};
use crate::dnsmasq::exit_status;
use crate::dnsmasq::health::{Finding, Health};
use crate::dnsmasq::instance::{Instance, Outcome, Trial};
use crate::dnsmasq::launch::{Mode, Plan};
use crate::dnsmasq::log_lines::Event;
use crate::dnsmasq::process::{Process, QueryLines};
use crate::dnsmasq::quiet::{Quiet, Sent};
use crate::dnsmasq::servers_file;
use crate::dnsmasq::trial;
use crate::or_never::or_never;
use crate::report::{Report, Restart};
use crate::state_dir::StateDir;

/// The time dnsmasq has to end after SIGTERM.
const STOPPING: Duration = Duration::from_secs(3);
/// A dnsmasq that does not report its start is assumed to be up after this time.
const SURELY_UP: Duration = Duration::from_secs(3);
/// The pause between two observations of an idle dnsmasq.
const OBSERVATION: Duration = Duration::from_secs(1);
/// Limit of the user's own servers file, in bytes; a larger file is not read.
const LARGEST_EXTRA: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) program: PathBuf,
    pub(crate) plan: Plan,
    /// The directory of the servers file; `None` if no directory is writable.
    pub(crate) directory: Option<Arc<StateDir>>,
    pub(crate) delivery: Delivery,
    pub(crate) port: u16,
    /// The address for probes of dnsmasq.
    pub(crate) probe: Option<Nameserver>,
    /// Interval at which dnsmasq logs its statistics; zero for never.
    pub(crate) log_interval: Duration,
    /// dnsmasq may be restarted for other routes.
    pub(crate) may_restart: bool,
    /// The destinations of `--log-queries` lines.
    pub(crate) query_lines: QueryLines,
    /// True while the query log needs dnsmasq to log queries. Always false if the user's arguments
    /// contain `--log-queries=extra`.
    pub(crate) follow_queries: watch::Receiver<bool>,
    pub(crate) report: Report,
}

impl Supervisor {
    /// Runs until cancelled, or until dnsmasq dies too often. dnsmasq has ended when this function
    /// returns.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut deaths = Deaths::default();
        let mut again = None;
        loop {
            let mut instance = self.start(again)?;
            let outcome = self.supervise(&mut instance, &stop).await;
            let (was_up, restart) = (instance.up, outcome.restart());
            let (how, last_words) = self.reap(instance, outcome).await?;
            match restart {
                None => return Ok(()),
                Some(Restart::Died) if !was_up && again.is_none() => {
                    bail!("dnsmasq did not start: {how}: {last_words}");
                }
                Some(_) => again = restart,
            }
            if restart == Some(Restart::Configuration) {
                continue;
            }
            match deaths.count(Instant::now()) {
                Verdict::GiveUp(count) => bail!(
                    "dnsmasq ended {count} times within a minute, the last time with {how}: {last_words}"
                ),
                Verdict::Restart(pause) => {
                    error!(%how, last_words, ?pause, "dnsmasq ended, starting it again");
                    if stop.run_until_cancelled(sleep(pause)).await.is_none() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn start(&mut self, again: Option<Restart>) -> anyhow::Result<Instance> {
        let (mut argv, reads_file) = self.arguments(again.is_none());
        let logs_queries = *self.follow_queries.borrow_and_update();
        if logs_queries {
            argv.push("--log-queries=extra".into());
        }
        info!(program = %self.program.display(), "starting dnsmasq");
        debug!(arguments = shown(&argv), "arguments of dnsmasq");
        let (process, events) = Process::start(&self.program, &argv, self.query_lines.clone())
            .context("cannot start a process for dnsmasq")?;
        self.report.started(process.pid().as_raw(), again);
        let findings = match self.probe {
            Some(server) => Health::new(server, process.pid()).findings(),
            None => stream::pending().boxed(),
        };
        let quiet = Quiet::new(process.pid(), self.port);
        Ok(Instance {
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
    async fn supervise(&mut self, instance: &mut Instance, stop: &CancellationToken) -> Outcome {
        let surely_up = sleep(SURELY_UP);
        tokio::pin!(surely_up);
        let mut statistics = every(self.log_interval);
        let mut observation = every(OBSERVATION);
        loop {
            // Every branch must be cancel safe: when one branch completes, the other branches are
            // dropped.
            tokio::select! {
                biased;
                () = stop.cancelled() => return Outcome::Stop,
                status = instance.process.wait() => return Outcome::Ended(status),
                Some(event) = instance.events.recv() => self.on_event(instance, &event),
                routes = self.delivery.due(), if instance.up && instance.trial.is_none() => self.deliver(instance, routes).await,
                (outcome, routes) = or_never(instance.trial.as_mut()) => {
                    instance.trial = None;
                    let Err(error) = outcome else {
                        self.delivery.done(routes);
                        return Outcome::Replace;
                    };
                    self.delivery.failed(&Obstacle::Refused(error));
                }
                () = turned(&mut self.follow_queries, instance.logs_queries), if instance.up && self.may_restart => {
                    info!(logs_queries = !instance.logs_queries, "restarting dnsmasq to change its query logging");
                    return Outcome::Replace;
                }
                Some(finding) = instance.findings.next() => match finding {
                    Finding::Answers => self.is_up(instance),
                    Finding::Silent => self.report.silent(),
                    Finding::Hangs => return Outcome::Hangs,
                },
                _ = or_never(statistics.as_mut().map(Interval::tick)), if instance.up => {
                    if let Err(error) = instance.process.signal(Signal::SIGUSR1).await {
                        warn!(%error, "cannot request statistics from dnsmasq");
                    }
                }
                _ = or_never(observation.as_mut().map(Interval::tick)), if instance.up => instance.quiet.observe(),
                () = &mut surely_up, if !instance.up => self.is_up(instance),
            }
        }
    }

    /// Ends the process; returns how it ended and its last log line.
    async fn reap(
        &self,
        mut instance: Instance,
        outcome: Outcome,
    ) -> anyhow::Result<(String, String)> {
        if let Outcome::Ended(status) = outcome {
            let how = status.map_or_else(
                |error| format!("an unknown status ({error})"),
                exit_status::describe,
            );
            let last_words = instance.process.last_words().await;
            self.report.ended(&how);
            return Ok((how, last_words));
        }
        if matches!(outcome, Outcome::Hangs) {
            // If the signal fails, `stop` below returns an error.
            let _ = instance.process.signal(Signal::SIGKILL).await;
        }
        if matches!(outcome, Outcome::Replace) {
            // If the signal fails, `stop` below ends dnsmasq.
            let sent = instance.signal_quietly(Signal::SIGTERM).await;
            debug!(?sent, "dnsmasq ends for another one");
        }
        let status = instance
            .process
            .stop(STOPPING)
            .await
            .context("dnsmasq cannot be stopped")?;
        let how = exit_status::describe(status);
        self.report.ended(&how);
        info!(%how, "dnsmasq stopped");
        // The caller uses this text only for `Outcome::Hangs`: `Stop` and `Replace` do not count as
        // deaths.
        Ok(("a hang".to_owned(), "killed by the nanny".to_owned()))
    }

    fn on_event(&self, instance: &mut Instance, event: &Event) {
        match event {
            Event::Started => self.is_up(instance),
            Event::Loop(server) => self.report.found_loop(*server),
            Event::OwnAddress(ip) => warn!(%ip, "dnsmasq ignores a server: the address is its own"),
            Event::TooManyQueries => self.report.too_many_queries(),
        }
    }

    /// Records that dnsmasq is up. From now on dnsmasq handles signals. An earlier SIGHUP would be
    /// lost or kill dnsmasq.
    fn is_up(&self, instance: &mut Instance) {
        if !std::mem::replace(&mut instance.up, true) {
            instance.quiet.observe();
            self.report.up();
        }
    }

    /// Delivers new routes to dnsmasq, or starts their trial.
    async fn deliver(&mut self, instance: &mut Instance, routes: Routes) {
        let brought = if instance.reads_file {
            self.replace_servers(instance, &routes).await
        } else if routes.have_servers_of(self.delivery.in_force()) {
            self.hang_up(instance).await
        } else if self.may_restart || routes.mend_some_of(self.delivery.in_force()) {
            // Even with -restartDnsmasq=false, dnsmasq is restarted when a stub domain without
            // servers gets servers.
            instance.trial = Some(self.trial(routes));
            return;
        } else {
            Err(Obstacle::NoRestart)
        };
        match brought {
            Ok(()) => self.delivery.done(routes),
            Err(obstacle) => self.delivery.failed(&obstacle),
        }
    }

    /// Writes the servers file and makes dnsmasq read it.
    async fn replace_servers(
        &self,
        instance: &mut Instance,
        routes: &Routes,
    ) -> Result<(), Obstacle> {
        self.write_servers(routes)?;
        // Queries that wait for a removed server must not be dropped.
        let takes_away = routes.lack_some_of(self.delivery.in_force());
        let sent = if takes_away {
            instance.signal_quietly(Signal::SIGHUP).await
        } else {
            None
        };
        if sent.is_none() {
            self.hang_up(instance).await?;
        } else {
            self.report.reloaded();
        }
        if takes_away {
            let sent = sent.unwrap_or(Sent::Anyway);
            debug!(?sent, "reload removes servers");
            if sent == Sent::Anyway {
                self.report.hasty_reload();
            }
        }
        debug!(
            stub_domains = routes.stub_domains.len(),
            upstreams = servers(&routes.upstreams),
            "dnsmasq reads its servers again"
        );
        Ok(())
    }

    /// Makes dnsmasq read its servers again and flush its cache.
    async fn hang_up(&self, instance: &mut Instance) -> Result<(), Obstacle> {
        instance
            .process
            .signal(Signal::SIGHUP)
            .await
            .map_err(Obstacle::Signal)?;
        self.report.reloaded();
        Ok(())
    }

    /// Tests new arguments before the running dnsmasq is stopped for them.
    fn trial(&self, routes: Routes) -> Trial {
        let (program, argv) = (self.program.clone(), self.plan.argv_without_file(&routes));
        Box::pin(async move { (trial::test(&program, &argv).await, routes) })
    }

    /// Selects the routes that dnsmasq starts with: the newest routes, if possible. Returns
    /// dnsmasq's arguments, and whether dnsmasq reads the servers file. If the file cannot be
    /// written, the servers become arguments.
    fn arguments(&mut self, first: bool) -> (Vec<OsString>, bool) {
        let newest = self.delivery.newest();
        if self.plan.mode == Mode::Restart {
            // New arguments need a trial, except at the first start.
            if first {
                self.delivery.done(newest);
            }
            return (self.plan.argv(self.delivery.in_force()), false);
        }
        let reads_file = match self.write_servers(&newest) {
            Ok(()) => true,
            Err(obstacle) if !first && self.has_servers_in_force() => {
                self.delivery.failed(&obstacle);
                return (self.plan.argv(self.delivery.in_force()), true);
            }
            Err(obstacle) => {
                warn!(%obstacle, "dnsmasq started with its servers as arguments, edits restart it");
                false
            }
        };
        self.delivery.done(newest);
        let routes = self.delivery.in_force();
        let argv = if reads_file {
            self.plan.argv(routes)
        } else {
            self.plan.argv_without_file(routes)
        };
        (argv, reads_file)
    }

    /// Returns whether the servers file contains the routes in force.
    fn has_servers_in_force(&self) -> bool {
        let Mode::Reload { file } = &self.plan.mode else {
            return false;
        };
        let text = servers_file::render(self.delivery.in_force(), &self.extra_servers());
        std::fs::read(file).is_ok_and(|written| written == text.as_bytes())
    }

    /// Writes the servers file, if there is one.
    fn write_servers(&self, routes: &Routes) -> Result<(), Obstacle> {
        let (Mode::Reload { file }, Some(directory)) = (&self.plan.mode, &self.directory) else {
            return Ok(());
        };
        let text = servers_file::render(routes, &self.extra_servers());
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let written = directory.write(&name, text.as_bytes());
        written.map_err(|reason| Obstacle::Unwritable {
            path: file.clone(),
            reason,
        })
    }

    /// Reads the user's own servers file anew.
    fn extra_servers(&self) -> String {
        let Some(path) = &self.plan.extra_servers else {
            return String::new();
        };
        let small = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() <= LARGEST_EXTRA);
        let text = if small {
            std::fs::read_to_string(path).ok()
        } else {
            None
        };
        text.unwrap_or_else(|| {
            warn!(file = %path.display(), "the file given with --servers-file cannot be read, or is too large");
            String::new()
        })
    }
}

/// Returns when the query log starts or ends.
async fn turned(follow: &mut watch::Receiver<bool>, follows: bool) {
    if follow.wait_for(|wanted| *wanted != follows).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// A timer that ticks after each period. `None` if the period is zero or too long for the clock.
fn every(period: Duration) -> Option<Interval> {
    let first = Instant::now()
        .checked_add(period)
        .filter(|_| !period.is_zero())?;
    let mut interval = interval_at(first, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Some(interval)
}

fn shown(argv: &[OsString]) -> String {
    let words: Vec<_> = argv.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

fn servers(servers: &[Nameserver]) -> String {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    servers.join(" ")
}
