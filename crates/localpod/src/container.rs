//! Keeps one container running, as a kubelet does: starts its process, shows the log, and starts
//! the process again when it ends. Child processes that an ended process leaves behind are killed.

mod log;

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use daemon::backoff::Backoff;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::console::Console;
use crate::pod::Container;
use crate::status::Status;
use crate::stop::Stop;

/// The time to wait for the last log lines of an ended process.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The exit status of a program that rejects its command line.
const USAGE: i32 = 2;
/// A first run that ends sooner than this with status [`USAGE`] is not restarted.
const AT_ONCE: Duration = Duration::from_secs(5);

/// The pause before the second restart in a row. [`Backoff`] shortens this pause at random. The
/// first restart has no pause.
const SECOND_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause. A kubelet waits 10 s to 5 min, too long for a laptop.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A container that ran for this time was healthy: its next restart has no pause.
const HEALTHY: Duration = Duration::from_mins(1);

/// Keeps containers running.
pub(crate) struct Keeper<'a> {
    /// The sink of logs.
    pub(crate) console: &'a Console,
    /// The record of process ids and restarts.
    pub(crate) status: &'a Status,
    /// The requests to stop the pod.
    pub(crate) stop: &'a Stop,
    /// Time between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
}

/// A started container. Dropping this value kills the process group of the container.
struct Running {
    child: Child,
    pid: Pid,
    since: Instant,
    logs: JoinSet<()>,
}

impl Keeper<'_> {
    /// Keeps `container` running until a stop is requested, then ends it. Fails if the process
    /// cannot be started, or if its first run rejects its command line: a restart would not help.
    ///
    /// The future must be polled on the main thread: the kernel sends the parent-death signal to a
    /// process when the thread that started the process ends.
    pub(crate) async fn keep(&self, container: &Container) -> Result<()> {
        let mut backoff = Backoff::after_none(SECOND_PAUSE);
        let mut restarts = 0_u32;
        loop {
            let mut running = self.start(container)?;
            let ended = tokio::select! {
                ended = running.child.wait() => ended,
                () = self.stop.asked() => {
                    self.end(container.name, &mut running).await;
                    running.finish().await;
                    return Ok(());
                }
            };
            let ran = running.since.elapsed();
            running.finish().await;
            if restarts == 0 && ran < AT_ONCE && is_usage(&ended) {
                bail!(
                    "{} does not accept its arguments: the last line of its log says why",
                    container.name
                );
            }
            if ran >= HEALTHY {
                backoff.reset();
            }
            let pause = backoff.pause(LONGEST_PAUSE);
            restarts = restarts.saturating_add(1);
            self.status.ended(container.name);
            self.say_ended(container.name, &ended, restarts, pause);
            tokio::select! {
                () = tokio::time::sleep(pause) => (),
                () = self.stop.asked() => return Ok(()),
            }
        }
    }

    fn start(&self, container: &Container) -> Result<Running> {
        let running = self
            .spawn(container)
            .with_context(|| format!("cannot start {}", container.name))?;
        self.status.started(container.name, running.pid);
        Ok(running)
    }

    fn spawn(&self, container: &Container) -> io::Result<Running> {
        let command =
            daemon::exec::command(container.on_death, &container.program, &container.args);
        let mut command = Command::from(command);
        command.envs(container.env.iter().map(|(name, value)| (name, value)));
        // Each container has its own process group, so that Ctrl-C in the terminal reaches only
        // localpod, and localpod can kill the whole group.
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let pid = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .map(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process ended at once"))?;
        let mut logs = JoinSet::new();
        if let Some(stdout) = child.stdout.take() {
            logs.spawn(log::copy(stdout, container.name, self.console.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            logs.spawn(log::copy(stderr, container.name, self.console.clone()));
        }
        Ok(Running {
            child,
            pid,
            since: Instant::now(),
            logs,
        })
    }

    /// Sends SIGTERM. Sends SIGKILL if the process is still running after the grace period, or at
    /// the second request to stop.
    async fn end(&self, name: &str, running: &mut Running) {
        signal(running.pid, Signal::SIGTERM);
        tokio::select! {
            _ = running.child.wait() => return,
            () = tokio::time::sleep(self.grace) => {
                self.console.say(&format!("{name} did not end within {} s: killed", self.grace.as_secs()));
            }
            () = self.stop.forced() => self.console.say(&format!("{name} killed")),
        }
        signal(running.pid, Signal::SIGKILL);
        let _ = running.child.wait().await;
    }

    fn say_ended(&self, name: &str, ended: &io::Result<ExitStatus>, restart: u32, pause: Duration) {
        let how = match ended {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let when = if pause.is_zero() {
            "now".to_owned()
        } else {
            format!("in {:.1} s", pause.as_secs_f64())
        };
        self.console.say(&format!(
            "{name} ended ({how}); it is started again {when} (restart number {restart})"
        ));
    }
}

impl Running {
    /// Kills the rest of the process group, and waits for the last log lines.
    async fn finish(mut self) {
        self.end_group();
        let _ = timeout(LAST_WORDS, async {
            while self.logs.join_next().await.is_some() {}
        })
        .await;
    }

    fn end_group(&self) {
        // ESRCH means that the group is empty.
        let _ = killpg(self.pid, Signal::SIGKILL);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end_group();
    }
}

fn is_usage(ended: &io::Result<ExitStatus>) -> bool {
    ended
        .as_ref()
        .is_ok_and(|status| status.code() == Some(USAGE))
}

/// Sends a signal to a child process that has not been reaped yet. Ignores the error if the process
/// has just ended.
fn signal(pid: Pid, signal: Signal) {
    if let Err(error) = kill(pid, signal)
        && error != Errno::ESRCH
    {
        tracing::warn!(%pid, %signal, %error, "cannot signal a container");
    }
}
