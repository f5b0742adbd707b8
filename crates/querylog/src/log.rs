//! The query log: queries in the log of the process. The key `queryLog` of the `ConfigMap` selects
//! the queries, unless the process logs all queries ([`LoggedQueries::All`]).
//!
//! The caller supplies the source of lines, as for [`serve`](crate::serve). kubedns and the nanny
//! both read `queryLog`, but only one of them writes the log that `queryLog` selects: the nanny if
//! dnsmasq is in front of kubedns, and otherwise kubedns.

use std::time::SystemTime;

use dnsconfig::ConfigState;
use dnsconfig::query_log::QueryLog;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::serve::{OMITTED_INTERVAL, POLL_INTERVAL};
use crate::{LineSource, QueryLine};

/// Maximum number of lines that are written at once.
const MAX_BATCH: usize = 4096;

/// The reason why a query log is not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogOpenError {
    /// Another process, with this name, writes the query log.
    #[error("{0}")]
    Elsewhere(&'static str),
    /// The source of lines cannot be opened, for this reason.
    #[error("{0}")]
    Failed(String),
}

/// The queries to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedQueries {
    /// The queries that the key `queryLog` of the `ConfigMap` selects.
    Configured,
    /// All queries; the `ConfigMap` is ignored.
    All,
}

/// Writes the query log.
#[derive(Debug)]
pub struct QueryLogger<S, O> {
    open: O,
    state: watch::Receiver<ConfigState>,
    logged: LoggedQueries,
    log: Option<QueryLog>,
    open_log: Option<OpenLog<S>>,
}

/// A query log that is being written.
#[derive(Debug)]
struct OpenLog<S> {
    source: S,
    /// Time at which the log ends; `None` if the log has no end.
    end: Option<Instant>,
}

impl<S: LineSource, O: Fn(&QueryLog) -> Result<S, LogOpenError>> QueryLogger<S, O> {
    /// Creates a logger, and starts the query log if one is to be written at present. `open` opens
    /// a source of lines.
    pub fn new(open: O, state: watch::Receiver<ConfigState>, logged: LoggedQueries) -> Self {
        let mut this = Self {
            open,
            state,
            logged,
            log: None,
            open_log: None,
        };
        this.apply_edit();
        this
    }

    /// Writes the query log until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.write_logs()).await;
        self.close_log();
    }

    async fn write_logs(&mut self) {
        let mut report = interval(OMITTED_INTERVAL);
        report.set_missed_tick_behavior(MissedTickBehavior::Delay);

        loop {
            let is_open = self.open_log.is_some();
            let end = self.open_log.as_ref().and_then(|log| log.end);
            tokio::select! {
                Ok(()) = self.state.changed() => self.apply_edit(),
                () = sleep(POLL_INTERVAL), if is_open => self.write_lines(),
                _ = report.tick(), if is_open => self.report_omitted(),
                () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => {
                    self.close_log();
                    tracing::info!("query log ended");
                }
                // The configuration can no longer change, and no log is open.
                else => return std::future::pending().await,
            }
        }
    }

    /// Replaces the log if the configured log has changed. The new source is opened before the old
    /// source is closed. Otherwise a resource that both sources use, such as dnsmasq's query
    /// logging, would be stopped and started again.
    fn apply_edit(&mut self) {
        let log = match self.logged {
            LoggedQueries::All => Some(QueryLog::default()),
            LoggedQueries::Configured => self.state.borrow_and_update().config.query_log.clone(),
        };
        if log == self.log {
            return;
        }

        let opened = log.as_ref().and_then(|log| self.open_log(log));
        self.close_log();
        self.log = log;
        self.open_log = opened;
    }

    fn open_log(&self, log: &QueryLog) -> Option<OpenLog<S>> {
        // The end may be in the past, for example after a restart.
        let now = SystemTime::now();
        let remaining = log.remaining(now, now);
        if remaining.is_some_and(|remaining| remaining.is_zero()) {
            tracing::info!("query log has already ended");
            return None;
        }

        match (self.open)(log) {
            Ok(source) => {
                tracing::info!(rate = log.rate, "query log started");
                let end = remaining.and_then(|remaining| Instant::now().checked_add(remaining));
                Some(OpenLog { source, end })
            }
            Err(LogOpenError::Elsewhere(by)) => {
                tracing::info!(by, "query log is written elsewhere");
                None
            }
            Err(LogOpenError::Failed(error)) => {
                tracing::error!(error, "query log cannot be written");
                None
            }
        }
    }

    /// Writes the lines that have arrived. If nobody reads standard error, the log of the process
    /// drops lines instead of blocking.
    fn write_lines(&mut self) {
        let Some(OpenLog { source, .. }) = &mut self.open_log else {
            return;
        };
        for line in std::iter::from_fn(|| source.next_line()).take(MAX_BATCH) {
            write_line(&line);
        }
    }

    /// Logs the number of omitted queries.
    fn report_omitted(&mut self) {
        let Some(OpenLog { source, .. }) = &mut self.open_log else {
            return;
        };
        let count = source.take_left_out();
        if count > 0 {
            tracing::warn!(target: "querylog::queries", count, "queries left out of the query log");
        }
    }

    fn close_log(&mut self) {
        self.write_lines();
        self.report_omitted();
        self.open_log = None;
    }
}

/// Logs a query. The rate limit of the process log does not apply to these lines: the
/// [`LineSource`] limits them.
fn write_line(line: &QueryLine) {
    tracing::info!(
        target: "querylog::queries",
        client = line.client,
        transport = line.transport,
        name = line.name,
        "type" = line.qtype,
        rcode = line.rcode,
        size = line.size,
        micros = line.micros,
        by = line.by,
        truncated = line.truncated,
        "query answered"
    );
}

#[cfg(test)]
mod tests;
