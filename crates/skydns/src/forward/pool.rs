//! Pool of persistent connections to upstreams over TCP and TLS.
//!
//! A query uses a connection with few queries in flight. If there is none, a new connection is
//! opened; at the limit, the least busy connection is used. If an upstream closes its connections
//! after one reply, each query gets a connection of its own. A separate task opens a connection
//! while queries already wait for the connection: a caller that stops waiting does not affect the
//! others.

mod connection;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dnsconfig::{Protocol, Upstream};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(super) use self::connection::{AskError, Connection};
use self::connection::{Closed, PendingQuery, Stream, Worker};
use super::failure::{Failure, OpenError};
use super::metrics::UpstreamMetrics;
use super::tls::Tls;

/// Maximum number of queries in flight on one connection.
const DEPTH: usize = 256;
/// Number of queries in flight on each connection at which another connection is opened.
const FEW: usize = 8;
/// Maximum number of connections to one upstream.
const MAX_CONNECTIONS: usize = 4;
/// Maximum number of connections to an upstream that closes a connection after one reply.
const MAX_SINGLE_QUERY_CONNECTIONS: usize = 16;
/// Maximum number of upstreams with a state. Beyond this, states without an open connection are
/// removed.
const MAX_REMEMBERED: usize = 256;
/// Timeout for connecting, including the TLS handshake.
const CONNECTING: Duration = Duration::from_secs(3);
/// Pause before reconnecting to an upstream whose certificate or handshake failed.
const PAUSE: Duration = Duration::from_secs(2);

/// State of one upstream.
#[derive(Debug, Default)]
struct Slot {
    connections: Vec<Connection>,
    one_at_a_time: bool,
    /// Time before which no connection is opened, and the failure that caused the pause.
    refused: Option<(Instant, Failure)>,
    /// Reason of the last TLS failure in the log; `None` after a success.
    complaint: Option<String>,
}

impl Slot {
    /// Returns the connection for a query; `None` if a new connection should be opened. With
    /// `fresh`, a new connection is preferred.
    fn choose(&mut self, fresh: bool) -> Option<&Connection> {
        self.connections.retain(Connection::is_open);
        let (few, most) = if self.one_at_a_time {
            (1, MAX_SINGLE_QUERY_CONNECTIONS)
        } else {
            (FEW, MAX_CONNECTIONS)
        };
        let full = self.connections.len() >= most;
        let least = self
            .connections
            .iter()
            .min_by_key(|connection| connection.load())?;
        (full || !fresh && least.load() < few).then_some(least)
    }
}

/// The connections to all upstreams. Clones share the connections.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    slots: Arc<Mutex<HashMap<Upstream, Slot>>>,
    tls: Arc<Tls>,
    /// One permit for each further connection that may be opened.
    places: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Pool {
    /// Creates a pool of at most `max_connections` connections. The tasks of the connections run in
    /// `tasks` and end with `stop`.
    pub(super) fn new(
        max_connections: usize,
        tls: Tls,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let places = Arc::new(Semaphore::new(max_connections));
        let (tasks, stop) = (tasks.clone(), stop.clone());
        Self {
            slots: Arc::default(),
            tls: Arc::new(tls),
            places,
            tasks,
            stop,
        }
    }

    /// Returns a connection for a query, perhaps one that is still opening. With `fresh`, a new
    /// connection is preferred.
    pub(super) fn connection(
        &self,
        upstream: &Upstream,
        metrics: &Arc<UpstreamMetrics>,
        fresh: bool,
    ) -> Result<Connection, Failure> {
        let mut slots = self.slots.lock();
        if slots.len() >= MAX_REMEMBERED && !slots.contains_key(upstream) {
            slots.retain(|_, slot| slot.connections.iter().any(Connection::is_open));
        }
        let slot = slots.entry(upstream.clone()).or_default();
        if let Some((until, failure)) = slot.refused
            && Instant::now() < until
        {
            return Err(failure);
        }
        if let Some(connection) = slot.choose(fresh) {
            return Ok(connection.clone());
        }
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return slot.connections.first().cloned().ok_or(Failure::NoSocket);
        };
        let (connection, questions) = Connection::new(if slot.one_at_a_time { 1 } else { DEPTH });
        slot.connections.push(connection.clone());
        let (pool, upstream, metrics) = (self.clone(), upstream.clone(), Arc::clone(metrics));
        self.tasks.spawn(async move {
            let stop = pool.stop.clone();
            stop.run_until_cancelled(pool.serve(&upstream, questions, metrics))
                .await;
            drop(place);
        });
        Ok(connection)
    }

    /// Closes the connections to upstreams that are not in `in_use`, after the replies to their
    /// queries in flight.
    pub(super) fn keep_only(&self, in_use: &BTreeSet<&Upstream>) {
        self.slots
            .lock()
            .retain(|upstream, _| in_use.contains(upstream));
    }

    /// Opens a connection and serves queries over the connection until its end.
    async fn serve(
        &self,
        upstream: &Upstream,
        questions: mpsc::Receiver<PendingQuery>,
        metrics: Arc<UpstreamMetrics>,
    ) {
        match self.open(upstream, &metrics).await {
            Ok(stream) => {
                self.note(upstream, None);
                let _open = metrics.connected();
                let worker = Worker::new(stream, questions, Arc::clone(&metrics));
                worker.run(|end| self.ended(upstream, end)).await;
            }
            Err(error) => {
                let failure = error.failure;
                if failure == Failure::Certificate {
                    metrics.trusted(false);
                }
                self.note(upstream, Some(error));
                fail_all(questions, failure);
            }
        }
    }

    async fn open(
        &self,
        upstream: &Upstream,
        metrics: &UpstreamMetrics,
    ) -> Result<Box<dyn Stream>, OpenError> {
        let opening = async {
            let stream = TcpStream::connect(upstream.socket_addr())
                .await
                .and_then(|stream| {
                    stream.set_nodelay(true)?;
                    Ok(stream)
                });
            let stream = stream.map_err(|error| OpenError {
                failure: Failure::from_connecting(&error),
                reason: error.to_string(),
            })?;
            if upstream.protocol == Protocol::Tls {
                let stream = self.tls.handshake(upstream, stream, metrics).await?;
                metrics.trusted(true);
                return Ok(Box::new(stream) as Box<dyn Stream>);
            }
            Ok(Box::new(stream) as Box<dyn Stream>)
        };
        let late = |_| OpenError {
            failure: Failure::Timeout,
            reason: "connecting timed out".to_owned(),
        };
        timeout(CONNECTING, opening).await.map_err(late)?
    }

    /// Records the outcome of opening a connection. After a certificate or handshake failure the
    /// upstream is not retried for [`PAUSE`]. A log line reports each change of the reason.
    fn note(&self, upstream: &Upstream, error: Option<OpenError>) {
        let mut slots = self.slots.lock();
        let Some(slot) = slots.get_mut(upstream) else {
            return;
        };
        let told = error
            .filter(|error| matches!(error.failure, Failure::Certificate | Failure::Handshake));
        slot.refused = told
            .as_ref()
            .map(|error| (Instant::now() + PAUSE, error.failure));
        let complaint = told.map(|error| error.reason);
        if let Some(reason) = complaint.as_ref().filter(|_| complaint != slot.complaint) {
            tracing::warn!(%upstream, reason, "TLS with upstream server failed, not querying it");
        } else if complaint.is_none() && slot.complaint.is_some() {
            tracing::info!(%upstream, "TLS with upstream server works again");
        }
        slot.complaint = complaint;
    }

    fn ended(&self, upstream: &Upstream, end: Closed) {
        if let Some(slot) = self.slots.lock().get_mut(upstream) {
            slot.one_at_a_time = (slot.one_at_a_time || end.one_at_a_time) && !end.pipelined;
        }
    }
}

/// Fails all queries that wait for a connection.
fn fail_all(mut questions: mpsc::Receiver<PendingQuery>, failure: Failure) {
    questions.close();
    while let Ok(question) = questions.try_recv() {
        question.fail(failure);
    }
}
