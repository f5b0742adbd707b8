//! One query to a list of upstreams, in order.
//!
//! The next upstream is tried when one fails (network error, garbage, SERVFAIL, REFUSED), or has been silent for
//! its part of the budget. Replies of earlier upstreams are still accepted: the first reply counts, whoever sends
//! it. If all fail, the error response of the most preferred upstream is the answer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dnsconfig::Upstream;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::exchange::{Exchange, Failure};
use super::inflight::Key;
use super::{ForwardError, Reply, Shared};
use crate::wire::rcode;

/// Minimum time before the next upstream is tried, however many upstreams there are.
const LEAST_PATIENCE: Duration = Duration::from_millis(300);

/// An upstream that was queried.
#[derive(Clone)]
struct Turn {
    /// Its place in the order of preference.
    index: usize,
    upstream: Upstream,
    asked: Instant,
    /// Time from which it counts as silent.
    impatient: Instant,
}

type Asking = Pin<Box<dyn Future<Output = (Turn, Result<Reply, Failure>)> + Send>>;

/// State of one query.
pub(super) struct Turns {
    shared: Arc<Shared>,
    key: Arc<Key>,
    deadline: Instant,
    /// Upstreams still to be tried, those believed alive first.
    plan: VecDeque<Upstream>,
    /// Number of them that are believed alive.
    alive: usize,
    /// Whether there are more upstreams than may have outstanding queries at once.
    crowded: bool,
    /// Whether to try all upstreams once more if all of them fail at once.
    second_round: bool,
    next_turn: Instant,
    asking: FuturesUnordered<Asking>,
    pending: Vec<Turn>,
    asked: usize,
    /// SERVFAIL or REFUSED of the most preferred upstream that sent one, with its place.
    refusal: Option<(usize, Reply)>,
    failures: Vec<(Upstream, Failure)>,
}

impl Turns {
    pub(super) fn new(shared: Arc<Shared>, key: Arc<Key>, deadline: Instant) -> Self {
        let now = Instant::now();
        let order = shared.health.order(&key.upstreams, now);
        for (upstream, question) in order.probes {
            probe(&shared, &upstream, question.unwrap_or_else(|| Arc::clone(&key)));
        }
        Self {
            crowded: order.upstreams.len() > shared.limits.max_open,
            shared,
            key,
            deadline,
            plan: order.upstreams.into(),
            alive: order.alive,
            second_round: true,
            next_turn: now,
            asking: FuturesUnordered::new(),
            pending: Vec::new(),
            asked: 0,
            refusal: None,
            failures: Vec::new(),
        }
    }

    /// Queries upstreams until there is an answer or no upstream left to wait for.
    pub(super) async fn run(mut self) -> Result<Reply, ForwardError> {
        self.start_next();
        loop {
            tokio::select! {
                biased;
                Some((turn, result)) = self.asking.next() => {
                    if let Some(reply) = self.settle(&turn, result) {
                        self.blame_the_silent();
                        return Ok(reply);
                    }
                }
                () = sleep_until(self.deadline), if self.refusal.is_some() => break,
                () = sleep_until(self.next_turn), if self.may_start() => self.start_next(),
                else => break,
            }
        }
        self.blame_the_silent();
        self.refusal.map(|(_, reply)| reply).ok_or_else(|| ForwardError::AllFailed(self.failures.into()))
    }

    fn may_start(&self) -> bool {
        !self.plan.is_empty()
            && self.pending.len() < self.shared.limits.max_open
            && self.next_turn < self.deadline
    }

    fn start_next(&mut self) {
        let now = Instant::now();
        let patience = self.patience(now);
        let Some(upstream) = self.plan.pop_front() else { return };
        self.alive = self.alive.saturating_sub(1);
        self.next_turn = now + patience;
        let turn = Turn { index: self.asked, upstream, asked: now, impatient: self.next_turn };
        self.asked += 1;
        let until = if self.crowded { self.room_by(now, patience) } else { self.deadline };
        self.pending.push(turn.clone());
        let (shared, key) = (Arc::clone(&self.shared), Arc::clone(&self.key));
        self.asking.push(Box::pin(async move {
            let result = ask(&shared, &key, &turn, until).await;
            (turn, result)
        }));
    }

    /// Time at which to stop waiting for an upstream queried now, so that later ones get a turn.
    fn room_by(&self, now: Instant, patience: Duration) -> Instant {
        let turns = u32::try_from(self.shared.limits.max_open).unwrap_or(u32::MAX);
        self.deadline.min(now + patience.saturating_mul(turns))
    }

    /// Time for which the next upstream may be silent: an equal part of the remaining time, within limits.
    /// Upstreams believed dead get no part.
    fn patience(&self, now: Instant) -> Duration {
        let sharers = if self.alive > 0 { self.alive } else { self.plan.len() };
        let part = (self.deadline - now) / u32::try_from(sharers.max(1)).unwrap_or(u32::MAX);
        part.max(LEAST_PATIENCE).min(self.shared.limits.patience)
    }

    /// Records the outcome of a turn; returns the reply if it is the answer.
    // Differs from kube-dns: it accepts SERVFAIL and REFUSED as the answer; dnsmasq and glibc try the next server.
    fn settle(&mut self, turn: &Turn, result: Result<Reply, Failure>) -> Option<Reply> {
        let now = Instant::now();
        self.pending.retain(|pending| pending.index != turn.index);
        // If the upstream was silent for too long, the next upstream was already tried.
        if turn.impatient > now {
            self.next_turn = now;
        }
        match result {
            Ok(reply) if !matches!(reply.rcode, rcode::SERVFAIL | rcode::REFUSED) => return Some(reply),
            Ok(reply) => self.refused(turn.index, reply, now),
            Err(failure) => {
                self.failures.push((turn.upstream.clone(), failure));
                self.plan_second_round(failure);
            }
        }
        None
    }

    /// Keeps the error response of the most preferred upstream, and shortens the wait for the others.
    fn refused(&mut self, index: usize, reply: Reply, now: Instant) {
        if self.refusal.is_none() {
            self.deadline = self.deadline.min(now + self.shared.limits.patience);
        }
        if self.refusal.as_ref().is_none_or(|(held, _)| index < *held) {
            self.refusal = Some((index, reply));
        }
    }

    /// Plans a second round after a pause: upstreams that all failed at once may be restarting.
    fn plan_second_round(&mut self, last: Failure) {
        let all_failed = self.plan.is_empty() && self.pending.is_empty() && self.refusal.is_none();
        if all_failed && self.second_round && last != Failure::Timeout {
            self.second_round = false;
            self.plan.extend(self.failures.iter().map(|(upstream, _)| upstream.clone()));
            self.next_turn = Instant::now() + self.shared.limits.retry_pause;
        }
    }

    /// Records a timeout of every upstream that is still silent after its time.
    fn blame_the_silent(&self) {
        let now = Instant::now();
        for turn in self.pending.iter().filter(|turn| turn.impatient <= now) {
            failed(&self.shared, &self.key, turn, Failure::Timeout);
        }
    }
}

/// Queries one upstream until `until` and records the outcome.
async fn ask(shared: &Arc<Shared>, key: &Arc<Key>, turn: &Turn, until: Instant) -> Result<Reply, Failure> {
    let result = exchange(shared, key, &turn.upstream, until).await;
    match &result {
        Ok(reply) => shared.health.answered(&turn.upstream, key, reply.rcode, Instant::now()),
        Err(failure) => failed(shared, key, turn, *failure),
    }
    result
}

async fn exchange(
    shared: &Shared,
    key: &Key,
    upstream: &Upstream,
    deadline: Instant,
) -> Result<Reply, Failure> {
    let metrics = shared.metrics.upstream(upstream);
    let Shared { limits, health, pool, .. } = shared;
    let exchange =
        Exchange { query: &key.query, upstream, deadline, limits, health, pool, metrics: &metrics };
    timeout_at(deadline, exchange.run()).await.unwrap_or(Err(Failure::Timeout))
}

fn failed(shared: &Arc<Shared>, key: &Arc<Key>, turn: &Turn, failure: Failure) {
    shared.metrics.upstream(&turn.upstream).failure(failure);
    let (now, silent) = (Instant::now(), failure == Failure::Timeout);
    if silent && now < turn.impatient {
        return;
    }
    note_failure(shared, &turn.upstream, failure, now);
    if !silent {
        return;
    }
    if let Some(question) = shared.health.silent(&turn.upstream, key, turn.asked, now) {
        probe(shared, &turn.upstream, question);
    }
}

/// Records a failure of an upstream. A lack of local sockets does not count against it.
fn note_failure(shared: &Shared, upstream: &Upstream, failure: Failure, now: Instant) {
    if failure != Failure::NoSocket {
        shared.health.failed(upstream, failure == Failure::Timeout, now);
    }
}

/// Probes an upstream with a query that it answered before, in a task of its own.
fn probe(shared: &Arc<Shared>, upstream: &Upstream, question: Arc<Key>) {
    let (owned, upstream, asked) = (Arc::clone(shared), upstream.clone(), Instant::now());
    shared.tasks.spawn(async move {
        let shared = owned;
        let exchange = exchange(&shared, &question, &upstream, asked + shared.limits.budget);
        match shared.stop.run_until_cancelled(exchange).await {
            Some(Ok(reply)) => shared.health.answered(&upstream, &question, reply.rcode, Instant::now()),
            Some(Err(failure)) => {
                shared.metrics.upstream(&upstream).failure(failure);
                let now = Instant::now();
                note_failure(&shared, &upstream, failure, now);
                shared.health.probe_failed(&upstream, asked, now, failure.means_dead());
            }
            None => {}
        }
    });
}
