//! Which upstreams were found dead of late.
//!
//! An upstream is on probation after it refused a query outright, or was silent to two questions in a row through
//! their whole budget while it answered nobody else. On probation it is asked last. When the time is over, one
//! question puts it to the test at its old place; an answer clears it, another failure puts it on probation for twice
//! as long. Silence to one question proves nothing: some names are slow to resolve everywhere.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Transport;
use super::limits::Probation;

/// Upstreams remembered; beyond that the one unused for longest is forgotten.
const MAX_REMEMBERED: usize = 256;

/// Questions in a row without an answer that make a silent upstream a dead one.
const SILENCES: u32 = 2;

/// An upstream that answered so recently is known to be alive.
const ALIVE_FOR: Duration = Duration::from_secs(30);

/// An upstream may be dead over UDP and alive over TCP, or the other way round.
pub(super) type Peer = (SocketAddr, Transport);

/// How an upstream failed, as far as its health goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symptom {
    /// It said, or the network said for it, that nobody is there.
    Refusal,
    /// It said nothing.
    Silence,
}

impl Symptom {
    /// For the log.
    fn as_str(self) -> &'static str {
        match self {
            Self::Refusal => "refused",
            Self::Silence => "silent",
        }
    }
}

#[derive(Debug)]
struct State {
    last_used: Instant,
    last_answer: Option<Instant>,
    /// Somebody else was faster, and it has not answered since.
    overtaken: bool,
    silences: u32,
    probation: Option<Sentence>,
}

#[derive(Clone, Copy, Debug)]
struct Sentence {
    /// Since when it has been on probation, however often that was prolonged.
    since: Instant,
    until: Instant,
    length: Duration,
    /// Since when a question puts the upstream to the test.
    tested: Option<Instant>,
}

impl State {
    fn new(now: Instant) -> Self {
        Self { last_used: now, last_answer: None, overtaken: false, silences: 0, probation: None }
    }
}

/// The upstreams of one question in the order in which to ask them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) upstreams: Vec<SocketAddr>,
    /// All of them are on probation.
    pub(super) hopeless: bool,
}

/// What is remembered of upstreams.
#[derive(Debug)]
pub(super) struct Health {
    probation: Probation,
    states: Mutex<HashMap<Peer, State>>,
}

impl Health {
    pub(super) fn new(probation: Probation) -> Self {
        Self { probation, states: Mutex::default() }
    }

    /// The upstreams as configured, each once, those on probation last.
    pub(super) fn order(&self, upstreams: &[SocketAddr], transport: Transport, now: Instant) -> Order {
        let mut states = self.lock();
        let (mut alive, mut dead) = (Vec::with_capacity(upstreams.len()), Vec::new());
        for &upstream in upstreams {
            if alive.contains(&upstream) || dead.contains(&upstream) {
                continue;
            }
            let state = remembered(&mut states, (upstream, transport), now);
            match &mut state.probation {
                Some(sentence) if now < sentence.until => dead.push(upstream),
                Some(sentence) => {
                    // This question puts it to the test; until it answers, no other does.
                    *sentence = Sentence { until: now + sentence.length, tested: Some(now), ..*sentence };
                    alive.push(upstream);
                }
                None => alive.push(upstream),
            }
        }
        let hopeless = alive.is_empty();
        alive.append(&mut dead);
        Order { upstreams: alive, hopeless }
    }

    /// The upstream answered.
    pub(super) fn answered(&self, peer: Peer, now: Instant) {
        let mut states = self.lock();
        let state = remembered(&mut states, peer, now);
        if let Some(Sentence { since, .. }) = state.probation {
            let (upstream, transport) = peer;
            let lasted = now.saturating_duration_since(since);
            tracing::info!(%upstream, transport = transport.as_str(), ?lasted, "upstream server answers again");
        }
        *state = State { last_answer: Some(now), ..State::new(now) };
    }

    /// The upstream did not answer a question put to it at `asked`.
    pub(super) fn failed(&self, peer: Peer, asked: Instant, now: Instant, symptom: Symptom) {
        let mut states = self.lock();
        let state = remembered(&mut states, peer, now);
        if state.last_answer.is_some_and(|answer| answer > asked) {
            return;
        }
        state.overtaken = true;
        state.silences += 1;
        let (since, length) = match state.probation {
            // Asked as a last resort, or before the test began: that proves nothing new.
            Some(Sentence { tested, .. }) if tested.is_none_or(|since| asked < since) => return,
            Some(Sentence { since, length, .. }) => (since, length * 2),
            None if symptom == Symptom::Refusal || state.silences >= SILENCES => {
                let (upstream, transport) = peer;
                tracing::warn!(%upstream, transport = transport.as_str(), symptom = symptom.as_str(), "upstream server does not answer, it is asked last for a while");
                (now, self.probation.first)
            }
            None => return,
        };
        let length = length.min(self.probation.longest);
        state.probation = Some(Sentence { since, until: now + length, length, tested: None });
    }

    /// A less preferred upstream answered first.
    pub(super) fn overtaken(&self, peer: Peer, now: Instant) {
        let mut states = self.lock();
        remembered(&mut states, peer, now).overtaken = true;
    }

    /// Was it silent the last time it was asked, as far as is known?
    pub(super) fn is_suspect(&self, peer: Peer) -> bool {
        self.lock().get(&peer).is_some_and(|state| state.overtaken || state.probation.is_some())
    }

    /// Is it known to be alive, so that waiting for it is worth while?
    pub(super) fn is_trusted(&self, peer: Peer, now: Instant) -> bool {
        self.lock().get(&peer).is_some_and(|state| {
            !state.overtaken
                && state.last_answer.is_some_and(|answer| now.saturating_duration_since(answer) < ALIVE_FOR)
        })
    }

    /// No code that holds the lock can panic half way through a change.
    fn lock(&self) -> MutexGuard<'_, HashMap<Peer, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remembered(states: &mut HashMap<Peer, State>, key: Peer, now: Instant) -> &mut State {
    if states.len() >= MAX_REMEMBERED && !states.contains_key(&key) {
        let stalest = states.iter().min_by_key(|(_, state)| state.last_used).map(|(key, _)| *key);
        stalest.and_then(|stalest| states.remove(&stalest));
    }
    let state = states.entry(key).or_insert_with(|| State::new(now));
    state.last_used = now;
    state
}

#[cfg(test)]
mod tests;
