//! Upstreams that were found dead.
//!
//! A name that an upstream does not answer proves nothing: some names are slow to resolve everywhere. An upstream that was
//! silent to two different names, and answered nothing in between, is probed with a question that it answered before. If it
//! is silent to that too, it is dead: it is asked last, and probed every [`PROBE_EVERY`] while there are questions for it.
//! Probes run beside the questions of clients, which wait for none of them. Its first answer puts it back in its place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dnsconfig::Upstream;
use tokio::time::Instant;

use super::inflight::Key;
use crate::wire::rcode;

/// Upstreams remembered; beyond that the one unused for longest is forgotten.
const MAX_REMEMBERED: usize = 256;

/// Time between two probes of a dead upstream.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// For so long an upstream that was silent over TCP is not asked so again, where its truncated reply will do.
const TCP_PAUSE: Duration = Duration::from_secs(10);

/// A failure says nothing about an upstream any more after this: nobody may have asked it since.
const FAILURE_COUNTS: Duration = Duration::from_mins(1);

/// So many failures in a row take an upstream down.
const IN_A_ROW: u32 = 3;

#[derive(Debug, Default)]
struct State {
    last_used: Option<Instant>,
    last_answer: Option<Instant>,
    /// A question that it answered.
    known: Option<Arc<Key>>,
    /// A question that it did not answer, and nothing else since.
    silent_to: Option<Arc<Key>>,
    probing: bool,
    dead: Option<Dead>,
    /// Failures since its last answer that tell more than that a name is slow to resolve.
    failures: u32,
    last_failure: Option<Instant>,
    tcp_silent: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Dead {
    since: Instant,
    next_probe: Instant,
}

/// The upstreams of one question in the order in which to ask them.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) upstreams: Vec<Upstream>,
    /// Number of them that are believed alive; they come first.
    pub(super) alive: usize,
    /// Dead ones to be probed now, with the question to ask, if any is known.
    pub(super) probes: Vec<(Upstream, Option<Arc<Key>>)>,
}

/// The memory of upstreams.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<HashMap<Upstream, State>>);

impl Health {
    /// The upstreams as configured, each once, dead ones last.
    pub(super) fn order(&self, upstreams: &[Upstream], now: Instant) -> Order {
        let mut states = self.lock();
        let (mut alive, mut dead) = (Vec::with_capacity(upstreams.len()), Vec::new());
        let mut probes = Vec::new();
        for upstream in upstreams {
            if alive.contains(upstream) || dead.contains(upstream) {
                continue;
            }
            let state = remembered(&mut states, upstream, now);
            let Some(Dead { next_probe, .. }) = state.dead else {
                alive.push(upstream.clone());
                continue;
            };
            dead.push(upstream.clone());
            if !state.probing && next_probe <= now {
                state.probing = true;
                probes.push((upstream.clone(), state.known.clone()));
            }
        }
        let count = alive.len();
        alive.append(&mut dead);
        Order { upstreams: alive, alive: count, probes }
    }

    /// The upstream replied to a question with an RCODE.
    pub(super) fn answered(&self, upstream: &Upstream, question: &Arc<Key>, rcode: u16, now: Instant) {
        let mut states = self.lock();
        let state = remembered(&mut states, upstream, now);
        if let Some(Dead { since, .. }) = state.dead.take() {
            let lasted = now.saturating_duration_since(since);
            tracing::info!(%upstream, ?lasted, "upstream server answers again");
        }
        state.last_answer = Some(now);
        state.silent_to = None;
        (state.probing, state.failures) = (false, 0);
        if matches!(rcode, rcode::NOERROR | rcode::NXDOMAIN) {
            state.known = Some(Arc::clone(question));
        }
    }

    /// The upstream gave no reply; `silent` if it was asked and said nothing.
    pub(super) fn failed(&self, upstream: &Upstream, silent: bool, now: Instant) {
        let mut states = self.lock();
        let state = remembered(&mut states, upstream, now);
        state.last_failure = Some(now);
        // What is alive for other names may be slow for some.
        if !silent || state.known.is_none() {
            state.failures = state.failures.saturating_add(1);
        }
    }

    /// Whether the upstream fails now, as far as its last questions tell: it is dead, or failed several in a row.
    pub(super) fn is_down(&self, upstream: &Upstream, now: Instant) -> bool {
        let counts = |at: Instant| now.saturating_duration_since(at) < FAILURE_COUNTS;
        self.lock().get(upstream).is_some_and(|state| {
            state.last_failure.is_some_and(counts) && (state.dead.is_some() || state.failures >= IN_A_ROW)
        })
    }

    /// The upstream was silent to a question put to it at `asked`. Gives the question to probe it with, if it is time for
    /// that; [`Health::answered`] or [`Health::probe_failed`] must follow.
    pub(super) fn silent(
        &self,
        upstream: &Upstream,
        question: &Arc<Key>,
        asked: Instant,
        now: Instant,
    ) -> Option<Arc<Key>> {
        let mut states = self.lock();
        let state = remembered(&mut states, upstream, now);
        if state.probing || state.dead.is_some() || state.answered_since(asked) {
            return None;
        }
        let first = state.silent_to.get_or_insert_with(|| Arc::clone(question));
        if first.query.name.eq_ignore_ascii_case(&question.query.name) {
            return None;
        }
        state.probing = true;
        Some(Arc::clone(state.known.as_ref().unwrap_or(question)))
    }

    /// The upstream did not answer a probe that began at `asked`; `dead` unless that says nothing about it.
    pub(super) fn probe_failed(&self, upstream: &Upstream, asked: Instant, now: Instant, dead: bool) {
        let mut states = self.lock();
        let state = remembered(&mut states, upstream, now);
        if !state.probing || state.answered_since(asked) {
            return;
        }
        state.probing = false;
        if !dead && state.dead.is_none() {
            return;
        }
        let since = state.dead.map_or(now, |dead| dead.since);
        if state.dead.is_none() {
            tracing::warn!(%upstream, "upstream server does not answer, it is asked last until it does");
        }
        state.dead = Some(Dead { since, next_probe: now + PROBE_EVERY });
    }

    /// Was the upstream silent over TCP a moment ago?
    pub(super) fn was_silent_over_tcp(&self, upstream: &Upstream, now: Instant) -> bool {
        let states = self.lock();
        let silent = states.get(upstream).and_then(|state| state.tcp_silent);
        silent.is_some_and(|silent| now.saturating_duration_since(silent) < TCP_PAUSE)
    }

    /// The upstream was silent over TCP, or was not.
    pub(super) fn over_tcp(&self, upstream: &Upstream, now: Instant, silent: bool) {
        remembered(&mut self.lock(), upstream, now).tcp_silent = silent.then_some(now);
    }

    /// No code that holds the lock can panic half way through a change.
    fn lock(&self) -> MutexGuard<'_, HashMap<Upstream, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn answered_since(&self, asked: Instant) -> bool {
        self.last_answer.is_some_and(|answer| answer > asked)
    }
}

fn remembered<'a>(states: &'a mut HashMap<Upstream, State>, key: &Upstream, now: Instant) -> &'a mut State {
    if states.len() >= MAX_REMEMBERED && !states.contains_key(key) {
        let stalest = states.iter().min_by_key(|(_, state)| state.last_used).map(|(key, _)| key.clone());
        stalest.and_then(|stalest| states.remove(&stalest));
    }
    let state = states.entry(key.clone()).or_default();
    state.last_used = Some(now);
    state
}

#[cfg(test)]
mod tests;
