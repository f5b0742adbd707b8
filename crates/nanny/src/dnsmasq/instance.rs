//! One dnsmasq process, with what watches it and what is being tried for it.

use std::process::ExitStatus;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::mpsc;
use tracing::error;

use crate::config::routes::Routes;
use crate::dnsmasq::health::Finding;
use crate::dnsmasq::log_lines::Event;
use crate::dnsmasq::process::Process;
use crate::dnsmasq::quiet::{Quiet, Sent};
use crate::report::Restart;

/// The longest time a reload that removes servers waits for a moment without queries in flight. An edit is to be in
/// force within a second.
const QUIET: Duration = Duration::from_millis(400);

pub(super) struct Instance {
    pub(super) process: Process,
    pub(super) events: mpsc::Receiver<Event>,
    /// Findings of the probes; never any where none are possible.
    pub(super) findings: BoxStream<'static, Finding>,
    pub(super) quiet: Quiet,
    pub(super) up: bool,
    /// It has its servers from our file, and so does not need a restart for others.
    pub(super) reads_file: bool,
    /// It logs queries for those who follow them.
    pub(super) logs_queries: bool,
    pub(super) trial: Option<Trial>,
}

impl Instance {
    /// Sends SIGHUP in a moment in which no query waits, or without one if none comes. None if that did not work.
    pub(super) async fn hang_up_quietly(&mut self) -> Option<Sent> {
        let mut quiet = self.quiet.clone();
        let sent = tokio::task::spawn_blocking(move || (quiet.hang_up(QUIET), quiet)).await;
        let (sent, quiet) =
            sent.inspect_err(|error| error!(%error, "looking for a quiet moment failed")).ok()?;
        self.quiet = quiet;
        sent.ok()
    }
}

/// Tries the arguments for some routes, and hands these back.
pub(super) type Trial = BoxFuture<'static, (Result<(), String>, Routes)>;

/// The end of an instance.
pub(super) enum Outcome {
    Ended(std::io::Result<ExitStatus>),
    Stop,
    Hangs,
    Replace,
}

impl Outcome {
    /// Why dnsmasq is started again; none if it is not.
    pub(super) fn restart(&self) -> Option<Restart> {
        match self {
            Self::Ended(_) => Some(Restart::Died),
            Self::Hangs => Some(Restart::Hung),
            Self::Replace => Some(Restart::Configuration),
            Self::Stop => None,
        }
    }
}
