//! One question to several upstreams, one after the other without waiting for each to its end.
//!
//! The upstreams are asked in the order of preference. The next one's turn comes when one fails, or when the last one
//! asked has been silent for a while; all that were asked are listened to. Which reply counts:
//! * a positive one at once, whoever it is from;
//! * a negative one at once, unless a preferred upstream that is known to be alive has not answered yet: that one may
//!   know better, and is waited for, with patience;
//! * SERVFAIL when nobody else who was asked answers, with the same patience.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::exchange::{Exchange, Failure};
use super::inflight::Key;
use super::message::SERVFAIL;
use super::{ForwardError, Query, Reply, Shared};

/// A turn under way; `index` tells its place in the order of preference.
struct Pending {
    index: usize,
    upstream: SocketAddr,
}

struct Finished {
    index: usize,
    result: Result<Reply, Failure>,
}

/// A reply that will do if no better one comes.
struct Held {
    index: usize,
    reply: Reply,
    /// How long to wait for a better one.
    until: Instant,
}

type Turn = Pin<Box<dyn Future<Output = Finished> + Send>>;

/// The state of one question.
pub(super) struct Stagger {
    shared: Arc<Shared>,
    key: Arc<Key>,
    deadline: Instant,
    /// The upstreams still to be asked.
    plan: VecDeque<SocketAddr>,
    /// Ask them once more if all of them fail at once?
    second_round: bool,
    asked: usize,
    next_turn: Instant,
    turns: FuturesUnordered<Turn>,
    pending: Vec<Pending>,
    held: Option<Held>,
    failures: Vec<(SocketAddr, Failure)>,
}

impl Stagger {
    pub(super) fn new(shared: Arc<Shared>, key: Arc<Key>, deadline: Instant) -> Self {
        let order = shared.health.order(&key.upstreams, key.query.transport, Instant::now());
        Self {
            shared,
            key,
            deadline,
            plan: order.upstreams.into(),
            second_round: !order.hopeless,
            asked: 0,
            next_turn: Instant::now(),
            turns: FuturesUnordered::new(),
            pending: Vec::new(),
            held: None,
            failures: Vec::new(),
        }
    }

    /// Asks until there is a reply to go by or nobody is left to wait for.
    pub(super) async fn run(mut self) -> Result<Reply, ForwardError> {
        self.start_next();
        loop {
            let patience_ends = self.held.as_ref().map_or(self.deadline, |held| held.until);
            tokio::select! {
                biased;
                Some(finished) = self.turns.next() => {
                    if let Some(reply) = self.settle(finished) {
                        return Ok(reply);
                    }
                }
                () = sleep_until(patience_ends), if self.held.is_some() => break,
                () = sleep_until(self.next_turn), if self.may_start() => self.start_next(),
                else => break,
            }
        }
        match self.held.take() {
            Some(held) => Ok(self.conclude(held.index, held.reply)),
            None => Err(ForwardError::AllFailed(self.failures.into())),
        }
    }

    fn may_start(&self) -> bool {
        !self.plan.is_empty()
            && self.held.is_none()
            && self.pending.len() < self.shared.limits.max_open
            && self.next_turn < self.deadline
    }

    fn start_next(&mut self) {
        let Some(upstream) = self.plan.pop_front() else { return };
        let limits = &self.shared.limits;
        let suspect = self.shared.health.is_suspect((upstream, self.key.query.transport));
        let silence = if suspect { limits.hedge_after_suspect } else { limits.hedge_after };
        self.next_turn = Instant::now() + silence;
        let index = self.asked;
        self.asked += 1;
        self.pending.push(Pending { index, upstream });
        let (shared, key, deadline) = (Arc::clone(&self.shared), Arc::clone(&self.key), self.deadline);
        self.turns.push(Box::pin(async move {
            let result = ask(&shared, &key.query, upstream, deadline).await;
            Finished { index, result }
        }));
    }

    /// Takes note of a turn that has ended; gives the reply to go by, if there is one now.
    fn settle(&mut self, finished: Finished) -> Option<Reply> {
        let at = self.pending.iter().position(|pending| pending.index == finished.index)?;
        let Pending { index, upstream } = self.pending.swap_remove(at);
        match finished.result {
            Ok(reply) => self.hold(index, reply),
            Err(failure) => {
                self.failures.push((upstream, failure));
                self.next_turn = Instant::now();
                self.plan_second_round(failure);
            }
        }
        let held =
            self.held.take_if(|held| !may_be_bettered(&self.shared, &self.key, &self.pending, held))?;
        Some(self.conclude(held.index, held.reply))
    }

    /// Keeps a reply. Of two negative ones the more preferred upstream's counts, but anything is better than SERVFAIL.
    fn hold(&mut self, index: usize, reply: Reply) {
        let rank = |reply: &Reply, index: usize| (!reply.is_positive(), reply.rcode == SERVFAIL, index);
        let until = (Instant::now() + self.shared.limits.patience).min(self.deadline);
        match &mut self.held {
            Some(held) if rank(&held.reply, held.index) <= rank(&reply, index) => {}
            Some(held) => (held.index, held.reply) = (index, reply),
            None => self.held = Some(Held { index, reply, until }),
        }
    }

    /// Upstreams that all failed at once may be restarting: after a pause they are asked once more, unless they were
    /// known to be dead before.
    fn plan_second_round(&mut self, last: Failure) {
        let all_failed = self.plan.is_empty() && self.pending.is_empty() && self.held.is_none();
        if all_failed && self.second_round && last != Failure::Timeout {
            self.second_round = false;
            self.plan.extend(self.failures.iter().map(|(upstream, _)| *upstream));
            self.next_turn = Instant::now() + self.shared.limits.retry_pause;
        }
    }

    /// There is a reply from the upstream at `index`. Those preferred to it that are still silent were overtaken; for
    /// a few questions they are listened to further, to learn whether they are slow or dead.
    fn conclude(&mut self, index: usize, reply: Reply) -> Reply {
        let Self { shared, key, pending, .. } = self;
        let now = Instant::now();
        for late in pending.iter().filter(|pending| pending.index < index) {
            shared.health.overtaken((late.upstream, key.query.transport), now);
        }
        let turns = std::mem::take(&mut self.turns);
        if turns.is_empty() {
            return reply;
        }
        if let Ok(permit) = Arc::clone(&shared.observers).try_acquire_owned() {
            let stop = shared.stop.clone();
            shared.tasks.spawn(async move {
                stop.run_until_cancelled(turns.for_each(|_| std::future::ready(()))).await;
                drop(permit);
            });
        }
        reply
    }
}

/// Is one still pending whose reply could count for more than the one held?
fn may_be_bettered(shared: &Shared, key: &Key, pending: &[Pending], held: &Held) -> bool {
    let now = Instant::now();
    let trusted = |upstream| shared.health.is_trusted((upstream, key.query.transport), now);
    let may_be_better = |pending: &Pending| {
        held.reply.rcode == SERVFAIL || pending.index < held.index && trusted(pending.upstream)
    };
    !held.reply.is_positive() && pending.iter().any(may_be_better)
}

/// Asks one upstream until the deadline and takes note of how it went.
async fn ask(
    shared: &Shared,
    query: &Query,
    upstream: SocketAddr,
    deadline: Instant,
) -> Result<Reply, Failure> {
    let asked = Instant::now();
    let metrics = shared.metrics.upstream(upstream);
    let exchange = Exchange {
        query,
        upstream,
        deadline,
        limits: &shared.limits,
        health: &shared.health,
        metrics: &metrics,
    };
    let result = timeout_at(deadline, exchange.run()).await.unwrap_or(Err(Failure::Timeout));
    match &result {
        Ok(_) => shared.health.answered((upstream, query.transport), Instant::now()),
        Err(failure) => {
            metrics.failure(*failure);
            // Who was asked late had little time to answer.
            let now = Instant::now();
            let had_time = (now - asked) * 2 >= shared.limits.budget;
            if let Some(symptom) = failure.symptom(had_time) {
                shared.health.failed((upstream, query.transport), asked, now, symptom);
            }
        }
    }
    result
}
