//! Pool of persistent connections to upstreams over TCP and TLS.
//!
//! A query uses a connection with few queries in flight. If no such connection exists, a new
//! connection is opened. If the upstream or the pool already has the maximum number of connections,
//! the least busy connection is used. If an upstream closes its connections after one reply, each
//! query gets a connection of its own.
//!
//! A separate task opens each connection. Several queries may wait until the connection is open. If
//! one of them stops waiting, the task still opens the connection.

mod connection;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::{Upstream, UpstreamProtocol};

pub(super) use self::connection::{AskError, UpstreamConnection};
use self::connection::{ConnectionEnd, ConnectionWorker, PendingQuery, UpstreamStream};
use super::failure::{OpenError, UpstreamFailure};
use super::metrics::UpstreamMetrics;
use super::tls::TlsClient;

/// Maximum number of queries in flight on one connection.
const DEPTH: usize = 256;
/// If each open connection has at least this many queries in flight, another one may be opened.
const FEW: usize = 8;
/// Maximum number of connections to one upstream.
const MAX_CONNECTIONS: usize = 4;
/// Maximum number of connections to an upstream that closes a connection after one reply.
const MAX_SINGLE_QUERY_CONNECTIONS: usize = 16;
/// Number of upstreams whose states are kept. When a state is added beyond this number, the states
/// without an open connection are removed.
const MAX_REMEMBERED: usize = 256;
/// Timeout for connecting, including the TLS handshake.
const CONNECTING: Duration = Duration::from_secs(3);
/// Pause before reconnecting to an upstream whose certificate or handshake failed.
const PAUSE: Duration = Duration::from_secs(2);

/// State of one upstream.
#[derive(Debug, Default)]
struct UpstreamSlot {
    connections: Vec<UpstreamConnection>,
    one_at_a_time: bool,
    /// Time before which no connection is opened, and the failure that caused the pause.
    paused: Option<(Instant, UpstreamFailure)>,
    /// Reason for the TLS failure that was logged last; `None` after a success.
    logged_reason: Option<String>,
}

/// A change of the TLS state of an upstream, for the log.
#[derive(Debug, PartialEq, Eq)]
enum TlsChange {
    /// TLS has begun to fail, or fails for another reason than before.
    Failed {
        reason: String,
        /// Whether the upstream still gets queries, over connections that were opened before.
        is_queried: bool,
    },
    /// TLS works after a failure.
    Works,
}

impl UpstreamSlot {
    /// Returns the connection for a query; `None` if a new connection should be opened. With
    /// `fresh`, a new connection is preferred.
    ///
    /// # Errors
    ///
    /// The TLS failure that caused the current pause, if the upstream has no open connection.
    fn choose_connection(
        &mut self,
        fresh: bool,
    ) -> Result<Option<&UpstreamConnection>, UpstreamFailure> {
        self.connections.retain(UpstreamConnection::is_open);
        if let Some(failure) = self.pausing_failure() {
            // An upstream that fails further handshakes may still serve its open connections.
            return self.least_busy().map(Some).ok_or(failure);
        }

        let full = self.connections.len() >= self.max_connections();
        let few = if self.one_at_a_time { 1 } else { FEW };
        let least_busy = self.least_busy();
        Ok(least_busy.filter(|connection| full || !fresh && connection.load() < few))
    }

    fn least_busy(&self) -> Option<&UpstreamConnection> {
        self.connections
            .iter()
            .min_by_key(|connection| connection.load())
    }

    /// Records the outcome of opening a connection. After a certificate or handshake failure, no
    /// connection is opened for [`PAUSE`]. Any other failure says nothing about TLS. After a
    /// certificate failure, the open connections take no further queries, because the upstream is
    /// not trusted any more.
    fn record_opening(&mut self, error: Option<OpenError>) -> Option<TlsChange> {
        let Some(error) = error else {
            self.paused = None;
            return self.logged_reason.take().map(|_| TlsChange::Works);
        };
        if !error.is_tls() {
            return None;
        }

        self.paused = Some((Instant::now() + PAUSE, error.failure));
        self.connections.retain(UpstreamConnection::is_open);
        if error.failure == UpstreamFailure::Certificate {
            self.connections.clear();
        }
        if self.logged_reason.as_ref() == Some(&error.reason) {
            return None;
        }
        self.logged_reason = Some(error.reason.clone());
        Some(TlsChange::Failed {
            is_queried: !self.connections.is_empty(),
            reason: error.reason,
        })
    }

    fn max_connections(&self) -> usize {
        if self.one_at_a_time {
            MAX_SINGLE_QUERY_CONNECTIONS
        } else {
            MAX_CONNECTIONS
        }
    }

    /// Maximum number of queries in flight on a new connection.
    fn depth(&self) -> usize {
        if self.one_at_a_time { 1 } else { DEPTH }
    }

    /// The failure of the last handshake, while the pause after it lasts.
    fn pausing_failure(&self) -> Option<UpstreamFailure> {
        let (until, failure) = self.paused?;
        (Instant::now() < until).then_some(failure)
    }
}

/// The connections to all upstreams. Clones share the connections.
#[derive(Clone, Debug)]
pub(super) struct ConnectionPool {
    slots: Arc<Mutex<HashMap<Upstream, UpstreamSlot>>>,
    tls: Arc<TlsClient>,
    /// One permit for each further connection that may be opened.
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl ConnectionPool {
    /// Creates a pool of at most `max_connections` connections. The tasks of the connections run in
    /// `tasks` and end with `stop`.
    pub(super) fn new(
        max_connections: usize,
        tls: TlsClient,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        Self {
            slots: Arc::default(),
            tls: Arc::new(tls),
            permits: Arc::new(Semaphore::new(max_connections)),
            tasks: tasks.clone(),
            stop: stop.clone(),
        }
    }

    /// Returns a connection for a query, perhaps one that is still opening. With `fresh`, a new
    /// connection is preferred.
    pub(super) fn connection(
        &self,
        upstream: &Upstream,
        metrics: &Arc<UpstreamMetrics>,
        fresh: bool,
    ) -> Result<UpstreamConnection, UpstreamFailure> {
        let mut slots = self.slots.lock();
        if slots.len() >= MAX_REMEMBERED && !slots.contains_key(upstream) {
            slots.retain(|_, slot| slot.connections.iter().any(UpstreamConnection::is_open));
        }

        let slot = slots.entry(upstream.clone()).or_default();
        if let Some(connection) = slot.choose_connection(fresh)? {
            return Ok(connection.clone());
        }

        // If the upstreams together have the maximum number of connections, a busy connection is
        // better than none.
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            let least_busy = slot.least_busy().cloned();
            return least_busy.ok_or(UpstreamFailure::NoSocket);
        };
        let (connection, questions) = UpstreamConnection::new(slot.depth());
        slot.connections.push(connection.clone());
        self.spawn_connection(upstream, metrics, questions, permit);
        Ok(connection)
    }

    /// Opens and serves a connection in a task, which holds `permit` until the connection ends.
    fn spawn_connection(
        &self,
        upstream: &Upstream,
        metrics: &Arc<UpstreamMetrics>,
        questions: mpsc::Receiver<PendingQuery>,
        permit: OwnedSemaphorePermit,
    ) {
        // The task may outlive the query for which the connection is opened.
        let pool = self.clone();
        let upstream = upstream.clone();
        let metrics = Arc::clone(metrics);

        self.tasks.spawn(async move {
            let stop = pool.stop.clone();
            let serving = pool.serve_connection(&upstream, questions, metrics);
            stop.run_until_cancelled(serving).await;
            drop(permit);
        });
    }

    /// Removes the upstreams that are not in `in_use`. A connection to a removed upstream closes
    /// after the replies to its queries in flight, or after a timeout.
    pub(super) fn retain_upstreams(&self, in_use: &BTreeSet<&Upstream>) {
        self.slots
            .lock()
            .retain(|upstream, _| in_use.contains(upstream));
    }

    /// Opens a connection and serves queries over the connection until its end.
    async fn serve_connection(
        &self,
        upstream: &Upstream,
        mut questions: mpsc::Receiver<PendingQuery>,
        metrics: Arc<UpstreamMetrics>,
    ) {
        let opened = match timeout(CONNECTING, self.open_stream(upstream, &metrics)).await {
            Ok(opened) => opened,
            Err(_) => Err(OpenError {
                failure: UpstreamFailure::Timeout,
                reason: "connecting timed out".to_owned(),
            }),
        };

        match opened {
            Ok(stream) => {
                self.record_opening(upstream, |slot| slot.record_opening(None));
                let _open = metrics.count_connection();
                let worker = ConnectionWorker::new(stream, questions, Arc::clone(&metrics));
                worker.run(|end| self.record_end(upstream, end)).await;
            }
            Err(error) => {
                let failure = error.failure;
                if failure == UpstreamFailure::Certificate {
                    metrics.record_trust(false);
                }
                self.record_opening(upstream, |slot| {
                    // No query may choose this connection any more.
                    questions.close();
                    slot.record_opening(Some(error))
                });
                fail_all(questions, failure);
            }
        }
    }

    async fn open_stream(
        &self,
        upstream: &Upstream,
        metrics: &UpstreamMetrics,
    ) -> Result<Box<dyn UpstreamStream>, OpenError> {
        let stream = connect_tcp(upstream).await.map_err(|error| OpenError {
            failure: UpstreamFailure::from_io(&error),
            reason: error.to_string(),
        })?;
        if upstream.protocol != UpstreamProtocol::Tls {
            return Ok(Box::new(stream));
        }

        // A failed handshake fails the query: the query is never sent in plain text.
        let stream = self.tls.handshake(upstream, stream, metrics).await?;
        metrics.record_trust(true);
        Ok(Box::new(stream))
    }

    /// Calls `record`, which records the outcome of opening a connection to the upstream. Logs the
    /// change that `record` returns.
    fn record_opening(
        &self,
        upstream: &Upstream,
        record: impl FnOnce(&mut UpstreamSlot) -> Option<TlsChange>,
    ) {
        let mut slots = self.slots.lock();
        let change = slots.get_mut(upstream).and_then(record);
        drop(slots);

        match change {
            Some(TlsChange::Failed {
                reason,
                is_queried: false,
            }) => {
                tracing::warn!(%upstream, reason, "TLS with upstream server failed, not querying it");
            }
            Some(TlsChange::Failed {
                reason,
                is_queried: true,
            }) => {
                tracing::warn!(%upstream, reason, "TLS with upstream server failed, using its open connections");
            }
            Some(TlsChange::Works) => {
                tracing::info!(%upstream, "TLS with upstream server works again");
            }
            None => {}
        }
    }

    fn record_end(&self, upstream: &Upstream, end: ConnectionEnd) {
        if let Some(slot) = self.slots.lock().get_mut(upstream) {
            slot.one_at_a_time = (slot.one_at_a_time || end.one_at_a_time) && !end.pipelined;
        }
    }
}

async fn connect_tcp(upstream: &Upstream) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(upstream.socket_addr()).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Fails all queries that wait for a connection that could not be opened.
fn fail_all(mut questions: mpsc::Receiver<PendingQuery>, failure: UpstreamFailure) {
    while let Ok(question) = questions.try_recv() {
        question.fail(failure);
    }
}

#[cfg(test)]
mod tests {
    use super::{OpenError, TlsChange, UpstreamConnection, UpstreamFailure, UpstreamSlot};

    #[test]
    fn tls_changes_are_logged_once() {
        use UpstreamFailure::{Certificate, Refused};
        let failed = |reason: &str| {
            Some(TlsChange::Failed {
                reason: reason.to_owned(),
                is_queried: false,
            })
        };
        let mut slot = UpstreamSlot::default();

        for (opening, change) in [
            (None, None),
            (Some((Certificate, "expired")), failed("expired")),
            (Some((Certificate, "expired")), None),
            (Some((Refused, "connection refused")), None),
            (Some((Certificate, "expired")), None),
            (Some((Certificate, "other name")), failed("other name")),
            (None, Some(TlsChange::Works)),
            (None, None),
        ] {
            let error = opening.map(|(failure, reason)| OpenError {
                failure,
                reason: reason.to_owned(),
            });
            assert_eq!(slot.record_opening(error), change, "{opening:?}");
        }
    }

    /// After a further connection could not be opened, the failure and the number of queries on the
    /// open connection decide whether the next query uses the open connection.
    #[test]
    fn use_of_open_connection_depends_on_failure() {
        use UpstreamFailure::{Certificate, Handshake, Refused};
        for (failure, queries_before, is_used, may_open) in [
            // The busy connection is used, because no further one may be opened.
            (Handshake, 9, true, false),
            (Handshake, 0, true, false),
            (Certificate, 0, false, false),
            (Refused, 0, true, false),
            (Refused, 9, false, true),
        ] {
            let mut slot = UpstreamSlot::default();
            let (connection, _questions) = UpstreamConnection::new(16);
            let _busy: Vec<_> = (0..queries_before)
                .map(|_| connection.occupy().unwrap())
                .collect();
            slot.connections.push(connection);
            slot.record_opening(Some(OpenError {
                failure,
                reason: String::new(),
            }));

            let chosen = slot.choose_connection(false).map(|open| open.is_some());
            let expected = match (is_used, may_open) {
                (true, _) => Ok(true),
                (false, true) => Ok(false),
                (false, false) => Err(failure),
            };
            assert_eq!(chosen, expected, "{failure:?}, {queries_before} queries");
        }
    }
}
