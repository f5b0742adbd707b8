//! Forwards queries to upstream DNS servers on behalf of clients.
//!
//! [`Forwarder::exchange`] takes one query and an ordered list of upstreams. Within
//! [`Limits::budget`] the result is an upstream's whole reply or an error. The caller follows
//! aliases and chooses the upstreams for a name. Replies are cached if there is a [`Cache`].
//!
//! # Choice of the reply
//!
//! As in kube-dns:
//! * Upstreams are queried in the configured order.
//! * Any reply of a reachable upstream is the answer. After NXDOMAIN, FORMERR or NOTIMP no other
//!   upstream is tried. After SERVFAIL the same upstream is queried once more.
//! * The next upstream is tried when the current one is unreachable, is silent, or sends data that
//!   is not a DNS message.
//! * The client's flags RD, AD and CD, DO and its end-to-end EDNS options are forwarded.
//!
//! Beyond kube-dns, for speed and safety:
//! * An upstream counts as silent after [`Limits::patience`] or an equal part of the budget; in
//!   kube-dns, after two seconds. A late reply is still accepted while the next upstream is queried
//!   (`attempts`).
//! * After a second SERVFAIL, or after REFUSED, the next upstream is tried. If no upstream has a
//!   better reply, the SERVFAIL or REFUSED is the answer: at once when no upstream is left to wait
//!   for.
//! * Dead upstreams are tried last until they answer a probe or a query (`health`).
//! * The rest of the question is our own (`query`): the name in lower case, an OPT record with our
//!   UDP size. Clients whose questions are the same to an upstream share one query, which is sent
//!   once (`inflight`), and one entry of the cache (`key`). Each client gets an answer with its own
//!   ID, case, EDNS and size (`answer`).
//! * Plain DNS upstreams are queried over UDP first, even for a client over TCP. A truncated reply
//!   is retried over TCP. If the retry fails or time is short, a client over UDP gets the truncated
//!   reply, with TC. For a client over TCP, the upstreams are then queried over TCP alone. A
//!   truncated reply over TCP without records counts as a failure.
//! * An upstream that does not know EDNS is queried without, for ten minutes (`exchange`).
//! * Upstreams over TCP and TLS are queried over persistent connections (`pool`). An upstream with
//!   an untrusted certificate fails and is never queried in plain text (`tls`).
//! * A reply counts only if address, port, ID and question match the query (RFC 5452). Source port
//!   and ID of a query are random. Other packets are counted and ignored.
//! * Upstreams that forward to this server are detected (`loops`), so that the caller can leave
//!   them out.
//!
//! # Bounds
//!
//! At most [`Limits::max_in_flight`] distinct queries are in flight. At most
//! [`Limits::max_in_flight_per_route`] of these go to one list of upstreams, so that a dead stub
//! domain does not block other queries. One client may use a share of both limits (`shares`). A
//! query beyond the client's share fails at once with [`ForwardError::Overloaded`]. Each query
//! holds one task and at most [`Limits::max_open`] sockets. At most [`Limits::max_joined`] callers
//! wait for an identical query of another caller.
//!
//! There are at most [`Limits::max_connections`] persistent connections. The number of connections
//! to each upstream, and the number of queries in flight on each connection, are bounded.
//!
//! A query or reply takes at most 64 KiB, and no more memory than its own size. The buffer of a
//! reply over TCP grows only as octets arrive. EDNS options above 4 KiB are not forwarded.
//! [`Limits::within_descriptors`] lowers all limits if few file descriptors are available. Every
//! task ends at the end of its query's budget, even if no caller waits any more.

mod answer;
mod attempts;
mod cache;
mod exchange;
mod failure;
mod health;
mod inflight;
mod key;
mod limits;
mod loops;
mod metrics;
mod options;
mod pool;
mod query;
mod reply;
mod tls;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dnsconfig::Upstream;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub use cache::{Cache, CacheLimits, CacheMetrics};
use exchange::Exchange;
pub use exchange::{Verdict, judge};
pub use failure::Failure;
pub use limits::Limits;
pub use loops::usable_upstreams;
pub use metrics::ForwardMetrics;
pub use query::Query;
pub use reply::Reply;
pub use tls::{Pin, TlsTrust};

use attempts::Attempts;
use health::Health;
use inflight::{Flight, InFlight, Outcome, QueryOwner, Role, Waiter};
use key::Key;
use loops::Loops;
use pool::Pool;
use tls::Tls;

use crate::wire::Transport;
use crate::wire::name::Name;

/// Shortest time between two log lines that name a client with too many queries.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Error of a forwarded query.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The list of upstreams is empty.
    #[error("no upstream servers")]
    NoUpstreams,
    /// No upstream gave a usable reply in time.
    #[error("no usable reply from any upstream: {}", listed(.0))]
    AllFailed(Arc<[(Upstream, Failure)]>),
    /// Too many queries are in flight already.
    #[error("too many queries in flight")]
    Overloaded,
    /// The query is our own loop probe and came back through an upstream; see
    /// [`Forwarder::find_loops`].
    #[error("an upstream forwarded our own query back to us")]
    Loop,
    /// The forwarder is shutting down.
    #[error("shutting down")]
    Stopped,
}

fn listed(failures: &[(Upstream, Failure)]) -> String {
    let failures: Vec<_> = failures
        .iter()
        .map(|(upstream, failure)| format!("{upstream}: {failure}"))
        .collect();
    failures.join(", ")
}

/// State shared by all queries.
#[derive(Debug)]
struct Shared {
    limits: Limits,
    metrics: ForwardMetrics,
    health: Health,
    pool: Pool,
    in_flight: InFlight,
    loops: Loops,
    cache: Option<Cache>,
    /// Time of the last log line that named a client whose query was rejected.
    warned: Mutex<Option<Instant>>,
    /// Owns every task; see [`Forwarder::shutdown`].
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Forwards queries to upstreams. The process has one forwarder, shared behind an `Arc`.
#[derive(Debug)]
pub struct Forwarder {
    shared: Arc<Shared>,
    _stop_on_drop: DropGuard,
}

impl Forwarder {
    /// Creates a forwarder that counts in `metrics`, trusts the CAs of the system and has no cache.
    pub fn new(limits: Limits, metrics: ForwardMetrics) -> Self {
        Self::with(limits, metrics, TlsTrust::default(), None)
    }

    /// Creates a forwarder that trusts TLS upstreams according to `trust`, and caches replies in
    /// `cache`.
    pub fn with(
        limits: Limits,
        metrics: ForwardMetrics,
        trust: TlsTrust,
        cache: Option<Cache>,
    ) -> Self {
        let limits = limits.clamped();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let shared = Shared {
            pool: Pool::new(limits.max_connections, Tls::new(trust), &tasks, &stop),
            health: Health::default(),
            in_flight: InFlight::new(&limits, metrics.clone()),
            loops: Loops::default(),
            cache,
            warned: Mutex::default(),
            limits,
            metrics,
            tasks,
            stop: stop.clone(),
        };
        Self {
            shared: Arc::new(shared),
            _stop_on_drop: stop.drop_guard(),
        }
    }

    /// Sends `query` to `upstreams`, the most preferred first, on behalf of `client`. Returns the
    /// reply of one upstream. `transport` is that of the client: over TCP, the client needs a whole
    /// reply.
    ///
    /// The result comes within [`Limits::budget`]. The future may be dropped at any time: other
    /// callers of an identical query still get their reply.
    pub async fn exchange(
        &self,
        query: Query,
        upstreams: Arc<[Upstream]>,
        client: IpAddr,
        transport: Transport,
    ) -> Result<Arc<Reply>, ForwardError> {
        let shared = &self.shared;
        let deadline = Instant::now() + shared.limits.budget;
        // Loop probes are recognized first: a loop must be noticed even if no upstream is left.
        if shared.loops.notice(query.name()) {
            return Err(ForwardError::Loop);
        }
        if upstreams.is_empty() {
            return Err(ForwardError::NoUpstreams);
        }

        let key = Arc::new(Key { query, upstreams });
        let reply = self.cached_or_asked(&key, client, transport).await?;
        // A client over UDP retries over TCP after a truncated reply. A client over TCP cannot.
        if transport == Transport::Tcp && reply.is_cut_by_udp() {
            return self.whole_reply(key, client, deadline).await;
        }
        Ok(reply)
    }

    async fn cached_or_asked(
        &self,
        key: &Arc<Key>,
        client: IpAddr,
        transport: Transport,
    ) -> Outcome {
        let flight = Flight {
            key: Arc::clone(key),
            over_tcp: false,
        };
        let Some(cache) = &self.shared.cache else {
            return self.ask(flight, client, transport)?.outcome().await;
        };

        let are_dead = || {
            self.shared
                .health
                .are_all_dead(&key.upstreams, Instant::now())
        };
        if let Some((reply, refresh)) = cache.reply(key, are_dead) {
            if refresh {
                drop(self.ask(flight, client, transport));
            }
            return Ok(reply);
        }

        let outcome = match self.ask(flight, client, transport) {
            Ok(waiter) => waiter.outcome().await,
            Err(error) => Err(error),
        };
        cache.instead_of(outcome, key)
    }

    /// Queries the upstreams over TCP alone, until `deadline` at most.
    async fn whole_reply(&self, key: Arc<Key>, client: IpAddr, deadline: Instant) -> Outcome {
        let flight = Flight {
            key: Arc::clone(&key),
            over_tcp: true,
        };
        let outcome = match self.ask(flight, client, Transport::Tcp) {
            Ok(waiter) => timeout_at(deadline, waiter.outcome())
                .await
                .unwrap_or_else(|_| Err(late())),
            Err(error) => Err(error),
        };
        match &self.shared.cache {
            Some(cache) => cache.instead_of(outcome, &key),
            None => outcome,
        }
    }

    /// Returns the cached reply, fresh or stale, if the caller cannot wait for
    /// [`exchange`](Self::exchange).
    pub(crate) fn kept(&self, query: Query, upstreams: Arc<[Upstream]>) -> Outcome {
        match &self.shared.cache {
            Some(cache) => cache.instead_of(Err(late()), &Arc::new(Key { query, upstreams })),
            None => Err(late()),
        }
    }

    /// Empties the cache. Call this after a change that may change the replies of upstreams.
    /// Replies to queries in flight are still cached.
    pub fn forget(&self) {
        if let Some(cache) = &self.shared.cache {
            cache.clear();
        }
    }

    /// Sends a query to the upstreams, or joins an identical query in flight. The query continues
    /// even if no caller waits any more.
    fn ask(
        &self,
        flight: Flight,
        client: IpAddr,
        transport: Transport,
    ) -> Result<Waiter, ForwardError> {
        match self.shared.in_flight.join(&flight, client) {
            Role::Overloaded => {
                self.overloaded(client);
                Err(ForwardError::Overloaded)
            }
            Role::Waiter(waiter) => Ok(waiter),
            Role::QueryOwner(owner, waiter) => {
                let shared = Arc::clone(&self.shared);
                self.shared
                    .tasks
                    .spawn(run_query(shared, flight, transport, owner));
                Ok(waiter)
            }
        }
    }

    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.shared.cache.as_ref()
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Counts a query of `client` that was rejected because too many queries are in flight. A
    /// forwarding loop may be the cause, so `question` is still checked for a loop probe.
    /// `question` begins with the query name.
    pub(crate) fn count_rejected(&self, question: &[u8], client: IpAddr) {
        self.shared.loops.notice(question);
        self.overloaded(client);
    }

    fn overloaded(&self, client: IpAddr) {
        self.shared.metrics.overloaded.inc();
        let mut warned = self.shared.warned.lock();
        if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(%client, "too many forwarded queries in flight, further queries of this client get SERVFAIL");
        }
    }

    /// Checks whether upstreams forward queries below their domains to this server. The result for
    /// an upstream is `None` if neither a reply nor the query itself came back. All upstreams are
    /// queried at once, within [`Limits::budget`] and without counting in the metrics. The caller's
    /// server must be listening, and must pass queries that come back to [`Forwarder::exchange`].
    ///
    /// The probe queries `<16 hexadecimal digits>.forward-loop.<domain>`, type TXT.
    pub async fn find_loops(&self, ways: &[(Upstream, Name)]) -> Vec<Option<bool>> {
        join_all(
            ways.iter()
                .map(|(upstream, domain)| self.leads_back(upstream, domain)),
        )
        .await
    }

    async fn leads_back(&self, upstream: &Upstream, domain: &Name) -> Option<bool> {
        let shared = &self.shared;
        let probe = shared.loops.probe(domain)?;
        let (query, metrics) = (probe.query(), shared.metrics.upstream(upstream));
        let exchange = Exchange {
            query: &query,
            upstream,
            over_tcp: false,
            // An upstream that rejects EDNS would not pass the query on.
            edns: false,
            deadline: Instant::now() + shared.limits.budget,
            limits: &shared.limits,
            health: &shared.health,
            pool: &shared.pool,
            metrics: &metrics,
        };
        // Only queries that came back to this server prove a loop; the content of the reply does
        // not matter.
        let replied = timeout_at(exchange.deadline, exchange.run_once())
            .await
            .is_ok_and(|reply| reply.is_ok());
        let came_back = probe.came_back();
        (came_back || replied).then_some(came_back)
    }

    /// Whether an upstream is failing: dead, or failed several times in a row. Failures older than
    /// a minute do not count.
    pub fn is_down(&self, upstream: &Upstream) -> bool {
        self.shared.health.is_down(upstream, Instant::now())
    }

    /// Closes the connections to upstreams that are not in `in_use`, and removes their certificate
    /// metrics.
    pub fn keep_only(&self, in_use: &BTreeSet<&Upstream>) {
        self.shared.pool.keep_only(in_use);
        self.shared.metrics.keep_only(in_use);
    }

    /// Aborts all queries in flight and waits for their tasks to end. The callers get
    /// [`ForwardError::Stopped`].
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

/// The error of a caller that cannot wait for the upstreams.
fn late() -> ForwardError {
    ForwardError::AllFailed([].into())
}

/// Queries the upstreams, and passes the outcome to all waiting callers. `client` is the transport
/// of the first.
async fn run_query(shared: Arc<Shared>, flight: Flight, client: Transport, owner: QueryOwner) {
    let deadline = Instant::now() + shared.limits.budget;
    let asking = Attempts::new(Arc::clone(&shared), flight.clone(), client, deadline).run();
    let outcome = shared
        .stop
        .run_until_cancelled(asking)
        .await
        .unwrap_or(Err(ForwardError::Stopped));
    if let Err(error @ ForwardError::AllFailed(_)) = &outcome {
        shared.metrics.failed.inc();
        tracing::debug!(%error, "forwarding failed");
    }

    let outcome = outcome.map(Arc::new);
    if let Some(cache) = &shared.cache {
        cache.settle(&flight.key, &outcome);
    }
    owner.finish(outcome);
}
