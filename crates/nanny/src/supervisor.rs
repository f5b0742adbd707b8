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
use crate::quiet::{Quiet, Sent};
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
    /// It goes on, whatever signals it is sent.
    #[error("dnsmasq cannot be stopped")]
    Stop(#[source] std::io::Error),
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
    /// It has its servers from our file, and so does not need a restart for others.
    reads_file: bool,
    /// New arguments that are being tried.
    trial: Option<Trial>,
}

impl Life {
    /// Sends SIGHUP in a moment in which no query waits, or without one if none comes. None if that did not work.
    async fn hang_up_quietly(&mut self) -> Option<Sent> {
        let mut quiet = self.quiet.clone();
        let sent = tokio::task::spawn_blocking(move || (quiet.hang_up(QUIET), quiet)).await;
        let (sent, quiet) =
            sent.inspect_err(|error| error!(%error, "looking for a quiet moment failed")).ok()?;
        self.quiet = quiet;
        sent.ok()
    }
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
        let (argv, reads_file) = self.arguments(again.is_none());
        info!(program = %self.program.display(), arguments = shown(&argv), "starting dnsmasq");
        let (process, events) =
            Process::start(&self.program, &argv, self.json).map_err(SuperviseError::Spawn)?;
        self.report.started(process.pid().as_raw(), again);
        let findings = match self.probe {
            Some(server) => Health::new(server, process.pid()).findings(),
            None => stream::pending().boxed(),
        };
        let quiet = Quiet::new(process.pid(), self.port);
        let mut life = Life { process, events, findings, quiet, up: false, reads_file, trial: None };
        let outcome = self.attend(&mut life, stop).await;
        self.bury(life, outcome).await
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
                Some(event) = life.events.recv() => self.heard(life, &event),
                routes = self.delivery.due(), if life.up && life.trial.is_none() => self.bring(life, routes).await,
                (outcome, routes) = tried(&mut life.trial) => {
                    life.trial = None;
                    let Err(error) = outcome else {
                        self.delivery.done(routes);
                        return Outcome::Replace;
                    };
                    self.delivery.failed(&Obstacle::Refused(error));
                }
                Some(finding) = life.findings.next() => match finding {
                    Finding::Answers => self.is_up(life),
                    Finding::Silent => self.report.silent(),
                    Finding::Hangs => return Outcome::Hangs,
                },
                () = tick(&mut statistics), if life.up => {
                    if let Err(error) = life.process.signal(Signal::SIGUSR1).await {
                        warn!(%error, "dnsmasq cannot be asked for its statistics");
                    }
                }
                () = tick(&mut observation), if life.up => life.quiet.observe(),
                () = &mut surely_up, if !life.up => self.is_up(life),
            }
        }
    }

    /// Ends the process and says how the life ended.
    async fn bury(&self, mut life: Life, outcome: Outcome) -> Result<Ended, SuperviseError> {
        let was_up = life.up;
        let stop = async |process: Process| {
            process.stop(STOPPING).await.map(exit_status::describe).map_err(SuperviseError::Stop)
        };
        let (how, ended) = match outcome {
            Outcome::Ended(status) => {
                let how =
                    status.map_or_else(|error| format!("an unknown status ({error})"), exit_status::describe);
                let last_words = life.process.last_words().await;
                (how.clone(), Ended::Died { how, last_words, was_up })
            }
            Outcome::Hangs => {
                // Whether that worked shows when it is stopped.
                let _ = life.process.signal(Signal::SIGKILL).await;
                (stop(life.process).await?, Ended::Hung)
            }
            Outcome::Stop => (stop(life.process).await?, Ended::Stopped),
            Outcome::Replace => (stop(life.process).await?, Ended::Replaced),
        };
        self.report.ended(&how);
        if !matches!(ended, Ended::Died { .. }) {
            info!(%how, "dnsmasq stopped");
        }
        Ok(ended)
    }

    fn heard(&self, life: &mut Life, event: &Event) {
        match event {
            Event::Started => self.is_up(life),
            Event::Loop(server) => self.report.found_loop(*server),
            Event::OwnAddress(ip) => warn!(%ip, "dnsmasq leaves a server out: the address is its own"),
            Event::TooManyQueries => self.report.too_many_queries(),
        }
    }

    /// dnsmasq handles signals now. (Before that, SIGHUP would be lost or deadly.)
    fn is_up(&self, life: &mut Life) {
        if !std::mem::replace(&mut life.up, true) {
            life.quiet.observe();
            self.report.up();
        }
    }

    /// Brings new routes to dnsmasq, or begins to.
    async fn bring(&mut self, life: &mut Life, routes: Routes) {
        let brought = if life.reads_file {
            self.replace_servers(life, &routes).await
        } else if self.may_restart || routes.mend_some_of(self.delivery.in_force()) {
            // A domain that fails altogether is not what anybody meant by leaving dnsmasq alone.
            life.trial = Some(self.trial(routes));
            return;
        } else {
            Err(Obstacle::NoRestart)
        };
        match brought {
            Ok(()) => self.delivery.done(routes),
            Err(obstacle) => self.delivery.failed(&obstacle),
        }
    }

    /// Has dnsmasq go from the routes in force to others.
    async fn replace_servers(&self, life: &mut Life, routes: &Routes) -> Result<(), Obstacle> {
        self.write_servers(routes)?;
        // Without forgetting queries that wait for a server that goes.
        let takes_away = routes.lack_some_of(self.delivery.in_force());
        let sent = if takes_away { life.hang_up_quietly().await } else { None };
        if sent.is_none() {
            life.process.signal(Signal::SIGHUP).await.map_err(Obstacle::Signal)?;
        }
        if takes_away {
            let sent = sent.unwrap_or(Sent::Anyway);
            debug!(?sent, "servers are taken away");
            self.report.taken_away(sent);
        }
        self.report.reloaded();
        info!(
            stub_domains = routes.stub_domains.len(),
            upstreams = servers(&routes.upstreams),
            "dnsmasq reads its servers again"
        );
        Ok(())
    }

    /// Tries new arguments before the running dnsmasq is given up for them.
    fn trial(&self, routes: Routes) -> Trial {
        let (program, argv) = (self.program.clone(), self.plan.argv_without_file(&routes));
        Box::pin(async move { (trial::test(&program, &argv).await, routes) })
    }

    /// Puts the routes in force that dnsmasq is started with: the newest, if possible. Returns its arguments, and whether
    /// it has its servers from our file. It never starts without servers: those that no file holds are arguments.
    fn arguments(&mut self, first: bool) -> (Vec<OsString>, bool) {
        let newest = self.delivery.newest();
        if self.plan.mode == Mode::Restart {
            // Newer arguments have to be tried first.
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
                warn!(%obstacle, "dnsmasq is started with its servers as arguments, other servers restart it");
                false
            }
        };
        self.delivery.done(newest);
        let routes = self.delivery.in_force();
        let argv = if reads_file { self.plan.argv(routes) } else { self.plan.argv_without_file(routes) };
        (argv, reads_file)
    }

    /// Whether the servers file is there and says what is in force.
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

fn shown(argv: &[OsString]) -> String {
    let words: Vec<_> = argv.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

fn servers(servers: &[Nameserver]) -> String {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    servers.join(" ")
}
