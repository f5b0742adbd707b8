//! One dnsmasq process, with its probes and the trial of new arguments.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use daemon::error_chain::without_number;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use nix::sys::signal::Signal;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::error;

use crate::config::routes::Routes;
use crate::dnsmasq::exit_status;
use crate::dnsmasq::health::ProbeFinding;
use crate::dnsmasq::log_lines::LogEvent;
use crate::dnsmasq::process::DnsmasqProcess;
use crate::dnsmasq::quiet_moment::{QuietMoments, SignalTiming};
use crate::report::RestartReason;

/// The longest wait for a moment without queries in flight. The nanny waits before a restart with
/// other arguments, and before a reload that removes servers. The wait is short because an edit of
/// the configuration should be in force within a second.
const QUIET_TIMEOUT: Duration = Duration::from_millis(400);
/// Timeout of `dnsmasq --test`.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A running dnsmasq, with everything that observes it. A restart makes a new instance.
pub(super) struct DnsmasqInstance {
    pub(super) process: DnsmasqProcess,
    pub(super) events: mpsc::Receiver<LogEvent>,
    /// Findings of the probes; a stream that stays pending if dnsmasq cannot be probed.
    pub(super) findings: BoxStream<'static, ProbeFinding>,
    pub(super) quiet: QuietMoments,
    /// dnsmasq has started, and handles signals.
    pub(super) up: bool,
    /// dnsmasq reads its servers from the nanny's file, so a change of servers needs no restart.
    pub(super) reads_file: bool,
    /// dnsmasq runs with `--log-queries=extra` for the query log.
    pub(super) logs_queries: bool,
    /// The trial in progress.
    pub(super) trial: Option<BoxFuture<'static, ArgumentTrial>>,
}

impl DnsmasqInstance {
    /// Sends a signal at a moment without queries in flight, or after [`QUIET_TIMEOUT`] without
    /// such a moment. If the nanny cannot know whether queries are in flight, the nanny sends the
    /// signal at once. Returns `None` if the signal could not be sent.
    pub(super) async fn signal_quietly(&mut self, signal: Signal) -> Option<SignalTiming> {
        // The search for such a moment blocks its thread, so the search runs in a blocking task.
        let mut quiet = self.quiet.clone();
        let search = tokio::task::spawn_blocking(move || {
            let sent = quiet.send_signal(signal, QUIET_TIMEOUT);
            (sent, quiet)
        });

        let (sent, quiet) = search
            .await
            .inspect_err(|error| error!(%error, "the task that sends a signal to dnsmasq failed"))
            .ok()?;
        self.quiet = quiet;
        sent.ok()
    }
}

/// The trial of dnsmasq's arguments for new routes.
pub(super) struct ArgumentTrial {
    pub(super) routes: Routes,
    /// The error says why dnsmasq does not accept the arguments, or why the trial failed.
    pub(super) outcome: Result<(), String>,
}

impl ArgumentTrial {
    pub(super) async fn run(program: PathBuf, argv: Vec<OsString>, routes: Routes) -> Self {
        let outcome = test_arguments(&program, &argv).await;
        Self { routes, outcome }
    }
}

/// Tests the arguments with `dnsmasq --test`, which starts no server.
async fn test_arguments(program: &Path, argv: &[OsString]) -> Result<(), String> {
    let mut command = Command::new(program);
    // `--test` comes first: after a `--` in the user's arguments, `--test` would not be an option.
    command
        .arg("--test")
        .args(argv)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(TRIAL_TIMEOUT, command.output())
        .await
        .map_err(|_| format!("dnsmasq --test did not end within {TRIAL_TIMEOUT:?}"))?
        .map_err(|error| format!("cannot run dnsmasq --test: {}", without_number(&error)))?;
    if output.status.success() {
        return Ok(());
    }

    let text = String::from_utf8_lossy(&output.stderr);
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    Err(format!("{}: {line}", exit_status::describe(output.status)))
}

/// The reason why an instance ends.
pub(super) enum InstanceEnd {
    /// dnsmasq ended, but the nanny did not end it.
    Exited(std::io::Result<ExitStatus>),
    /// The nanny stops.
    Stop,
    /// dnsmasq does not answer its probes.
    Hangs,
    /// dnsmasq needs other arguments.
    Replace,
}

impl InstanceEnd {
    /// The reason for a restart after this end; `None` after [`Stop`](Self::Stop).
    pub(super) fn restart_reason(&self) -> Option<RestartReason> {
        match self {
            Self::Exited(_) => Some(RestartReason::Died),
            Self::Hangs => Some(RestartReason::Hung),
            Self::Replace => Some(RestartReason::Configuration),
            Self::Stop => None,
        }
    }
}
