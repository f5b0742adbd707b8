//! The query log: the `queryLog` of the `ConfigMap`, or `--v=6`, writes queries into our log.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dnsconfig::State;
use dnsconfig::query_log::{DEFAULT_RATE, Filter, QueryLog};
use skydns::tap::{Choice, Record, Tap, Watch};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The verbosity from which each query is logged.
pub(crate) const EACH_QUERY: i32 = 6;
/// Interval of the log lines about omitted queries.
const TELL: Duration = Duration::from_secs(1);

/// The current query log, if any.
#[derive(Default)]
struct Writing {
    watch: Option<Watch>,
    end: Option<Instant>,
}

/// Writes the query log of the `ConfigMap` until `stop`; every query if `all` is set.
pub(crate) async fn run(
    tap: Arc<Tap>,
    mut state: watch::Receiver<State>,
    all: bool,
    stop: CancellationToken,
) {
    let mut wanted = None;
    let mut writing = if all { Writing::of_all(&tap) } else { Writing::default() };
    let mut tell = tokio::time::interval(TELL);
    let writing = async {
        loop {
            if !all {
                let new = state.borrow_and_update().config.query_log.clone();
                if new != wanted {
                    writing = Writing::new(&tap, new.as_ref());
                    wanted = new;
                }
            }
            tokio::select! {
                changed = state.changed() => if changed.is_err() {
                    return;
                },
                record = next(&mut writing.watch) => log(&record),
                _ = tell.tick(), if writing.watch.is_some() => writing.tell(),
                () = at(writing.end) => {
                    writing.tell();
                    tracing::info!("query log ended");
                    writing = Writing::default();
                }
            }
        }
    };
    stop.run_until_cancelled(writing).await;
}

impl Writing {
    fn new(tap: &Arc<Tap>, log: Option<&QueryLog>) -> Self {
        let Some(log) = log else { return Self::default() };
        let now = SystemTime::now();
        let remaining = log.remaining(now, now);
        if remaining.is_some_and(|remaining| remaining.is_zero()) {
            tracing::info!("query log has already ended");
            return Self::default();
        }
        let end = remaining.and_then(|remaining| Instant::now().checked_add(remaining));
        Self { end, ..Self::begin(tap, log.filter.clone(), log.rate) }
    }

    fn of_all(tap: &Arc<Tap>) -> Self {
        Self::begin(tap, Filter::default(), DEFAULT_RATE)
    }

    fn begin(tap: &Arc<Tap>, filter: Filter, rate: u32) -> Self {
        match tap.watch(Choice { filter, rate, messages: false }) {
            Ok(watch) => {
                tracing::info!(rate, "query log started");
                Self { watch: Some(watch), end: None }
            }
            Err(error) => {
                tracing::error!(%error, "query log cannot be written");
                Self::default()
            }
        }
    }

    /// Logs how many queries were left out.
    fn tell(&self) {
        let count = self.watch.as_ref().map_or(0, Watch::left_out);
        if count > 0 {
            tracing::warn!(target: "kubedns::queries", count, "queries left out of the query log");
        }
    }
}

/// The next record; never returns without a watch.
async fn next(watch: &mut Option<Watch>) -> Record {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

async fn at(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// Logs a query. The logger recognises these lines by their target: they have a rate limit of their own.
fn log(record: &Record) {
    let line = super::line(record);
    tracing::info!(
        target: "kubedns::queries",
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
