//! Forwards queries to upstream DNS servers on behalf of clients.
//!
//! [`Forwarder::exchange`] takes one query and an ordered list of upstreams. Within
//! [`ForwardLimits::budget`] it returns the reply of one upstream or an error. The caller follows
//! aliases and chooses the upstreams for a name. Replies are cached if there is a [`ReplyCache`].
//!
//! # Choice of the reply
//!
//! As in kube-dns:
//! * Upstreams are queried in the configured order.
//! * After NXDOMAIN, FORMERR or NOTIMP no other upstream is tried. After SERVFAIL the same upstream
//!   is queried once more.
//! * The next upstream is tried when the current one is unreachable, is silent, or sends data that
//!   is not a DNS message.
//! * The client's flags RD, AD, CD and DO and its end-to-end EDNS options are forwarded.
//!
//! Beyond kube-dns, for speed and safety:
//! * An upstream counts as silent after [`ForwardLimits::silence_timeout`]. With many upstreams,
//!   this time is shorter, because they share the remaining time of the query equally. In kube-dns,
//!   an upstream counts as silent after two seconds. A late reply is still accepted while the next
//!   upstream is queried (`attempts`).
//! * After a second SERVFAIL, or after REFUSED, the next upstream is tried. If no upstream has a
//!   better reply, the SERVFAIL or REFUSED is the answer. It is sent at once when no upstream is
//!   left to wait for.
//! * Upstreams that do not answer probes are dead. They are tried last until they answer a probe or
//!   a query (`health`). [`Forwarder::probe_idle`] probes upstreams that have given no usable
//!   answer for a while.
//! * The query to an upstream is not a copy of the client's query, except for the forwarded flags
//!   and options (`query`): its name is in lower case, and its OPT record has our UDP size. Clients
//!   whose queries would be the same for an upstream share one query, which is sent once
//!   (`in_flight`), and one entry of the cache (`key`). Each client gets an answer with its own ID,
//!   case, EDNS and size (`answer`).
//! * Plain DNS upstreams are queried over UDP first, even for a client over TCP. After a truncated
//!   reply, the query is sent over TCP, unless the upstream was recently silent over TCP. Without a
//!   reply over TCP, a client over UDP gets the truncated reply, with TC. For a client over TCP,
//!   the upstreams are then queried only over TCP. A reply over TCP that is truncated and has
//!   neither an error nor an answer counts as a failure.
//! * An upstream that does not know EDNS is queried without an OPT record (`exchange`). At most
//!   once in ten minutes, a probe finds out whether it knows EDNS now (`health`).
//! * Upstreams over TCP and TLS are queried over persistent connections (`pool`). An upstream with
//!   an untrusted certificate fails and is never queried in plain text (`tls`).
//! * A reply counts only if address, port, ID and question match the query (RFC 5452). An error
//!   response other than NXDOMAIN may lack the question. Source port and ID of a query are random.
//!   Packets with a wrong ID or question are counted; after too many of them, the query is sent
//!   over TCP.
//! * Upstreams that forward to this server are detected (`loops`), so that the caller can leave
//!   them out.
//!
//! # Bounds
//!
//! At most [`ForwardLimits::max_in_flight`] distinct queries are in flight. At most
//! [`ForwardLimits::max_in_flight_per_route`] of these go to one list of upstreams, so that a dead
//! stub domain does not block other queries. One client may use only its share of each limit
//! (`client_shares`). A query beyond the client's share fails at once with
//! [`ForwardError::Overloaded`]. Each query holds one task, and keeps at most
//! [`ForwardLimits::max_open`] sockets open. A caller can wait for an identical query of another
//! caller. In total, at most [`ForwardLimits::max_joined`] callers wait in this way.
//!
//! There are at most [`ForwardLimits::max_connections`] persistent connections. The number of
//! connections to each upstream, and the number of queries in flight on each connection, are
//! bounded.
//!
//! A query or reply has at most 64 KiB. The buffer of a reply over TCP grows only as octets arrive.
//! If the end-to-end EDNS options of a query together exceed 4 KiB, none of them is forwarded.
//!
//! [`ForwardLimits::within_descriptors`] lowers the limits on queries and on connections if few
//! file descriptors are available. The task of a query ends when the query's budget ends, or
//! earlier with the outcome. The task continues even if no caller waits any more.

mod answer;
mod attempts;
mod cache;
mod exchange;
mod failure;
mod health;
mod in_flight;
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

use futures::stream::{self, StreamExt};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use wire::Upstream;

pub use cache::{CacheLimits, CacheMetrics, ReplyCache};
pub(crate) use exchange::ReplyReceiver;
pub use exchange::{ReplyCheck, check_reply};
use exchange::{UdpSockets, UpstreamExchange};
pub use failure::UpstreamFailure;
pub use limits::ForwardLimits;
pub use loops::is_own_address;
pub use metrics::ForwardMetrics;
pub use query::UpstreamQuery;
pub use reply::UpstreamReply;
pub use tls::{KeyPin, TlsTrust};

use attempts::UpstreamAttempts;
use health::UpstreamHealth;
use in_flight::{
    ForwardOutcome, InFlightKey, InFlightQueries, JoinOutcome, OutcomeWaiter, QueryOwner,
};
use key::{QueryKey, UpstreamList};
use loops::{LoopProbes, MAX_LOOP_PROBES};
use pool::ConnectionPool;
use tls::TlsClient;
use wire::{Transport, name::Name};

use crate::client_warnings::ClientWarnings;
use crate::inline_tasks;

/// Error of a forwarded query.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The list of upstreams is empty.
    #[error("no upstream servers")]
    NoUpstreams,
    /// No upstream gave a usable reply in time. The list of failures is empty if the caller had no
    /// time left to wait for the upstreams.
    #[error("no usable reply from any upstream: {}", failure_list(.0))]
    AllFailed(Arc<[(Upstream, UpstreamFailure)]>),
    /// A limit on queries in flight, or on callers that wait for them, has been reached.
    #[error("too many queries in flight")]
    Overloaded,
    /// The forwarder is shutting down.
    #[error("shutting down")]
    Stopped,
}

fn failure_list(failures: &[(Upstream, UpstreamFailure)]) -> String {
    let failures: Vec<_> = failures
        .iter()
        .map(|(upstream, failure)| format!("{upstream}: {failure}"))
        .collect();
    failures.join(", ")
}

/// State shared by all queries.
#[derive(Debug)]
struct ForwarderState {
    limits: ForwardLimits,
    metrics: ForwardMetrics,
    health: UpstreamHealth,
    pool: ConnectionPool,
    sockets: UdpSockets,
    in_flight: InFlightQueries,
    loops: LoopProbes,
    cache: Option<ReplyCache>,
    /// Limits the log lines about clients whose queries were rejected.
    client_warnings: ClientWarnings,
    /// Owns every task; see [`Forwarder::shutdown`].
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Forwards queries to upstreams. The process has one forwarder, shared behind an `Arc`.
#[derive(Debug)]
pub struct Forwarder {
    state: Arc<ForwarderState>,
    _stop_on_drop: DropGuard,
}

impl Forwarder {
    /// Creates a forwarder that counts in `metrics`, trusts the CAs of the system and has no cache.
    pub fn new(limits: ForwardLimits, metrics: ForwardMetrics) -> Self {
        Self::with_trust_and_cache(limits, metrics, TlsTrust::default(), None)
    }

    /// Creates a forwarder that trusts TLS upstreams according to `trust`, and caches replies in
    /// `cache`.
    pub fn with_trust_and_cache(
        limits: ForwardLimits,
        metrics: ForwardMetrics,
        trust: TlsTrust,
        cache: Option<ReplyCache>,
    ) -> Self {
        let limits = limits.clamped();
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let tls = TlsClient::new(trust);

        let state = ForwarderState {
            pool: ConnectionPool::new(limits.max_connections, tls, &tasks, &stop),
            sockets: UdpSockets::default(),
            health: UpstreamHealth::default(),
            in_flight: InFlightQueries::new(&limits, metrics.clone()),
            loops: LoopProbes::default(),
            cache,
            client_warnings: ClientWarnings::default(),
            limits,
            metrics,
            tasks,
            stop: stop.clone(),
        };
        Self {
            state: Arc::new(state),
            _stop_on_drop: stop.drop_guard(),
        }
    }

    /// Sends `query` to `upstreams`, the most preferred first, on behalf of `client`. Returns the
    /// reply of one upstream, or a cached reply. `transport` is the client's transport: a client
    /// over TCP needs a whole reply.
    ///
    /// The result comes within [`ForwardLimits::budget`]. The future may be dropped at any time:
    /// other callers of an identical query still get their reply.
    pub async fn exchange(
        &self,
        query: UpstreamQuery,
        upstreams: Arc<[Upstream]>,
        client: IpAddr,
        transport: Transport,
    ) -> Result<Arc<UpstreamReply>, ForwardError> {
        let deadline = Instant::now() + self.state.limits.budget;
        if upstreams.is_empty() {
            return Err(ForwardError::NoUpstreams);
        }

        let key = Arc::new(QueryKey { query, upstreams });
        let reply = self
            .reply_from_cache_or_upstreams(&key, client, transport)
            .await?;

        // A client over UDP retries over TCP after a truncated reply. A client over TCP cannot.
        if transport == Transport::Tcp && reply.is_cut_by_udp() {
            return self.whole_reply(key, client, deadline).await;
        }
        Ok(reply)
    }

    async fn reply_from_cache_or_upstreams(
        &self,
        key: &Arc<QueryKey>,
        client: IpAddr,
        transport: Transport,
    ) -> ForwardOutcome {
        let query = InFlightKey {
            key: Arc::clone(key),
            over_tcp: false,
        };
        let Some(cache) = &self.state.cache else {
            let waiter = self.join_or_start_query(query, client, transport)?;
            return waiter.outcome().await;
        };

        let health = &self.state.health;
        let found = cache.find_reply(key, || health.are_all_dead(&key.upstreams, Instant::now()));
        if let Some(found) = found {
            // Nobody waits for the refresh: its reply goes to the cache.
            if found.refresh {
                drop(self.join_or_start_query(query, client, transport));
            }
            return Ok(found.reply);
        }

        let outcome = match self.join_or_start_query(query, client, transport) {
            Ok(waiter) => waiter.outcome().await,
            Err(error) => Err(error),
        };
        cache.replace_failure(outcome, key)
    }

    /// Queries the upstreams only over TCP, and waits for the outcome until `deadline` at most.
    async fn whole_reply(
        &self,
        key: Arc<QueryKey>,
        client: IpAddr,
        deadline: Instant,
    ) -> ForwardOutcome {
        let query = InFlightKey {
            key: Arc::clone(&key),
            over_tcp: true,
        };
        // The query over UDP has used a part of the budget.
        let outcome = match self.join_or_start_query(query, client, Transport::Tcp) {
            Ok(waiter) => timeout_at(deadline, waiter.outcome())
                .await
                .unwrap_or_else(|_| Err(out_of_time())),
            Err(error) => Err(error),
        };

        match &self.state.cache {
            Some(cache) => cache.replace_failure(outcome, &key),
            None => outcome,
        }
    }

    /// Returns the cached reply, fresh or stale, for a caller that cannot wait for
    /// [`exchange`](Self::exchange).
    pub(crate) fn cached_reply(
        &self,
        query: UpstreamQuery,
        upstreams: Arc<[Upstream]>,
    ) -> ForwardOutcome {
        let Some(cache) = &self.state.cache else {
            return Err(out_of_time());
        };
        let key = Arc::new(QueryKey { query, upstreams });
        cache.replace_failure(Err(out_of_time()), &key)
    }

    /// Empties the cache. Call this after a change that may change the replies of upstreams. The
    /// reply to a query that is in flight during this call is cached when it arrives.
    pub fn clear_cache(&self) {
        if let Some(cache) = &self.state.cache {
            cache.clear();
        }
    }

    /// Joins an identical query in flight, or sends the query to the upstreams. The query continues
    /// even if no caller waits any more.
    fn join_or_start_query(
        &self,
        query: InFlightKey,
        client: IpAddr,
        transport: Transport,
    ) -> Result<OutcomeWaiter, ForwardError> {
        match self.state.in_flight.join(&query, client) {
            JoinOutcome::Overloaded => {
                self.report_overload(client);
                Err(ForwardError::Overloaded)
            }
            JoinOutcome::Joined(waiter) => Ok(waiter),
            JoinOutcome::Started(owner, waiter) => {
                // An identical query may have ended after the caller searched the cache.
                let cache = self.state.cache.as_ref();
                if let Some(reply) = cache.and_then(|cache| cache.fresh_reply(&query.key)) {
                    owner.finish(Ok(reply));
                    return Ok(waiter);
                }

                // A separate task sends the query, so the query continues if this caller stops
                // waiting.
                let state = Arc::clone(&self.state);
                let running = run_query(state, query, transport, owner);
                inline_tasks::spawn(&self.state.tasks, &Handle::current(), running);
                Ok(waiter)
            }
        }
    }

    pub(crate) fn cache(&self) -> Option<&ReplyCache> {
        self.state.cache.as_ref()
    }

    /// The limits in force.
    pub fn limits(&self) -> &ForwardLimits {
        &self.state.limits
    }

    /// Counts and logs a query of `client` that was rejected because too many queries are in
    /// flight.
    pub(crate) fn report_overload(&self, client: IpAddr) {
        self.state.metrics.overloaded.inc();

        let now = Instant::now().into_std();
        if self.state.client_warnings.take_turn(now) {
            tracing::warn!(%client, "too many queries wait for upstreams; further queries of this client that need an upstream get SERVFAIL");
        }
    }

    /// Checks whether upstreams forward queries to this server. Each of `ways` is an upstream and a
    /// domain for which the upstream is used; the upstream is queried for a name below the domain.
    /// A result is true if the query came back to this server, false if there was only a reply, and
    /// `None` if there was neither. At most 64 upstreams are queried at once, each within
    /// [`ForwardLimits::budget`]. The metrics do not count these queries. The caller's server must
    /// be listening, and must pass the name of every query that it receives to
    /// [`record_returned_probe`](Self::record_returned_probe).
    ///
    /// The probe queries `<16 hexadecimal digits>.forward-loop.<domain>`, type TXT.
    pub async fn find_loops(&self, ways: Vec<(Upstream, Name)>) -> Vec<Option<bool>> {
        let probes = ways
            .into_iter()
            .map(|(upstream, domain)| self.is_in_loop(upstream, domain));
        stream::iter(probes)
            .buffered(MAX_LOOP_PROBES)
            .collect()
            .await
    }

    /// Returns whether a client's query for `name` (wire format) is a probe of
    /// [`find_loops`](Self::find_loops) that came back, and if so, records the loop. Check every
    /// query before anything else can answer it: otherwise a loop goes unnoticed.
    pub fn record_returned_probe(&self, name: &[u8]) -> bool {
        self.state.loops.record_return(name)
    }

    async fn is_in_loop(&self, upstream: Upstream, domain: Name) -> Option<bool> {
        let state = &self.state;
        let probe = state.loops.start_probe(&domain)?;
        let query = probe.query();
        let metrics = state.metrics.upstream(&upstream);
        // The probe is sent like a client's query. But `run_once` does not count it in the metrics,
        // and does not change the health of the upstream.
        let exchange = UpstreamExchange {
            query: &query,
            upstream: &upstream,
            over_tcp: false,
            // An upstream that rejects EDNS would not pass the query on.
            edns: false,
            deadline: Instant::now() + state.limits.budget,
            limits: &state.limits,
            health: &state.health,
            pool: &state.pool,
            sockets: &state.sockets,
            metrics: &metrics,
        };

        // Only a query that came back to this server proves a loop; the content of the reply does
        // not matter.
        let replied = exchange.run_once().await.is_ok();
        let came_back = probe.came_back();
        (came_back || replied).then_some(came_back)
    }

    /// Probes the upstreams that have given no usable answer (NOERROR or NXDOMAIN) for `idle`.
    /// Between two such probes of an upstream, at least `idle` passes, unless the upstream is dead
    /// or answers every query with SERVFAIL or REFUSED. Every upstream is probed in a separate
    /// task, and has at most one probe at a time. The queries of the probes form a cycle: first the
    /// last query that got a usable answer, if there is one, then the queries given with the
    /// upstream. Each probe begins one query further in the cycle than the previous probe. If this
    /// query fails, or gets SERVFAIL or REFUSED, the probe also sends the query that follows in the
    /// cycle. After a usable answer, the next probe begins at the start of the cycle.
    pub fn probe_idle(&self, upstreams: &[(Upstream, Vec<UpstreamQuery>)], idle: Duration) {
        let now = Instant::now();
        for (upstream, queries) in upstreams {
            let questions = probe_questions(upstream, queries);
            let health = &self.state.health;
            let questions = health.begin_idle_probe(upstream, &questions, idle, now);
            if !questions.is_empty() {
                attempts::spawn_probe(&self.state, upstream, questions);
            }
        }
    }

    /// Whether an upstream is down: it is dead, or it answers every query with SERVFAIL or REFUSED,
    /// or it failed several times in a row. An upstream whose last failure is more than a minute
    /// ago is not down.
    pub fn is_down(&self, upstream: &Upstream) -> bool {
        self.state.health.is_down(upstream, Instant::now())
    }

    /// Closes the connections to upstreams that are not in `in_use`, and removes their certificate
    /// metrics.
    pub fn retain_upstreams(&self, in_use: &BTreeSet<&Upstream>) {
        self.state.pool.retain_upstreams(in_use);
        self.state.metrics.retain_upstreams(in_use);
    }

    /// Aborts all queries in flight and waits for their tasks to end. The callers get
    /// [`ForwardError::Stopped`].
    pub async fn shutdown(&self) {
        self.state.stop.cancel();
        self.state.tasks.close();
        self.state.tasks.wait().await;
    }
}

fn probe_questions(upstream: &Upstream, queries: &[UpstreamQuery]) -> Vec<Arc<QueryKey>> {
    let upstreams: UpstreamList = [upstream.clone()].into();
    let keys = queries.iter().map(|query| QueryKey {
        query: query.clone(),
        upstreams: Arc::clone(&upstreams),
    });
    keys.map(Arc::new).collect()
}

/// The error of a caller that has no time left to wait for the upstreams.
fn out_of_time() -> ForwardError {
    ForwardError::AllFailed([].into())
}

/// Queries the upstreams, and passes the outcome to all waiting callers. `client` is the transport
/// of the first caller.
async fn run_query(
    state: Arc<ForwarderState>,
    query: InFlightKey,
    client: Transport,
    owner: QueryOwner,
) {
    let deadline = Instant::now() + state.limits.budget;
    let attempts = UpstreamAttempts::new(Arc::clone(&state), query.clone(), client, deadline);
    let outcome = state
        .stop
        .run_until_cancelled(attempts.run())
        .await
        .unwrap_or(Err(ForwardError::Stopped));
    if let Err(error @ ForwardError::AllFailed(_)) = &outcome {
        state.metrics.failed.inc();
        tracing::debug!(%error, "forwarding failed");
    }

    // The reply is cached before the callers get the outcome: a caller that asks again after the
    // outcome must find the reply in the cache.
    let outcome = outcome.map(Arc::new);
    if let Some(cache) = &state.cache {
        cache.record_outcome(&query.key, &outcome);
    }
    owner.finish(outcome);
}
