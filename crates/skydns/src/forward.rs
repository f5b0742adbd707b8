//! Asking upstream DNS servers on behalf of clients.
//!
//! [`Forwarder::exchange`] takes one question and an ordered list of upstreams and gives, within
//! [`Limits::budget`], an upstream's whole reply or an error, whatever the upstreams do. It neither caches nor chases
//! aliases nor knows whose zone a name is in; the caller does.
//!
//! # Which upstream's answer it is
//!
//! As the reference does:
//! * Upstreams are preferred in the order in which they are configured.
//! * Whatever a reachable upstream says is the answer: NXDOMAIN, REFUSED, FORMERR, NOTIMP do not lead to the next one.
//!   After SERVFAIL the same upstream is asked once more, and what it says then is the answer.
//! * The next upstream's turn comes when one cannot be reached, is silent, or sends what is no DNS message.
//! * The client's flags RD, AD, CD, its OPT record with all options, and the transport it came over are handed on.
//!
//! Beyond the reference, for speed and safety:
//! * The next upstream is also asked when one has been silent for [`Limits::hedge_after`], while listening to the
//!   first goes on (`stagger`). A negative answer of a less preferred upstream waits up to [`Limits::patience`] for
//!   a preferred one that is known to be alive: a name may exist there alone.
//! * Upstreams that were found dead come last for a while (`health`).
//! * Truncated UDP replies lead to a retry over TCP; if that fails, the truncated reply is handed on with TC set.
//! * Replies count only if they come from the address asked, to the random port the query left from, with its random
//!   ID and its question (RFC 5452). Others are counted and ignored.
//! * Identical questions in flight to the same upstreams are asked once (`inflight`).
//!
//! # Bounds
//!
//! At most [`Limits::max_in_flight`] distinct questions are under way, at most [`Limits::max_in_flight_per_route`] of
//! them to one list of upstreams, so that a dead stub domain does not shut out the others; beyond that
//! [`ForwardError::Overloaded`] comes at once. Each holds one task and at most [`Limits::max_open`] sockets. Another
//! [`Limits::max_observed`] questions that have their answer may still listen for a late upstream, with as many
//! sockets each less one. With the defaults that is no more than 3,072 + 128 sockets. At most
//! [`Limits::max_joined`] askers wait for somebody else's identical question. Queries sent and replies received are
//! held in memory in their own size, at most 64 KiB each; a reply over TCP grows as it arrives.
//! Every task ends by the end of its question's budget, whether or not anybody still waits for it.

mod exchange;
mod health;
mod inflight;
mod limits;
mod loops;
pub mod message;
mod metrics;
mod query;
mod stagger;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub use exchange::Failure;
pub use limits::{Limits, Probation};
pub use loops::usable_upstreams;
pub use metrics::ForwardMetrics;
pub use query::{EdnsRequest, Query, Reply, Transport};

use health::Health;
use inflight::{InFlight, Join, Key, Outcome};
use stagger::Stagger;

/// Why there is no reply from an upstream.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The list of upstreams is empty.
    #[error("no upstream servers")]
    NoUpstreams,
    /// None of the upstreams gave a usable reply in time.
    #[error("no usable reply from any upstream: {}", DisplayFailures(.0))]
    AllFailed(Arc<[(SocketAddr, Failure)]>),
    /// Too many questions are under way already.
    #[error("too many questions in flight")]
    Overloaded,
    /// The forwarder is shutting down.
    #[error("shutting down")]
    Stopped,
}

struct DisplayFailures<'a>(&'a [(SocketAddr, Failure)]);

impl std::fmt::Display for DisplayFailures<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, (upstream, failure)) in self.0.iter().enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            write!(f, "{comma}{upstream}: {failure}")?;
        }
        Ok(())
    }
}

/// What all questions share.
#[derive(Debug)]
struct Shared {
    limits: Limits,
    metrics: ForwardMetrics,
    health: Health,
    in_flight: InFlight,
    /// One permit for each question that has its answer and still listens.
    observers: Arc<Semaphore>,
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
    /// Makes a forwarder that has asked nobody yet. See [`ForwardMetrics::register`] for its metrics.
    pub fn new(limits: Limits, metrics: ForwardMetrics) -> Self {
        let limits = limits.clamped();
        let stop = CancellationToken::new();
        let shared = Shared {
            health: Health::new(limits.probation),
            in_flight: InFlight::new(&limits, metrics.clone()),
            observers: Arc::new(Semaphore::new(limits.max_observed.min(Semaphore::MAX_PERMITS))),
            limits,
            metrics,
            tasks: TaskTracker::new(),
            stop: stop.clone(),
        };
        Self { shared: Arc::new(shared), _stop_on_drop: stop.drop_guard() }
    }

    /// Asks `query` of `upstreams`, the first preferred, and gives the reply of one of them.
    ///
    /// The answer or the error comes within [`Limits::budget`]. Dropping the future is safe at any time: others who
    /// wait for the same question get their reply all the same.
    pub async fn exchange(
        &self,
        query: Query,
        upstreams: Arc<[SocketAddr]>,
    ) -> Result<Arc<Reply>, ForwardError> {
        if upstreams.is_empty() {
            return Err(ForwardError::NoUpstreams);
        }
        let shared = &self.shared;
        let key = Arc::new(Key { query, upstreams });
        let waiter = match shared.in_flight.join(&key) {
            Join::Overloaded => {
                shared.metrics.overloaded.inc();
                return Err(ForwardError::Overloaded);
            }
            Join::Waiter(waiter) => waiter,
            Join::Leader(leader, waiter) => {
                let (shared, key) = (Arc::clone(shared), Arc::clone(&key));
                self.shared.tasks.spawn(async move { leader.finish(ask(shared, key).await) });
                waiter
            }
        };
        waiter.outcome().await
    }

    /// Stops all questions under way, whose askers get [`ForwardError::Stopped`], and waits for their tasks to end.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

async fn ask(shared: Arc<Shared>, key: Arc<Key>) -> Outcome {
    let stop = shared.stop.clone();
    let failed = shared.metrics.failed.clone();
    let deadline = Instant::now() + shared.limits.budget;
    let asking = Stagger::new(shared, key, deadline).run();
    let outcome = stop.run_until_cancelled(asking).await.unwrap_or(Err(ForwardError::Stopped));
    if let Err(error @ ForwardError::AllFailed(_)) = &outcome {
        failed.inc();
        tracing::debug!(%error, "forwarding failed");
    }
    outcome.map(Arc::new)
}
