//! One query to a list of upstreams, in order.
//!
//! The next upstream is tried when one fails (network error, no DNS message, SERVFAIL, REFUSED), or
//! is silent for its part of the budget. Replies of earlier upstreams are still accepted: the first
//! good reply is the answer. If all upstreams fail, the error response of the most preferred
//! upstream is the answer. It is the answer at once if no upstream is left that may have a better
//! one: each has answered or failed, or is known to be dead.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dnsconfig::Upstream;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::exchange::Exchange;
use super::failure::Failure;
use super::health::Candidate;
use super::inflight::Flight;
use super::key::Key;
use super::{ForwardError, Reply, Shared};
use crate::wire::{Transport, rcode};

/// Minimum time before the next upstream is tried, for any number of upstreams.
const LEAST_PATIENCE: Duration = Duration::from_millis(300);

/// The attempt to get a reply from one upstream.
#[derive(Clone)]
struct Attempt {
    /// Position in the order in which upstreams were tried.
    index: usize,
    candidate: Candidate,
    asked: Instant,
    /// Time from which the upstream counts as silent.
    silent_from: Instant,
}

type Asking = Pin<Box<dyn Future<Output = (Attempt, Result<Reply, Failure>)> + Send>>;

/// One query, and the attempts to get a reply to it.
pub(super) struct Attempts {
    shared: Arc<Shared>,
    flight: Flight,
    /// Transport of the client that asked first, for the metrics.
    client: Transport,
    deadline: Instant,
    /// Upstreams still to try, those believed alive first.
    plan: VecDeque<Candidate>,
    /// Whether there are more upstreams than may be queried at the same time.
    crowded: bool,
    /// Whether to try all upstreams once more after all of them failed.
    retry_all: bool,
    next_attempt: Instant,
    asking: FuturesUnordered<Asking>,
    pending: Vec<Attempt>,
    asked: usize,
    /// SERVFAIL or REFUSED of the most preferred upstream that sent such a reply, with the position
    /// of the upstream.
    refusal: Option<(usize, Reply)>,
    failures: Vec<(Upstream, Failure)>,
}

impl Attempts {
    pub(super) fn new(
        shared: Arc<Shared>,
        flight: Flight,
        client: Transport,
        deadline: Instant,
    ) -> Self {
        let now = Instant::now();
        let key = &flight.key;
        let order = shared.health.order(&key.upstreams, now);
        for (upstream, question) in order.probes {
            probe(
                &shared,
                &upstream,
                question.unwrap_or_else(|| Arc::clone(key)),
            );
        }

        Self {
            crowded: order.candidates.len() > shared.limits.max_open,
            shared,
            flight,
            client,
            deadline,
            plan: order.candidates.into(),
            retry_all: true,
            next_attempt: now,
            asking: FuturesUnordered::new(),
            pending: Vec::new(),
            asked: 0,
            refusal: None,
            failures: Vec::new(),
        }
    }

    /// Queries upstreams until a reply is the answer, or no upstream is left to wait for.
    pub(super) async fn run(mut self) -> Result<Reply, ForwardError> {
        loop {
            if self.may_start() && self.next_attempt <= Instant::now() {
                self.start_next();
            }

            tokio::select! {
                biased;
                Some((attempt, result)) = self.asking.next() => {
                    if let Some(reply) = self.settle(&attempt, result) {
                        self.record_timeouts();
                        return Ok(reply);
                    }
                    if self.refusal.is_some() && !self.may_improve() {
                        break;
                    }
                }
                () = sleep_until(self.deadline), if self.refusal.is_some() => break,
                () = sleep_until(self.next_attempt), if self.may_start() => {}
                else => break,
            }
        }

        self.record_timeouts();
        self.refusal
            .map(|(_, reply)| reply)
            .ok_or_else(|| ForwardError::AllFailed(self.failures.into()))
    }

    fn may_start(&self) -> bool {
        !self.plan.is_empty()
            && self.pending.len() < self.shared.limits.max_open
            && self.next_attempt < self.deadline
    }

    /// Whether an upstream is left that may have a better reply than SERVFAIL or REFUSED. A dead
    /// upstream has none.
    fn may_improve(&self) -> bool {
        self.plan.iter().any(|candidate| !candidate.dead)
            || self.pending.iter().any(|attempt| !attempt.candidate.dead)
    }

    fn start_next(&mut self) {
        let now = Instant::now();
        let patience = self.patience(now);
        let Some(candidate) = self.plan.pop_front() else {
            return;
        };
        self.next_attempt = now + patience;
        let attempt = Attempt {
            index: self.asked,
            candidate,
            asked: now,
            silent_from: self.next_attempt,
        };
        self.asked += 1;
        let until = if self.crowded {
            self.give_up_at(now, patience)
        } else {
            self.deadline
        };
        self.pending.push(attempt.clone());
        let shared = Arc::clone(&self.shared);
        let flight = self.flight.clone();
        let client = self.client;
        self.asking.push(Box::pin(async move {
            let result = ask(&shared, &flight, client, &attempt, until).await;
            (attempt, result)
        }));
    }

    /// Time at which to stop waiting for an upstream that is queried now. At most
    /// [`Limits::max_open`](crate::forward::Limits::max_open) upstreams are queried at the same
    /// time, so a later upstream can only be queried after that.
    fn give_up_at(&self, now: Instant, patience: Duration) -> Instant {
        let attempts = u32::try_from(self.shared.limits.max_open).unwrap_or(u32::MAX);
        self.deadline.min(now + patience.saturating_mul(attempts))
    }

    /// Time for which the next upstream may be silent: an equal part of the remaining time, within
    /// limits. Upstreams believed dead get no part while others are left.
    fn patience(&self, now: Instant) -> Duration {
        let alive = self.plan.iter().filter(|candidate| !candidate.dead).count();
        let sharers = if alive > 0 { alive } else { self.plan.len() };
        let part = (self.deadline - now) / u32::try_from(sharers.max(1)).unwrap_or(u32::MAX);
        part.max(LEAST_PATIENCE).min(self.shared.limits.patience)
    }

    /// Records the outcome of an attempt; returns the reply if it is the answer.
    // Differs from kube-dns, which returns SERVFAIL and REFUSED to the client. dnsmasq and glibc
    // also try the next server.
    fn settle(&mut self, attempt: &Attempt, result: Result<Reply, Failure>) -> Option<Reply> {
        let now = Instant::now();
        self.pending
            .retain(|pending| pending.index != attempt.index);
        // After a longer silence the next upstream was already tried.
        if attempt.silent_from > now {
            self.next_attempt = now;
        }
        match result {
            Ok(reply) if !matches!(reply.rcode, rcode::SERVFAIL | rcode::REFUSED) => {
                return Some(reply);
            }
            Ok(reply) => self.refused(attempt.index, reply, now),
            Err(failure) => {
                self.failures
                    .push((attempt.candidate.upstream.clone(), failure));
                self.plan_retry(failure);
            }
        }
        None
    }

    /// Stores the error response of the most preferred upstream, and shortens the wait for the
    /// other upstreams.
    fn refused(&mut self, index: usize, reply: Reply, now: Instant) {
        if self.refusal.is_none() {
            self.deadline = self.deadline.min(now + self.shared.limits.patience);
        }
        if self.refusal.as_ref().is_none_or(|(held, _)| index < *held) {
            self.refusal = Some((index, reply));
        }
    }

    /// Plans a second round after a pause. Upstreams that all failed at the same time may be
    /// restarting.
    fn plan_retry(&mut self, last: Failure) {
        let all_failed = self.plan.is_empty() && self.pending.is_empty() && self.refusal.is_none();
        if all_failed && self.retry_all && last != Failure::Timeout {
            self.retry_all = false;
            let failed = self.failures.iter().map(|(upstream, _)| upstream.clone());
            self.plan.extend(failed.map(|upstream| Candidate {
                upstream,
                dead: false,
                edns: true,
            }));
            self.next_attempt = Instant::now() + self.shared.limits.retry_pause;
        }
    }

    /// Records a timeout of every upstream that is still silent after its part of the time.
    fn record_timeouts(&self) {
        let now = Instant::now();
        for attempt in self
            .pending
            .iter()
            .filter(|attempt| attempt.silent_from <= now)
        {
            failed(&self.shared, &self.flight.key, attempt, Failure::Timeout);
        }
    }
}

/// Queries one upstream until `until` and records the outcome.
async fn ask(
    shared: &Arc<Shared>,
    flight: &Flight,
    client: Transport,
    attempt: &Attempt,
    until: Instant,
) -> Result<Reply, Failure> {
    let Candidate { upstream, edns, .. } = &attempt.candidate;
    let metrics = shared.metrics.upstream(upstream);
    let exchange = Exchange {
        query: &flight.key.query,
        upstream,
        over_tcp: flight.over_tcp,
        edns: *edns,
        deadline: until,
        limits: &shared.limits,
        health: &shared.health,
        pool: &shared.pool,
        metrics: &metrics,
    };
    let result = timeout_at(until, exchange.run(client))
        .await
        .unwrap_or(Err(Failure::Timeout));

    match &result {
        Ok(reply) => shared
            .health
            .answered(upstream, &flight.key, reply.rcode, Instant::now()),
        Err(failure) => failed(shared, &flight.key, attempt, *failure),
    }
    result
}

fn failed(shared: &Arc<Shared>, key: &Arc<Key>, attempt: &Attempt, failure: Failure) {
    let upstream = &attempt.candidate.upstream;
    shared.metrics.upstream(upstream).failure(failure);
    let (now, silent) = (Instant::now(), failure == Failure::Timeout);
    if silent && now < attempt.silent_from {
        return;
    }
    note_failure(shared, upstream, failure, now);
    if !silent {
        return;
    }
    if let Some(question) = shared.health.silent(upstream, key, attempt.asked, now) {
        probe(shared, upstream, question);
    }
}

/// Records a failure of an upstream. Without a local socket the upstream was not queried, so
/// [`Failure::NoSocket`] does not count.
fn note_failure(shared: &Shared, upstream: &Upstream, failure: Failure, now: Instant) {
    if failure != Failure::NoSocket {
        shared
            .health
            .failed(upstream, failure == Failure::Timeout, now);
    }
}

/// Probes an upstream with the query `question`, in a separate task.
fn probe(shared: &Arc<Shared>, upstream: &Upstream, question: Arc<Key>) {
    let (owned, upstream, asked) = (Arc::clone(shared), upstream.clone(), Instant::now());
    shared.tasks.spawn(async move {
        let shared = owned;
        let metrics = shared.metrics.upstream(&upstream);
        let deadline = asked + shared.limits.budget;
        let exchange = Exchange {
            query: &question.query,
            upstream: &upstream,
            over_tcp: false,
            edns: shared.health.knows_edns(&upstream, asked),
            deadline,
            limits: &shared.limits,
            health: &shared.health,
            pool: &shared.pool,
            metrics: &metrics,
        };
        let result = shared
            .stop
            .run_until_cancelled(ask_as_probe(exchange))
            .await;
        match result {
            Some(Ok(reply)) => {
                shared
                    .health
                    .answered(&upstream, &question, reply.rcode, Instant::now());
            }
            Some(Err(failure)) => {
                shared.metrics.upstream(&upstream).failure(failure);
                let now = Instant::now();
                note_failure(&shared, &upstream, failure, now);
                shared
                    .health
                    .probe_failed(&upstream, asked, now, failure.means_dead());
            }
            None => {}
        }
    });
}

/// Asks an upstream that was silent. An upstream that has never answered a query with an OPT
/// record, and is silent to this one, is asked without: a device on the way to it may drop such
/// queries.
async fn ask_as_probe(exchange: Exchange<'_>) -> Result<Reply, Failure> {
    let result = timeout_at(exchange.deadline, exchange.run(Transport::Udp)).await;
    let result = result.unwrap_or(Err(Failure::Timeout));
    let may_drop_edns = exchange.edns && !exchange.health.has_answered_edns(exchange.upstream);
    if !may_drop_edns || !matches!(result, Err(Failure::Timeout)) {
        return result;
    }

    let deadline = Instant::now() + exchange.limits.budget;
    let without = Exchange {
        edns: false,
        deadline,
        ..exchange
    };
    let result = timeout_at(deadline, without.run(Transport::Udp))
        .await
        .unwrap_or(Err(Failure::Timeout));
    if result.is_ok() {
        exchange
            .health
            .lacks_edns(exchange.upstream, Instant::now());
    }
    result
}
