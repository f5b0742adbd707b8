//! One query to a list of upstreams, in order.
//!
//! The next upstream is tried when an upstream sends SERVFAIL or REFUSED, fails with an
//! [`UpstreamFailure`], or is silent for its share of the budget. Replies of earlier upstreams are
//! still accepted: the first reply other than SERVFAIL and REFUSED is the answer. Without such a
//! reply, the answer is SERVFAIL or REFUSED from the most preferred upstream that sent one of them.
//! This answer is given as soon as every upstream has answered, has failed or is known to be dead,
//! because then a better reply is unlikely. It is given at most
//! [`ForwardLimits::silence_timeout`](super::ForwardLimits::silence_timeout) after the first
//! SERVFAIL or REFUSED.
//!
//! If all upstreams end with an [`UpstreamFailure`], and the last failure is not a timeout, all are
//! tried once more after a pause.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};
use wire::Transport;
use wire::Upstream;

use super::exchange::UpstreamExchange;
use super::failure::UpstreamFailure;
use super::health::UpstreamCandidate;
use super::in_flight::InFlightKey;
use super::key::QueryKey;
use super::{ForwardError, ForwarderState, UpstreamReply};

/// Minimum time for which an upstream may be silent before the next upstream is tried.
const MIN_SILENCE_TIMEOUT: Duration = Duration::from_millis(300);

/// The attempt to get a reply from one upstream.
#[derive(Clone)]
struct UpstreamAttempt {
    /// Position in the order in which upstreams were tried.
    index: usize,
    candidate: UpstreamCandidate,
    asked: Instant,
    /// Time from which the upstream counts as silent.
    silent_from: Instant,
}

/// An attempt that has ended.
struct FinishedAttempt {
    attempt: UpstreamAttempt,
    result: Result<UpstreamReply, UpstreamFailure>,
}

type RunningAttempt = Pin<Box<dyn Future<Output = FinishedAttempt> + Send>>;

/// SERVFAIL or REFUSED of an upstream.
struct RefusedAttempt {
    /// Position of the upstream in the order in which upstreams were tried.
    index: usize,
    reply: UpstreamReply,
}

/// One query, and the attempts to get a reply to it.
pub(super) struct UpstreamAttempts {
    state: Arc<ForwarderState>,
    query: InFlightKey,
    /// Transport of the client that asked first, for the metrics.
    client: Transport,
    deadline: Instant,
    /// Upstreams still to try, those believed alive first.
    plan: VecDeque<UpstreamCandidate>,
    /// Whether there are more upstreams than may be queried at the same time.
    crowded: bool,
    /// Whether to try all upstreams once more after all of them failed.
    retry_all: bool,
    next_attempt: Instant,
    running: FuturesUnordered<RunningAttempt>,
    pending: Vec<UpstreamAttempt>,
    started: usize,
    /// SERVFAIL or REFUSED of the most preferred upstream that sent one of them.
    refusal: Option<RefusedAttempt>,
    failures: Vec<(Upstream, UpstreamFailure)>,
}

impl UpstreamAttempts {
    pub(super) fn new(
        state: Arc<ForwarderState>,
        query: InFlightKey,
        client: Transport,
        deadline: Instant,
    ) -> Self {
        let now = Instant::now();
        let key = &query.key;
        let order = state.health.order(&key.upstreams, now);

        // The query starts those probes of its upstreams that are due.
        for probe in order.probes {
            // One name may fail although the upstream works.
            let questions = probe.question.into_iter().chain([Arc::clone(key)]);
            spawn_probe(&state, &probe.upstream, questions.collect());
        }

        Self {
            crowded: order.candidates.len() > state.limits.max_open,
            state,
            query,
            client,
            deadline,
            plan: order.candidates.into(),
            retry_all: true,
            next_attempt: now,
            running: FuturesUnordered::new(),
            pending: Vec::new(),
            started: 0,
            refusal: None,
            failures: Vec::new(),
        }
    }

    /// Queries upstreams until one of them has given the answer, or no upstream is left to wait
    /// for.
    pub(super) async fn run(mut self) -> Result<UpstreamReply, ForwardError> {
        loop {
            if self.may_start() && self.next_attempt <= Instant::now() {
                self.start_next();
            }

            tokio::select! {
                // Replies come before timers: a reply at the deadline still counts.
                biased;
                Some(finished) = self.running.next() => {
                    if let Some(reply) = self.finish_attempt(finished) {
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
        match self.refusal {
            Some(refused) => Ok(refused.reply),
            None => Err(ForwardError::AllFailed(self.failures.into())),
        }
    }

    fn may_start(&self) -> bool {
        !self.plan.is_empty()
            && self.pending.len() < self.state.limits.max_open
            && self.next_attempt < self.deadline
    }

    /// Whether an upstream is left that may have a better reply than SERVFAIL or REFUSED. Dead
    /// upstreams do not count.
    fn may_improve(&self) -> bool {
        self.plan.iter().any(|candidate| !candidate.dead)
            || self.pending.iter().any(|attempt| !attempt.candidate.dead)
    }

    fn start_next(&mut self) {
        let now = Instant::now();
        let silence_timeout = self.silence_timeout(now);
        let Some(candidate) = self.plan.pop_front() else {
            return;
        };

        self.next_attempt = now + silence_timeout;
        let attempt = UpstreamAttempt {
            index: self.started,
            candidate,
            asked: now,
            silent_from: self.next_attempt,
        };
        self.started += 1;
        self.pending.push(attempt.clone());

        // If all upstreams may be queried at the same time, a late reply is accepted until the
        // deadline.
        let until = if self.crowded {
            self.give_up_at(now, silence_timeout)
        } else {
            self.deadline
        };
        self.running.push(Box::pin(run_attempt(
            Arc::clone(&self.state),
            self.query.clone(),
            self.client,
            attempt,
            until,
        )));
    }

    /// Time at which to stop waiting for an upstream that is queried now. At most
    /// [`ForwardLimits::max_open`](crate::forward::ForwardLimits::max_open) upstreams are queried
    /// at the same time. A later upstream may have to wait until an earlier one is given up.
    fn give_up_at(&self, now: Instant, silence_timeout: Duration) -> Instant {
        let attempts = u32::try_from(self.state.limits.max_open).unwrap_or(u32::MAX);
        self.deadline
            .min(now + silence_timeout.saturating_mul(attempts))
    }

    /// Time for which the next upstream may be silent: an equal part of the remaining time, within
    /// limits. Dead upstreams get no part of the time while other upstreams are left to try.
    fn silence_timeout(&self, now: Instant) -> Duration {
        let alive = self.plan.iter().filter(|candidate| !candidate.dead).count();
        let sharers = if alive > 0 { alive } else { self.plan.len() };
        let part = (self.deadline - now) / u32::try_from(sharers.max(1)).unwrap_or(u32::MAX);

        part.max(MIN_SILENCE_TIMEOUT)
            .min(self.state.limits.silence_timeout)
    }

    /// Records the outcome of an attempt; returns the reply if it is the answer.
    // Differs from kube-dns, which returns SERVFAIL and REFUSED to the client. Here, the next
    // upstream is tried, as in dnsmasq and glibc.
    fn finish_attempt(&mut self, finished: FinishedAttempt) -> Option<UpstreamReply> {
        let FinishedAttempt { attempt, result } = finished;
        let now = Instant::now();
        self.pending
            .retain(|pending| pending.index != attempt.index);

        // The next attempt waits until `silent_from`. If this attempt ends earlier, the next one is
        // due at once.
        if attempt.silent_from > now {
            self.next_attempt = now;
        }

        match result {
            Ok(reply) if !reply.is_refusal() => return Some(reply),
            Ok(reply) => self.keep_refusal(attempt.index, reply, now),
            Err(failure) => {
                self.failures.push((attempt.candidate.upstream, failure));
                self.plan_retry(failure);
            }
        }
        None
    }

    /// Keeps the error response of the most preferred upstream, and shortens the wait for the
    /// other upstreams.
    fn keep_refusal(&mut self, index: usize, reply: UpstreamReply, now: Instant) {
        if self.refusal.is_none() {
            let limits = &self.state.limits;
            self.deadline = self.deadline.min(now + limits.silence_timeout);
        }

        let kept = self.refusal.as_ref();
        if kept.is_none_or(|kept| index < kept.index) {
            self.refusal = Some(RefusedAttempt { index, reply });
        }
    }

    /// Plans a second round after a pause, if all upstreams have ended with an [`UpstreamFailure`]
    /// and the last failure is not a timeout. The upstreams may be restarting.
    fn plan_retry(&mut self, last: UpstreamFailure) {
        let all_failed = self.plan.is_empty() && self.pending.is_empty() && self.refusal.is_none();
        if !all_failed || !self.retry_all || last == UpstreamFailure::Timeout {
            return;
        }

        // There is no third round.
        self.retry_all = false;
        let now = Instant::now();
        self.next_attempt = now + self.state.limits.retry_pause;
        for (upstream, _) in &self.failures {
            self.plan.push_back(UpstreamCandidate {
                upstream: upstream.clone(),
                dead: false,
                edns: self.state.health.knows_edns(upstream),
            });
        }
    }

    /// Records a timeout of every upstream that is still silent after its share of the time.
    fn record_timeouts(&self) {
        let now = Instant::now();
        for attempt in &self.pending {
            if attempt.silent_from <= now {
                record_failure(
                    &self.state,
                    &self.query.key,
                    attempt,
                    UpstreamFailure::Timeout,
                );
            }
        }
    }
}

/// Queries one upstream and records the outcome. `until` is the deadline of this attempt, which may
/// be earlier than the deadline of the whole query.
async fn run_attempt(
    state: Arc<ForwarderState>,
    query: InFlightKey,
    client: Transport,
    attempt: UpstreamAttempt,
    until: Instant,
) -> FinishedAttempt {
    let UpstreamCandidate { upstream, edns, .. } = &attempt.candidate;
    let metrics = state.metrics.upstream(upstream);
    let exchange = UpstreamExchange {
        query: &query.key.query,
        upstream,
        over_tcp: query.over_tcp,
        edns: *edns,
        deadline: until,
        limits: &state.limits,
        health: &state.health,
        pool: &state.pool,
        sockets: &state.sockets,
        metrics: &metrics,
    };
    let result = exchange.run(client).await;

    match &result {
        Ok(reply) => {
            let now = Instant::now();
            state
                .health
                .record_answer(upstream, &query.key, reply.rcode, now);
            if reply.is_refusal()
                && let Some(question) = state.health.record_refusal(upstream, &query.key, now)
            {
                spawn_probe(&state, upstream, vec![question]);
            }
        }
        Err(failure) => record_failure(&state, &query.key, &attempt, *failure),
    }
    FinishedAttempt { attempt, result }
}

/// Records the failure of an attempt. After a timeout, probes the upstream if a probe is due.
fn record_failure(
    state: &Arc<ForwarderState>,
    key: &Arc<QueryKey>,
    attempt: &UpstreamAttempt,
    failure: UpstreamFailure,
) {
    let upstream = &attempt.candidate.upstream;
    state.metrics.upstream(upstream).count_failure(failure);

    // A timeout before `silent_from` says nothing about the upstream.
    let now = Instant::now();
    let silent = failure == UpstreamFailure::Timeout;
    if silent && now < attempt.silent_from {
        return;
    }

    record_in_health(state, upstream, failure, now);
    if silent
        && let Some(question) = state
            .health
            .record_silence(upstream, key, attempt.asked, now)
    {
        spawn_probe(state, upstream, vec![question]);
    }
}

/// Records a failure of an upstream. Without a local socket the upstream was not queried, so
/// [`UpstreamFailure::NoSocket`] does not count.
fn record_in_health(
    state: &ForwarderState,
    upstream: &Upstream,
    failure: UpstreamFailure,
    now: Instant,
) {
    if failure != UpstreamFailure::NoSocket {
        let silent = failure == UpstreamFailure::Timeout;
        state.health.record_failure(upstream, silent, now);
    }
}

/// Probes an upstream in a separate task. The questions are sent one after the other, until one
/// gets an answer other than SERVFAIL and REFUSED.
pub(super) fn spawn_probe(
    state: &Arc<ForwarderState>,
    upstream: &Upstream,
    questions: Vec<Arc<QueryKey>>,
) {
    let probe = probe_upstream(Arc::clone(state), upstream.clone(), questions);
    state.tasks.spawn(probe);
}

async fn probe_upstream(
    state: Arc<ForwarderState>,
    upstream: Upstream,
    questions: Vec<Arc<QueryKey>>,
) {
    let began = Instant::now();
    let health = &state.health;
    let mut is_refused = false;
    let mut last_failure = None;
    for question in &questions {
        // A shutdown says nothing about the upstream.
        let exchange = exchange_probe(&state, &upstream, question);
        let Some(result) = state.stop.run_until_cancelled(exchange).await else {
            return;
        };

        let now = Instant::now();
        match result {
            Ok(reply) => {
                health.record_answer(&upstream, question, reply.rcode, now);
                if !reply.is_refusal() {
                    return;
                }
                is_refused = true;
            }
            Err(failure) => {
                state.metrics.upstream(&upstream).count_failure(failure);
                record_in_health(&state, &upstream, failure, now);
                last_failure = Some(failure);
            }
        }
    }

    // No question got a usable answer. An upstream that answered one of them is not dead.
    let now = Instant::now();
    if is_refused {
        health.record_refused_probe(&upstream, began, now);
    } else if let Some(failure) = last_failure {
        health.record_probe_failure(&upstream, began, now, failure.means_dead());
    }
}

/// Queries an upstream for a probe. If a query with an OPT record times out, and the upstream is
/// not known to answer such queries, the upstream is queried again without an OPT record: a device
/// on the way to the upstream may drop queries with OPT records.
async fn exchange_probe(
    state: &ForwarderState,
    upstream: &Upstream,
    question: &QueryKey,
) -> Result<UpstreamReply, UpstreamFailure> {
    let now = Instant::now();
    let exchange = UpstreamExchange {
        query: &question.query,
        upstream,
        over_tcp: false,
        edns: state.health.probes_edns(upstream, now),
        deadline: now + state.limits.budget,
        limits: &state.limits,
        health: &state.health,
        pool: &state.pool,
        sockets: &state.sockets,
        metrics: &state.metrics.upstream(upstream),
    };
    let result = exchange.run(Transport::Udp).await;
    if exchange.edns
        && let Ok(reply) = &result
    {
        let has_opt = reply.opt.is_some();
        exchange
            .health
            .record_edns_probe(exchange.upstream, has_opt, Instant::now());
    }

    let may_drop_edns = exchange.edns && !exchange.health.has_answered_edns(exchange.upstream);
    if !may_drop_edns || !matches!(result, Err(UpstreamFailure::Timeout)) {
        return result;
    }

    // The wait for the first reply may have used the whole budget, so the second query gets a
    // budget of its own.
    let deadline = Instant::now() + exchange.limits.budget;
    let without_edns = UpstreamExchange {
        edns: false,
        deadline,
        ..exchange
    };
    let result = without_edns.run(Transport::Udp).await;

    if result.is_ok() {
        exchange
            .health
            .record_lack_of_edns(exchange.upstream, Instant::now());
    }
    result
}
