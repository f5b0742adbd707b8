//! Connections to upstreams over TCP and TLS, kept while they are used.
//!
//! A question goes to a connection that has few others under way, else to a new one, else to the least busy one. An upstream
//! that closes its connections after one reply gets one question a connection. A connection is opened by a task of its
//! own, while questions already wait in it: whoever gives up waiting spoils nothing for the others.

mod connection;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dnsconfig::{Protocol, Upstream};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(super) use self::connection::{AskError, Connection};
use self::connection::{End, Question, Stream, Worker};
use super::Failure;
use super::metrics::UpstreamMetrics;
use super::tls::Tls;

/// Questions under way in one connection, at most.
const DEPTH: usize = 256;
/// Questions under way in every connection before another is opened.
const FEW: usize = 8;
/// Connections to one upstream.
const MAX_CONNECTIONS: usize = 4;
/// The same where each serves one question.
const MAX_OF_ONE_QUESTION: usize = 16;
/// Upstreams remembered; beyond that those without a connection are forgotten.
const MAX_REMEMBERED: usize = 256;
/// Connecting may take so long, with the handshake.
const CONNECTING: Duration = Duration::from_secs(3);
/// So long an upstream is not connected to again whose certificate or handshake was wrong.
const PAUSE: Duration = Duration::from_secs(2);

/// The memory of an upstream.
#[derive(Debug, Default)]
struct Slot {
    connections: Vec<Connection>,
    one_at_a_time: bool,
    /// Until when it is not connected to, and why.
    refused: Option<(Instant, Failure)>,
    /// Its fault as logged last.
    complaint: Option<String>,
}

impl Slot {
    /// The connection for a question; none where a new one should be opened.
    fn choose(&mut self, fresh: bool) -> Option<&Connection> {
        self.connections.retain(Connection::is_open);
        let (few, most) = if self.one_at_a_time { (1, MAX_OF_ONE_QUESTION) } else { (FEW, MAX_CONNECTIONS) };
        let full = self.connections.len() >= most;
        let least = self.connections.iter().min_by_key(|connection| connection.load())?;
        (full || !fresh && least.load() < few).then_some(least)
    }
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(super) struct OpenError {
    pub(super) failure: Failure,
    pub(super) reason: String,
}

/// The connections to all upstreams. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    slots: Arc<Mutex<HashMap<Upstream, Slot>>>,
    tls: Arc<Tls>,
    /// One for each connection there may be.
    places: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Pool {
    /// A pool of at most so many connections, whose tasks are among `tasks` and end with `stop`.
    pub(super) fn new(
        max_connections: usize,
        tls: Tls,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let places = Arc::new(Semaphore::new(max_connections));
        let (tasks, stop) = (tasks.clone(), stop.clone());
        Self { slots: Arc::default(), tls: Arc::new(tls), places, tasks, stop }
    }

    /// A connection to ask over, `fresh` if it should not be one that was there before.
    pub(super) fn connection(
        &self,
        upstream: &Upstream,
        metrics: &Arc<UpstreamMetrics>,
        fresh: bool,
    ) -> Result<Connection, Failure> {
        let mut slots = self.lock();
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
            stop.run_until_cancelled(pool.serve(&upstream, questions, metrics)).await;
            drop(place);
        });
        Ok(connection)
    }

    /// Closes connections to upstreams that are not in use any more, once what was asked over them is answered.
    pub(super) fn keep_only(&self, in_use: &BTreeSet<&Upstream>) {
        self.lock().retain(|upstream, _| in_use.contains(upstream));
    }

    /// Opens a connection and works until it ends.
    async fn serve(
        &self,
        upstream: &Upstream,
        questions: mpsc::Receiver<Question>,
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
            let stream = TcpStream::connect(upstream.socket_addr()).await.and_then(|stream| {
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
        let late =
            |_| OpenError { failure: Failure::Timeout, reason: "connecting takes too long".to_owned() };
        timeout(CONNECTING, opening).await.map_err(late)?
    }

    /// Takes note of how opening a connection went. One that fails for what the upstream says of itself is not tried again
    /// at once, and is logged when that changes.
    fn note(&self, upstream: &Upstream, error: Option<OpenError>) {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(upstream) else { return };
        let told = error.filter(|error| matches!(error.failure, Failure::Certificate | Failure::Handshake));
        slot.refused = told.as_ref().map(|error| (Instant::now() + PAUSE, error.failure));
        let complaint = told.map(|error| error.reason);
        if let Some(reason) = complaint.as_ref().filter(|_| complaint != slot.complaint) {
            tracing::warn!(%upstream, reason, "TLS with an upstream server failed, it is not asked");
        } else if complaint.is_none() && slot.complaint.is_some() {
            tracing::info!(%upstream, "TLS with an upstream server works again");
        }
        slot.complaint = complaint;
    }

    fn ended(&self, upstream: &Upstream, end: End) {
        if let Some(slot) = self.lock().get_mut(upstream) {
            slot.one_at_a_time = (slot.one_at_a_time || end.one_at_a_time) && !end.pipelined;
        }
    }

    /// No code that holds the lock can panic half way through a change.
    fn lock(&self) -> MutexGuard<'_, HashMap<Upstream, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells everybody who waits for a connection that there is none.
fn fail_all(mut questions: mpsc::Receiver<Question>, failure: Failure) {
    questions.close();
    while let Ok(question) = questions.try_recv() {
        question.fail(failure);
    }
}
