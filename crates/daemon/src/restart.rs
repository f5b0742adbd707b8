//! Restarts a program within its container if the program crashes or hangs.
//!
//! Kubernetes restarts the container of a process that crashed. But the kubelet looks for ended
//! containers only once a second, and delays each further restart of the same container by ten
//! seconds or more. A process that hangs is restarted only after several failed probes. So the
//! first process of the container runs the program as a child. This parent waits, passes SIGTERM
//! and SIGINT on, and starts the child again as soon as the child has crashed. The child sends
//! [heartbeats](Heartbeat), so that the parent can detect a hung child. The parent kills a hung
//! child, which then counts as crashed. A child that has just started, or has been told to stop, is
//! not killed.
//!
//! A child that ends soon after its start is not started again. The parent then ends with the
//! child's exit status, so that Kubernetes shows the crashes and delays the restarts. If the
//! kernel kills the whole container, for example at its memory limit, Kubernetes restarts the
//! container.

mod heartbeat;

use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::exec;
pub use heartbeat::Heartbeat;
use heartbeat::HeartbeatWatch;

/// The environment variable that tells the child how many times it has been started again.
const RESTARTS: &str = "KUBE_DNS_RS_RESTARTS";
/// A child that ran for less time is not started again.
const MIN_LIFETIME: Duration = Duration::from_secs(10);
/// If a signal ends a process, the exit status is this number plus the number of the signal, as in
/// a shell.
const SIGNAL_STATUS: u8 = 128;

/// Number of restarts of this program after crashes; `None` if no parent restarts it.
pub fn count() -> Option<u32> {
    std::env::var(RESTARTS).ok()?.parse().ok()
}

/// Blocks the signals that [`run`] waits for. Threads inherit the blocked signals, so this must
/// happen before the first thread starts.
pub(crate) fn block_signals() -> anyhow::Result<SigSet> {
    let signals: SigSet = [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        // The parent discards these two signals, as the child does (see `shutdown`).
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ]
    .into_iter()
    .collect();
    signals.thread_block().context("cannot block signals")?;
    Ok(signals)
}

/// Runs this program as a child, and starts the child again after a crash. If a child ends and is
/// not started again, returns the exit status of this child.
///
/// # Errors
///
/// When the child cannot be started, or signals cannot be received.
pub(crate) fn run(signals: &SigSet) -> anyhow::Result<u8> {
    let signals = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context("cannot receive signals")?;
    let mut child = RestartedChild::start(0)?;

    loop {
        child.wait_for_event(&signals)?;

        while let Some(signal) = next_signal(&signals)? {
            if matches!(signal, Signal::SIGTERM | Signal::SIGINT) {
                child.stop(signal);
            }
        }
        if let Some(end) = child.reap()? {
            match end.next_step() {
                NextStep::Restart => child = child.restart(end)?,
                NextStep::Exit(status) => return Ok(status),
            }
        }
    }
}

fn next_signal(signals: &SignalFd) -> anyhow::Result<Option<Signal>> {
    let Some(info) = signals.read_signal().context("cannot read a signal")? else {
        return Ok(None);
    };
    let number = i32::try_from(info.ssi_signo).context("invalid signal number")?;
    Ok(Some(Signal::try_from(number)?))
}

/// The running child.
#[derive(Debug)]
struct RestartedChild {
    pid: Pid,
    started: Instant,
    restarts: u32,
    heartbeats: HeartbeatWatch,
    /// Whether the child has been told to stop.
    is_stopping: bool,
}

/// The end of a child.
#[derive(Clone, Copy, Debug)]
struct ChildEnd {
    status: EndStatus,
    lifetime: Duration,
    was_stopping: bool,
}

#[derive(Clone, Copy, Debug)]
enum EndStatus {
    Exited(u8),
    Killed(Signal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextStep {
    Restart,
    Exit(u8),
}

impl RestartedChild {
    fn start(restarts: u32) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let arguments = std::env::args_os().skip(1);
        let (heartbeats, to_parent) =
            HeartbeatWatch::pair().context("cannot create a socket pair")?;

        // A terminal sends SIGINT to the whole foreground process group. In a group of its own, the
        // child gets each signal once, from its parent.
        let child = exec::command(Signal::SIGKILL, &program, arguments)
            .env(RESTARTS, restarts.to_string())
            .stdin(Stdio::from(to_parent))
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let pid = i32::try_from(child.id()).context("a process ID is too large")?;

        Ok(Self {
            pid: Pid::from_raw(pid),
            started: Instant::now(),
            restarts,
            heartbeats,
            is_stopping: false,
        })
    }

    /// Waits for a signal, a heartbeat or the timeout of a heartbeat. Kills the child if the child
    /// hangs and would be started again.
    fn wait_for_event(&mut self, signals: &SignalFd) -> anyhow::Result<()> {
        let signal = PollFd::new(signals.as_fd(), PollFlags::POLLIN);
        let heartbeat = self.heartbeats.as_fd();
        let heartbeat = heartbeat.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let mut descriptors: Vec<PollFd<'_>> = std::iter::once(signal).chain(heartbeat).collect();

        let timeout = self.heartbeats.timeout();
        let ready = match poll(&mut descriptors, timeout) {
            Ok(ready) => ready,
            Err(Errno::EINTR) => return Ok(()),
            Err(error) => return Err(error).context("cannot wait for signals"),
        };

        let is_hung = self.heartbeats.update(ready == 0);
        // A child that is killed within `MIN_LIFETIME` of its start would not be started again.
        let can_restart = self.started.elapsed() >= MIN_LIFETIME;
        if is_hung && can_restart && !self.is_stopping {
            tracing::error!("the process hangs: its heartbeats have stopped, and it is killed");
            self.heartbeats.close();
            // The child may have ended just now. Then the signal has no effect, and SIGCHLD is
            // pending.
            let _ = kill(self.pid, Signal::SIGKILL);
        }
        Ok(())
    }

    /// Collects all ended processes, because the first process of a container is also the parent of
    /// every orphan. Returns the end of the child if the child is among them.
    fn reap(&self) -> anyhow::Result<Option<ChildEnd>> {
        let mut end = None;
        loop {
            let (pid, status) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => {
                    // The kernel reports only the lowest eight bits of an exit code, so the
                    // conversion cannot fail.
                    (
                        pid,
                        EndStatus::Exited(u8::try_from(code).unwrap_or(u8::MAX)),
                    )
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, EndStatus::Killed(signal)),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(end),
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(error) => return Err(error).context("cannot wait for the child"),
            };

            if pid == self.pid {
                end = Some(ChildEnd {
                    status,
                    lifetime: self.started.elapsed(),
                    was_stopping: self.is_stopping,
                });
            }
        }
    }

    fn restart(self, end: ChildEnd) -> anyhow::Result<Self> {
        let restarts = self.restarts.saturating_add(1);
        tracing::error!(
            end = %end.status,
            after = ?end.lifetime,
            restarts,
            "the process ended and is started again"
        );
        Self::start(restarts)
    }

    fn stop(&mut self, signal: Signal) {
        self.is_stopping = true;
        // The child may have ended just now. Then the signal has no effect, and SIGCHLD is pending.
        let _ = kill(self.pid, signal);
    }
}

impl ChildEnd {
    fn next_step(self) -> NextStep {
        let status = match self.status {
            EndStatus::Exited(code) => code,
            EndStatus::Killed(signal) => SIGNAL_STATUS.saturating_add(signal as u8),
        };

        let has_crashed = status != 0 && !self.was_stopping;
        if has_crashed && self.lifetime >= MIN_LIFETIME {
            NextStep::Restart
        } else {
            NextStep::Exit(status)
        }
    }
}

impl std::fmt::Display for EndStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit status {code}"),
            Self::Killed(signal) => write!(f, "signal {signal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_crashed_long_lived_child_is_restarted() {
        let long = MIN_LIFETIME;
        let short = MIN_LIFETIME / 2;
        let killed = EndStatus::Killed(Signal::SIGKILL);
        let failed = EndStatus::Exited(255);
        let ended = EndStatus::Exited(0);
        for (case, status, lifetime, was_stopping, expected) in [
            ("killed", killed, long, false, NextStep::Restart),
            ("failed", failed, long, false, NextStep::Restart),
            ("killed soon", killed, short, false, NextStep::Exit(137)),
            ("failed soon", failed, short, false, NextStep::Exit(255)),
            ("ended", ended, long, false, NextStep::Exit(0)),
            ("stopped", ended, long, true, NextStep::Exit(0)),
            (
                "killed while stopping",
                killed,
                long,
                true,
                NextStep::Exit(137),
            ),
        ] {
            let end = ChildEnd {
                status,
                lifetime,
                was_stopping,
            };
            assert_eq!(end.next_step(), expected, "{case}");
        }
    }
}
