//! One dnsmasq process, with its probes and the trial of new arguments.

use std::process::ExitStatus;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use nix::sys::signal::Signal;
use tokio::sync::mpsc;
use tracing::error;

use crate::config::routes::Routes;
use crate::dnsmasq::health::Finding;
use crate::dnsmasq::log_lines::Event;
use crate::dnsmasq::process::Process;
use crate::dnsmasq::quiet::{Quiet, Sent};
use crate::report::Restart;

/// Limit of the wait for a moment without queries in flight, before a restart or a reload that
/// removes servers. The limit is short because an edit should be in force within a second.
const QUIET: Duration = Duration::from_millis(400);

pub(super) struct Instance {
    pub(super) process: Process,
    pub(super) events: mpsc::Receiver<Event>,
    /// Findings of the probes; a stream that stays pending if dnsmasq cannot be probed.
    pub(super) findings: BoxStream<'static, Finding>,
    pub(super) quiet: Quiet,
    pub(super) up: bool,
    /// dnsmasq reads its servers from the nanny's file, so other servers need no restart.
    pub(super) reads_file: bool,
    /// dnsmasq runs with `--log-queries=extra` for the query log.
    pub(super) logs_queries: bool,
    pub(super) trial: Option<Trial>,
}

impl Instance {
    /// Sends a signal at a moment without queries in flight. After [`QUIET`] without such a moment,
    /// the signal is sent anyway. `None` on failure.
    pub(super) async fn signal_quietly(&mut self, signal: Signal) -> Option<Sent> {
        let mut quiet = self.quiet.clone();
        let sent = tokio::task::spawn_blocking(move || (quiet.send(signal, QUIET), quiet)).await;
        let (sent, quiet) = sent
            .inspect_err(
                |error| error!(%error, "search for a moment without waiting queries failed"),
            )
            .ok()?;
        self.quiet = quiet;
        sent.ok()
    }
}

/// A trial of dnsmasq's arguments for new routes. The output contains these routes.
pub(super) type Trial = BoxFuture<'static, (Result<(), String>, Routes)>;

/// The end of an instance.
pub(super) enum Outcome {
    Ended(std::io::Result<ExitStatus>),
    Stop,
    Hangs,
    Replace,
}

impl Outcome {
    /// The reason for the restart; `None` if dnsmasq is not restarted.
    pub(super) fn restart(&self) -> Option<Restart> {
        match self {
            Self::Ended(_) => Some(Restart::Died),
            Self::Hangs => Some(Restart::Hung),
            Self::Replace => Some(Restart::Configuration),
            Self::Stop => None,
        }
    }
}
