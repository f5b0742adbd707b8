//! Asking upstream DNS servers on behalf of clients.
//!
//! [`Forwarder::exchange`] takes one question and an ordered list of upstreams and gives, within
//! [`Limits::budget`], an upstream's whole reply or an error, whatever the upstreams do. It neither chases aliases nor knows
//! whose zone a name is in; the caller does. Replies are kept where there is a [`Cache`].
//!
//! # Which upstream's answer it is
//!
//! As the reference does:
//! * Upstreams are asked in the order in which they are configured.
//! * Whatever a reachable upstream says is the answer: NXDOMAIN, FORMERR, NOTIMP do not lead to the next one. After
//!   SERVFAIL the same upstream is asked once more.
//! * The next upstream's turn comes when one cannot be reached, is silent, or sends what is no DNS message.
//! * The client's flags RD, AD, CD and its OPT record are forwarded; of the options those that are not of one hop.
//!
//! Beyond the reference, for speed and safety:
//! * An upstream is silent after [`Limits::patience`], or an equal part of the budget, not after two seconds. It is
//!   listened to further while the next is asked (`turns`).
//! * SERVFAIL (the second one) and REFUSED lead to the next upstream; they are the answer where no other has one.
//! * Upstreams that were found dead come last until they answer a probe (`health`).
//! * Every question to an upstream in plain DNS goes out over UDP first, whatever the client used. Truncated replies lead to a retry over TCP; if that
//!   fails, or time is short, a client that asked over UDP gets the truncated reply, with TC. A reply over TCP that is
//!   truncated to nothing is none.
//! * Upstreams over TCP and TLS are asked over connections that are kept (`pool`). One whose certificate is wrong fails; it
//!   is never asked in plain text (`tls`).
//! * Replies count only if they come from the address asked, to the random port the query left from, with its random
//!   ID and its question (RFC 5452). Others are counted and ignored.
//! * Identical questions in flight to the same upstreams are asked once (`inflight`).
//! * Upstreams that lead back to ourselves can be found (`loops`), so that they are not used.
//!
//! # Bounds
//!
//! At most [`Limits::max_in_flight`] distinct questions are under way, at most [`Limits::max_in_flight_per_route`] of
//! them to one list of upstreams, so that a dead stub domain does not shut out the others. Of both a client takes no more
//! than it leaves to the others (`shares`); who is turned down gets [`ForwardError::Overloaded`] at once. Each question
//! holds one task and at most [`Limits::max_open`] sockets. At most [`Limits::max_joined`] askers wait for somebody else's
//! identical question.
//!
//! There are at most [`Limits::max_connections`] kept connections, and a bounded number to each upstream with a bounded
//! number of questions under way.
//!
//! Queries and replies are held in their own size, at most 64 KiB each, and a reply over TCP grows only as it arrives;
//! EDNS options above 4 KiB are not forwarded. [`Limits::within_descriptors`] makes less of everything where sockets are
//! few. Every task ends by the end of its question's budget, whether or not anybody still waits for it.

mod cache;
mod exchange;
mod health;
mod inflight;
mod limits;
mod loops;
mod metrics;
mod options;
mod pool;
mod query;
mod tls;
mod turns;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dnsconfig::Upstream;
use futures::future::join_all;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub use cache::{Cache, CacheLimits, CacheMetrics};
use exchange::Exchange;
pub use exchange::{Failure, Verdict, judge};
pub use limits::Limits;
pub use loops::usable_upstreams;
pub use metrics::ForwardMetrics;
pub(crate) use query::FORWARDED_FLAGS;
pub use query::{Query, Reply};
pub use tls::{Pin, TlsTrust};

use health::Health;
use inflight::{InFlight, Join, Key, Leader, Outcome, Waiter};
use loops::Loops;
use pool::Pool;
use tls::Tls;
use turns::Turns;

use crate::wire::name::Name;

/// The log does not name clients that ask for too much more often than this.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Why there is no reply from an upstream.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The list of upstreams is empty.
    #[error("no upstream servers")]
    NoUpstreams,
    /// None of the upstreams gave a usable reply in time.
    #[error("no usable reply from any upstream: {}", listed(.0))]
    AllFailed(Arc<[(Upstream, Failure)]>),
    /// Too many questions are under way already.
    #[error("too many questions in flight")]
    Overloaded,
    /// The question is one of our own that came back through an upstream; see [`Forwarder::find_loops`].
    #[error("an upstream asks us for what we asked it")]
    Loop,
    /// The forwarder is shutting down.
    #[error("shutting down")]
    Stopped,
}

fn listed(failures: &[(Upstream, Failure)]) -> String {
    let failures: Vec<_> =
        failures.iter().map(|(upstream, failure)| format!("{upstream}: {failure}")).collect();
    failures.join(", ")
}

/// State that all questions share.
#[derive(Debug)]
struct Shared {
    limits: Limits,
    metrics: ForwardMetrics,
    health: Health,
    pool: Pool,
    in_flight: InFlight,
    loops: Loops,
    cache: Option<Cache>,
    /// When the log named a client that was turned down.
    warned: Mutex<Option<Instant>>,
    /// Owns every task; see [`Forwarder::shutdown`].
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Asks upstream servers. One serves the whole process; it is cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Forwarder {
    shared: Arc<Shared>,
    _stop_on_drop: DropGuard,
}

impl Forwarder {
    /// Makes a forwarder that has asked nobody yet. It counts in `metrics`, and trusts the CAs of the system.
    pub fn new(limits: Limits, metrics: ForwardMetrics) -> Self {
        Self::with(limits, metrics, TlsTrust::default(), None)
    }

    /// The same, trusting upstreams over TLS as `trust` says, and with a cache of what the upstreams reply.
    pub fn with(limits: Limits, metrics: ForwardMetrics, trust: TlsTrust, cache: Option<Cache>) -> Self {
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
        Self { shared: Arc::new(shared), _stop_on_drop: stop.drop_guard() }
    }

    /// Asks `query` of `upstreams`, the first preferred, on behalf of `client`, and gives the reply of one of them.
    ///
    /// The answer or the error comes within [`Limits::budget`]. Dropping the future is safe at any time: others who
    /// wait for the same question get their reply all the same.
    pub async fn exchange(
        &self,
        mut query: Query,
        upstreams: Arc<[Upstream]>,
        client: IpAddr,
    ) -> Result<Arc<Reply>, ForwardError> {
        let shared = &self.shared;
        // Also where no upstream is left: how else would a loop be seen to have ended?
        if shared.loops.notice(&query.name) {
            return Err(ForwardError::Loop);
        }
        if upstreams.is_empty() {
            return Err(ForwardError::NoUpstreams);
        }
        if let Some(edns) = &mut query.edns {
            edns.options = options::forwarded(&edns.options).into();
        }
        let key = Arc::new(Key { query, upstreams });
        let Some(cache) = &shared.cache else { return self.ask(&key, client)?.outcome().await };
        if let Some((reply, refresh)) = cache.reply(&key) {
            if refresh {
                drop(self.ask(&key, client));
            }
            return Ok(reply);
        }
        let outcome = match self.ask(&key, client) {
            Ok(waiter) => waiter.outcome().await,
            Err(error) => Err(error),
        };
        cache.instead_of(outcome, &key)
    }

    /// The reply in the cache, fresh or stale, for who cannot wait for [`exchange`](Self::exchange) any longer. `query` must
    /// be without EDNS.
    pub(crate) fn kept(&self, query: Query, upstreams: Arc<[Upstream]>) -> Outcome {
        let late = Err(ForwardError::AllFailed([].into()));
        match &self.shared.cache {
            Some(cache) => cache.instead_of(late, &Key { query, upstreams }),
            None => late,
        }
    }

    /// Empties the cache: for when upstreams may reply otherwise than before. Replies that are under way are cached.
    pub fn forget(&self) {
        if let Some(cache) = &self.shared.cache {
            cache.clear();
        }
    }

    /// Puts a question to the upstreams, or joins those who wait for its outcome. It is asked to its end, whether or not
    /// anybody still waits.
    fn ask(&self, key: &Arc<Key>, client: IpAddr) -> Result<Waiter, ForwardError> {
        match self.shared.in_flight.join(key, client) {
            Join::Overloaded => {
                self.overloaded(client);
                Err(ForwardError::Overloaded)
            }
            Join::Waiter(waiter) => Ok(waiter),
            Join::Leader(leader, waiter) => {
                let (shared, key) = (Arc::clone(&self.shared), Arc::clone(key));
                self.shared.tasks.spawn(lead(shared, key, leader));
                Ok(waiter)
            }
        }
    }

    /// The cache, if there is one.
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.shared.cache.as_ref()
    }

    /// The bounds in force.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Counts a question of `client` that was not even asked, because too many are under way. A loop may be why there are
    /// so many: `question`, which begins with its name, is looked at all the same.
    pub(crate) fn turned_down(&self, question: &[u8], client: IpAddr) {
        self.shared.loops.notice(question);
        self.overloaded(client);
    }

    fn overloaded(&self, client: IpAddr) {
        self.shared.metrics.overloaded.inc();
        let mut warned = self.shared.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(%client, "too many outside queries in flight, more of this client get SERVFAIL");
        }
    }

    /// Finds out which upstreams forward to ourselves what they are asked below a domain. `None` stands for those that
    /// neither did nor replied. Takes no longer than [`Limits::budget`], asks all at once, and counts as no question in
    /// the metrics. Our own server must be listening, and hand questions that come back to [`Forwarder::exchange`] like
    /// all others.
    ///
    /// They are asked for `<16 hexadecimal digits>.forward-loop.<domain>`, type TXT.
    pub async fn find_loops(&self, ways: &[(Upstream, Name)]) -> Vec<Option<bool>> {
        join_all(ways.iter().map(|(upstream, domain)| self.leads_back(upstream, domain))).await
    }

    async fn leads_back(&self, upstream: &Upstream, domain: &Name) -> Option<bool> {
        let shared = &self.shared;
        let probe = shared.loops.probe(domain)?;
        let (query, metrics) = (probe.query(), shared.metrics.upstream(upstream));
        let exchange = Exchange {
            query: &query,
            upstream,
            deadline: Instant::now() + shared.limits.budget,
            limits: &shared.limits,
            health: &shared.health,
            pool: &shared.pool,
            metrics: &metrics,
        };
        // Whatever it replies, what counts is what reached us meanwhile.
        let replied =
            timeout_at(exchange.deadline, exchange.run_once()).await.is_ok_and(|reply| reply.is_ok());
        let came_back = probe.came_back();
        (came_back || replied).then_some(came_back)
    }

    /// Whether an upstream fails now, as far as the questions of the last minute tell.
    pub fn is_down(&self, upstream: &Upstream) -> bool {
        self.shared.health.is_down(upstream, Instant::now())
    }

    /// Closes what is kept open to upstreams that are not among these any more, and forgets what their certificates say.
    pub fn keep_only(&self, in_use: &BTreeSet<&Upstream>) {
        self.shared.pool.keep_only(in_use);
        self.shared.metrics.keep_only(in_use);
    }

    /// Stops all questions under way, whose askers get [`ForwardError::Stopped`], and waits for their tasks to end.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

/// Puts a question to the upstreams, and tells all who wait.
async fn lead(shared: Arc<Shared>, key: Arc<Key>, leader: Leader) {
    let deadline = Instant::now() + shared.limits.budget;
    let asking = Turns::new(Arc::clone(&shared), Arc::clone(&key), deadline).run();
    let outcome = shared.stop.run_until_cancelled(asking).await.unwrap_or(Err(ForwardError::Stopped));
    if let Err(error @ ForwardError::AllFailed(_)) = &outcome {
        shared.metrics.failed.inc();
        tracing::debug!(%error, "forwarding failed");
    }
    if let Some(cache) = &shared.cache {
        cache.settle(&key, &outcome);
    }
    leader.finish(outcome.map(Arc::new));
}
