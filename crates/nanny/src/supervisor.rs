//! One dnsmasq at a time: started, kept up, told of new routes, stopped.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use dnsconfig::Nameserver;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use nix::sys::signal::Signal;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::deaths::{Deaths, Verdict};
use crate::delivery::{Delivery, Obstacle};
use crate::exit_status;
use crate::health::{Finding, Health};
use crate::launch::{Mode, Plan};
use crate::log_lines::Event;
use crate::process::Process;
use crate::quiet::Quiet;
use crate::report::{Report, Restart};
use crate::routes::Routes;
use crate::servers_file;
use crate::state_dir::StateDir;
use crate::trial::{self, TrialError};

/// How long dnsmasq may take to end on SIGTERM.
const STOPPING: Duration = Duration::from_secs(3);
/// A dnsmasq that neither says nor shows that it is up is believed to be after this long.
const SURELY_UP: Duration = Duration::from_secs(3);
/// How long a reload that takes servers away waits for a moment in which no query is lost by it. An edit is to be in
/// force within a second.
const QUIET: Duration = Duration::from_millis(400);
/// How often it is looked at what dnsmasq is like when idle.
const OBSERVATION: Duration = Duration::from_secs(1);
/// Bytes of the user's own servers file that are taken over at most.
const LARGEST_EXTRA: u64 = 1 << 20;

/// Why the nanny ends.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The process cannot even be created.
    #[error("cannot start a process for dnsmasq")]
    Spawn(#[source] std::io::Error),
    /// The servers file cannot be written before the first start.
    #[error(transparent)]
    ServersFile(Obstacle),
    /// The first start failed: the arguments, the port or the like.
    #[error("dnsmasq did not start: {how}: {last_words}")]
    Start {
        /// How it ended.
        how: String,
        /// The last thing it said.
        last_words: String,
    },
    /// It died too often.
    #[error("dnsmasq ended {count} times within a minute, the last time with {how}: {last_words}")]
    Deaths {
        /// How often.
        count: usize,
        /// How it ended the last time.
        how: String,
        /// The last thing it said.
        last_words: String,
    },
}

/// Looks after dnsmasq.
#[derive(Debug)]
pub struct Supervisor {
    /// The executable.
    pub program: PathBuf,
    /// How it is started.
    pub plan: Plan,
    /// Where the servers file lives; none if there is no such place.
    pub directory: Option<Arc<StateDir>>,
    /// The routes, in force and newest.
    pub delivery: Delivery,
    /// The port dnsmasq answers on.
    pub port: u16,
    /// Where dnsmasq can be asked whether it lives.
    pub probe: Option<Nameserver>,
    /// How often dnsmasq is to log its statistics; zero for never.
    pub log_interval: Duration,
    /// Whether dnsmasq may be restarted for other routes.
    pub may_restart: bool,
    /// Log lines of single queries as JSON.
    pub json: bool,
    /// Where everything is told.
    pub report: Report,
}

/// How one life of dnsmasq ended.
#[derive(Debug)]
enum Ended {
    Stopped,
    Died { how: String, last_words: String, was_up: bool },
    Hung,
    Replaced,
}

/// One life of dnsmasq.
struct Life {
    process: Process,
    events: mpsc::Receiver<Event>,
    /// What the probes find; nothing ever where none are possible.
    findings: BoxStream<'static, Finding>,
    quiet: Quiet,
    up: bool,
    /// The servers file changed before dnsmasq could be told.
    stale: bool,
    /// New arguments that are being tried.
    trial: Option<Trial>,
}

/// Tries the arguments for some routes, and hands these back.
type Trial = BoxFuture<'static, (Result<(), TrialError>, Routes)>;

impl Supervisor {
    /// Runs until cancelled, or until dnsmasq cannot be kept up. dnsmasq is gone when this returns.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), SuperviseError> {
        let mut deaths = Deaths::default();
        let mut again = None;
        loop {
            let ended = self.live(again, &stop).await?;
            let (how, last_words) = match ended {
                Ended::Stopped => return Ok(()),
                Ended::Replaced => {
                    again = Some(Restart::Configuration);
                    continue;
                }
                Ended::Died { how, last_words, was_up: false } if again.is_none() => {
                    return Err(SuperviseError::Start { how, last_words });
                }
                Ended::Died { how, last_words, .. } => {
                    again = Some(Restart::Died);
                    (how, last_words)
                }
                Ended::Hung => {
                    again = Some(Restart::Hung);
                    ("a hang".to_owned(), "killed by the nanny".to_owned())
                }
            };
            match deaths.count(Instant::now()) {
                Verdict::GiveUp(count) => return Err(SuperviseError::Deaths { count, how, last_words }),
                Verdict::Restart(pause) => {
                    error!(%how, last_words, ?pause, "dnsmasq ended, starting it again");
                    if stop.run_until_cancelled(sleep(pause)).await.is_none() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// One life of dnsmasq, from the start to the end.
    async fn live(
        &mut self,
        again: Option<Restart>,
        stop: &CancellationToken,
    ) -> Result<Ended, SuperviseError> {
        self.choose_routes(again.is_none())?;
        let argv = self.plan.argv(self.delivery.in_force());
        info!(program = %self.program.display(), arguments = shown(&argv), "starting dnsmasq");
        let (process, events) =
            Process::start(&self.program, &argv, self.json).map_err(SuperviseError::Spawn)?;
        self.report.started(process.pid().as_raw(), again);
        let findings = match self.probe {
            Some(server) => Health::new(server, process.pid()).findings(),
            None => stream::pending().boxed(),
        };
        let quiet = Quiet::new(process.pid(), self.port);
        let mut life = Life { process, events, findings, quiet, up: false, stale: false, trial: None };
        let outcome = self.attend(&mut life, stop).await;
        Ok(self.bury(life, outcome).await)
    }

    /// Attends to a running dnsmasq until something ends its life.
    async fn attend(&mut self, life: &mut Life, stop: &CancellationToken) -> Outcome {
        let surely_up = sleep(SURELY_UP);
        tokio::pin!(surely_up);
        let mut statistics = every(self.log_interval);
        let mut observation = every(OBSERVATION);
        loop {
            // Whatever waits here is dropped when something else comes first, so it must not lose by that.
            tokio::select! {
                biased;
                () = stop.cancelled() => return Outcome::Stop,
                status = life.process.wait() => return Outcome::Ended(status),
                Some(event) = life.events.recv() => self.heard(life, &event).await,
                routes = self.delivery.due(), if life.trial.is_none() => self.bring(life, routes).await,
                (outcome, routes) = tried(&mut life.trial) => {
                    life.trial = None;
                    let Err(error) = outcome else {
                        self.delivery.done(routes);
                        return Outcome::Replace;
                    };
                    self.delivery.failed(&Obstacle::Refused(error));
                }
                Some(finding) = life.findings.next() => match finding {
                    Finding::Answers => self.is_up(life).await,
                    Finding::Silent => self.report.silent(),
                    Finding::Hangs => return Outcome::Hangs,
                },
                () = tick(&mut statistics), if life.up => life.process.signal(Signal::SIGUSR1),
                () = tick(&mut observation), if life.up => life.quiet.observe(),
                () = &mut surely_up, if !life.up => self.is_up(life).await,
            }
        }
    }

    /// Ends the process and says how the life ended.
    async fn bury(&self, life: Life, outcome: Outcome) -> Ended {
        let was_up = life.up;
        let (how, ended) = match outcome {
            Outcome::Ended(status) => {
                let how = describe(status);
                let last_words = life.process.last_words().await;
                (how.clone(), Ended::Died { how, last_words, was_up })
            }
            Outcome::Hangs => {
                life.process.signal(Signal::SIGKILL);
                (describe(life.process.stop(STOPPING).await), Ended::Hung)
            }
            Outcome::Stop => (describe(life.process.stop(STOPPING).await), Ended::Stopped),
            Outcome::Replace => (describe(life.process.stop(STOPPING).await), Ended::Replaced),
        };
        self.report.ended(&how);
        if !matches!(ended, Ended::Died { .. }) {
            info!(%how, "dnsmasq stopped");
        }
        ended
    }

    async fn heard(&self, life: &mut Life, event: &Event) {
        match event {
            Event::Started => self.is_up(life).await,
            Event::Loop(server) => self.report.found_loop(*server),
            Event::OwnAddress(ip) => warn!(%ip, "dnsmasq leaves a server out: the address is its own"),
            Event::TooManyQueries => self.report.too_many_queries(),
        }
    }

    /// dnsmasq handles signals now. (Before that, SIGHUP would be lost or deadly.)
    async fn is_up(&self, life: &mut Life) {
        if std::mem::replace(&mut life.up, true) {
            return;
        }
        life.quiet.observe();
        self.report.up();
        if std::mem::take(&mut life.stale) {
            self.reload(life, self.delivery.in_force(), false).await;
        }
    }

    /// Brings new routes to dnsmasq, or begins to.
    async fn bring(&mut self, life: &mut Life, routes: Routes) {
        match &self.plan.mode {
            Mode::Restart if self.may_restart => life.trial = Some(self.trial(routes)),
            Mode::Restart => self.delivery.failed(&Obstacle::NoRestart),
            Mode::Reload { .. } => match self.write_servers(&routes) {
                Ok(()) => self.replace_servers(life, routes).await,
                Err(obstacle) => self.delivery.failed(&obstacle),
            },
        }
    }

    /// Has dnsmasq go from the routes in force to those that are in the servers file now.
    async fn replace_servers(&mut self, life: &mut Life, routes: Routes) {
        if life.up {
            let takes_away = routes.lack_some_of(self.delivery.in_force());
            self.reload(life, &routes, takes_away).await;
        } else {
            life.stale = true;
        }
        self.delivery.done(routes);
    }

    /// Has dnsmasq read its servers again; if some are taken away, without forgetting queries that wait for them.
    async fn reload(&self, life: &mut Life, routes: &Routes, takes_away: bool) {
        if takes_away {
            let mut quiet = life.quiet.clone();
            let sent = tokio::task::spawn_blocking(move || (quiet.hang_up(QUIET), quiet)).await;
            match sent {
                Ok((sent, quiet)) => {
                    debug!(?sent, "servers are taken away");
                    self.report.taken_away(sent);
                    life.quiet = quiet;
                }
                Err(error) => {
                    error!(%error, "looking for a quiet moment failed");
                    life.process.signal(Signal::SIGHUP);
                }
            }
        } else {
            life.process.signal(Signal::SIGHUP);
        }
        self.report.reloaded();
        info!(
            stub_domains = routes.stub_domains.len(),
            upstreams = servers(&routes.upstreams),
            "dnsmasq reads its servers again"
        );
    }

    /// Tries new arguments before the running dnsmasq is given up for them.
    fn trial(&self, routes: Routes) -> Trial {
        let (program, argv) = (self.program.clone(), self.plan.argv(&routes));
        Box::pin(async move { (trial::test(&program, &argv).await, routes) })
    }

    /// Puts the routes in force that dnsmasq is started with. Without newer ones that do, those of the last one remain.
    fn choose_routes(&mut self, first: bool) -> Result<(), SuperviseError> {
        if self.plan.mode == Mode::Restart && !first {
            // Newer arguments have to be tried first.
            return Ok(());
        }
        let routes = self.delivery.newest();
        match self.write_servers(&routes) {
            Ok(()) => self.delivery.done(routes),
            Err(obstacle) if first => return Err(SuperviseError::ServersFile(obstacle)),
            Err(obstacle) => self.delivery.failed(&obstacle),
        }
        Ok(())
    }

    /// Writes the servers file, if there is one.
    fn write_servers(&self, routes: &Routes) -> Result<(), Obstacle> {
        let (Mode::Reload { file }, Some(directory)) = (&self.plan.mode, &self.directory) else {
            return Ok(());
        };
        let text = servers_file::render(routes, &self.extra_servers());
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let written = directory.write(&name, text.as_bytes());
        written.map_err(|reason| Obstacle::Unwritable { path: file.clone(), reason })
    }

    /// The lines of the user's own servers file, read anew each time.
    fn extra_servers(&self) -> String {
        let Some(path) = &self.plan.extra_servers else {
            return String::new();
        };
        let small = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() <= LARGEST_EXTRA);
        let text = if small { std::fs::read_to_string(path).ok() } else { None };
        text.unwrap_or_else(|| {
            warn!(file = %path.display(), "the file given with --servers-file cannot be read, or is too large");
            String::new()
        })
    }
}

/// What ends a life.
enum Outcome {
    Ended(std::io::Result<ExitStatus>),
    Stop,
    Hangs,
    Replace,
}

async fn tried(trial: &mut Option<Trial>) -> (Result<(), TrialError>, Routes) {
    match trial {
        Some(trial) => trial.await,
        None => std::future::pending().await,
    }
}

/// Ticks after each period; never if that is zero, or too long.
fn every(period: Duration) -> Option<Interval> {
    let first = Instant::now().checked_add(period).filter(|_| !period.is_zero())?;
    let mut interval = interval_at(first, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Some(interval)
}

async fn tick(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

fn describe(status: std::io::Result<ExitStatus>) -> String {
    status.map_or_else(|error| format!("an unknown status ({error})"), exit_status::describe)
}

fn shown(argv: &[OsString]) -> String {
    let words: Vec<_> = argv.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

fn servers(servers: &[Nameserver]) -> String {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    servers.join(" ")
}
