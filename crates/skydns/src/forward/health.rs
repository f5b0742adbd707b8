//! Detection of dead upstreams.
//!
//! One timeout does not prove a failure: some names are slow to resolve everywhere. An upstream is
//! probed when queries for two different names have timed out, and the upstream has answered no
//! query in between. The probe is the last query that the upstream answered with NOERROR or
//! NXDOMAIN, if there is one. A failure of the probe, such as a timeout, can mean that the upstream
//! is dead; see `UpstreamFailure::means_dead`. Dead upstreams are tried last. A forwarded query
//! whose upstreams include a dead one starts a probe of the dead upstream, at most once per
//! [`PROBE_EVERY`]. Probes run in separate tasks, so no client's query waits for a probe. The first
//! answer makes the upstream alive again.
//!
//! An upstream may be alive but useless: it refuses every query, with SERVFAIL or REFUSED. An
//! upstream is also probed when it has refused queries for two different names, and has given no
//! usable answer (NOERROR or NXDOMAIN) in between. If the upstream refuses the probe as well, it
//! counts as refusing until it gives a usable answer. A refusing upstream keeps its place in the
//! order, but can count as down ([`UpstreamHealth::is_down`]). After an outage, an upstream can
//! count as refusing without such a probe. An outage means that the upstream was dead, or that
//! [`IN_A_ROW`] queries in a row failed other than by a timeout. If the upstream gave usable
//! answers before the outage, and its first answer after the outage is unusable, it counts as
//! refusing at once.
//!
//! Clients' queries to an upstream that does not know EDNS have no OPT record. After
//! [`EDNS_PAUSE`], a query starts a probe with an OPT record. The query itself has none, because a
//! device on the way to the upstream may drop queries with OPT records.
//!
//! An idle probe ([`UpstreamHealth::begin_idle_probe`]) needs no client's query. It is sent to an
//! upstream that has given no usable answer for a while, even if the upstream is dead. So the state
//! of the upstream is known before clients need the upstream. If the first question gets SERVFAIL,
//! REFUSED or no answer, the probe asks a second one: one name may fail although the upstream
//! works.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::time::Instant;
use wire::Upstream;
use wire::rcode;

use super::key::QueryKey;

/// Maximum number of upstreams whose state is kept. Beyond this, the least recently used state is
/// removed.
const MAX_REMEMBERED: usize = 256;

/// Interval between probes of a dead upstream.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Time after a timeout over TCP during which truncated replies of the upstream are not retried
/// over TCP.
const TCP_PAUSE: Duration = Duration::from_secs(10);

/// Time after which an upstream that does not know EDNS gets a probe with an OPT record, to find
/// out whether it knows EDNS now.
const EDNS_PAUSE: Duration = Duration::from_mins(10);

/// Time for which an upstream can count as down after its last failure. If there were no queries in
/// this time, the upstream may have recovered unnoticed.
const FAILURE_COUNTS: Duration = Duration::from_mins(1);

/// If [`HealthState::failures`] has reached this number, the upstream can count as down.
const IN_A_ROW: u32 = 3;

/// Number of questions of an idle probe. The second one is sent only if the first gets SERVFAIL,
/// REFUSED or no answer. Without another question, the first is repeated.
const IDLE_QUESTIONS: usize = 2;

#[derive(Debug, Default)]
struct HealthState {
    last_used: Option<Instant>,
    last_answer: Option<Instant>,
    /// The last query with a usable answer (NOERROR or NXDOMAIN).
    known: Option<Arc<QueryKey>>,
    /// The first query that timed out since the last answer.
    silent_to: Option<Arc<QueryKey>>,
    probing: bool,
    dead: Option<DeadSince>,
    last_usable: Option<Instant>,
    /// The first query that was answered with SERVFAIL or REFUSED since the last usable answer.
    refused: Option<Arc<QueryKey>>,
    /// Whether the upstream counts as refusing; see [`UpstreamHealth::record_refused_probe`].
    refusing: bool,
    /// Number of idle probes since the last usable answer. It selects the first question of the
    /// next idle probe.
    idle_probes: usize,
    /// The start of the last idle probe.
    idle_probe: Option<Instant>,
    /// Failures since the last answer. Timeouts are left out once the upstream has given a usable
    /// answer: a name may be slow to resolve.
    failures: u32,
    last_failure: Option<Instant>,
    tcp_silent: Option<Instant>,
    /// The last time at which the upstream showed that it does not know EDNS; `None` if it is
    /// believed to know EDNS.
    lacked_edns: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct DeadSince {
    since: Instant,
    next_probe: Instant,
}

/// An upstream to which a query can be sent.
#[derive(Clone, Debug)]
pub(super) struct UpstreamCandidate {
    pub(super) upstream: Upstream,
    /// Whether the upstream is known to be dead.
    pub(super) dead: bool,
    /// Whether the upstream is believed to know EDNS.
    pub(super) edns: bool,
}

/// An upstream that is due for a probe, because it is dead or did not know EDNS.
#[derive(Debug)]
pub(super) struct DueProbe {
    pub(super) upstream: Upstream,
    /// The last query to which the upstream gave a usable answer, if there is one.
    pub(super) question: Option<Arc<QueryKey>>,
}

/// The upstreams of a query, in the order in which to try them: those believed alive come first.
#[derive(Debug)]
pub(super) struct UpstreamOrder {
    pub(super) candidates: Vec<UpstreamCandidate>,
    pub(super) probes: Vec<DueProbe>,
}

#[derive(Debug, Default)]
pub(super) struct UpstreamHealth(Mutex<HashMap<Upstream, HealthState, RandomState>>);

impl UpstreamHealth {
    /// Orders upstreams: first those believed alive, then the dead. Each group is in the configured
    /// order, without repetition. Also returns the probes that are due: the caller must send them.
    pub(super) fn order(&self, upstreams: &[Upstream], now: Instant) -> UpstreamOrder {
        let mut states = self.0.lock();
        let mut candidates: Vec<UpstreamCandidate> = Vec::with_capacity(upstreams.len());
        let mut probes = Vec::new();

        for upstream in upstreams {
            let mut known = candidates.iter();
            if known.any(|candidate| candidate.upstream == *upstream) {
                continue;
            }

            let state = state_of(&mut states, upstream, now);
            candidates.push(UpstreamCandidate {
                upstream: upstream.clone(),
                dead: state.dead.is_some(),
                edns: state.lacked_edns.is_none(),
            });

            if state.is_probe_due(now) && !state.probing {
                state.probing = true;
                probes.push(DueProbe {
                    upstream: upstream.clone(),
                    question: state.known.clone(),
                });
            }
        }

        // The sort is stable: each group stays in the configured order.
        candidates.sort_by_key(|candidate| candidate.dead);
        UpstreamOrder { candidates, probes }
    }

    /// Records the RCODE of a reply of the upstream to `question`.
    pub(super) fn record_answer(
        &self,
        upstream: &Upstream,
        question: &Arc<QueryKey>,
        rcode: u16,
        now: Instant,
    ) {
        let mut states = self.0.lock();
        let state = state_of(&mut states, upstream, now);
        let was_failing = state.is_failing();
        if let Some(DeadSince { since, .. }) = state.dead.take() {
            let lasted = now.saturating_duration_since(since);
            tracing::info!(%upstream, ?lasted, "upstream server answers again");
        }

        state.last_answer = Some(now);
        state.silent_to = None;
        state.probing = false;
        state.failures = 0;
        // A query without a usable answer is not a good probe: its name may cause the failure.
        if matches!(rcode, rcode::NOERROR | rcode::NXDOMAIN) {
            if state.refusing {
                tracing::info!(%upstream, "upstream server gives usable answers again");
            }
            state.known = Some(Arc::clone(question));
            state.last_usable = Some(now);
            state.refused = None;
            state.refusing = false;
            state.idle_probes = 0;
        } else if was_failing && state.known.is_some() {
            // The upstream has not recovered yet.
            state.record_refusing(upstream, now);
        }
    }

    /// Records that the upstream answered a client's query with SERVFAIL or REFUSED. If a probe is
    /// due, returns the query for the probe; the caller must then record the outcome of the probe
    /// as described at [`UpstreamHealth::begin_idle_probe`].
    pub(super) fn record_refusal(
        &self,
        upstream: &Upstream,
        question: &Arc<QueryKey>,
        now: Instant,
    ) -> Option<Arc<QueryKey>> {
        let mut states = self.0.lock();
        let state = state_of(&mut states, upstream, now);
        if state.refusing {
            state.last_failure = Some(now);
            return None;
        }

        // One name may fail everywhere, for example because of its DNSSEC signatures.
        let first = state.refused.get_or_insert_with(|| Arc::clone(question));
        if state.probing || first.query.name() == question.query.name() {
            return None;
        }
        state.probing = true;
        Some(Arc::clone(state.known.as_ref().unwrap_or(question)))
    }

    /// Records that the upstream answered a probe sent at `asked` with SERVFAIL or REFUSED. The
    /// upstream then counts as refusing, unless it has given a usable answer since `asked`, or has
    /// never given a usable answer and has refused only probes.
    pub(super) fn record_refused_probe(&self, upstream: &Upstream, asked: Instant, now: Instant) {
        let mut states = self.0.lock();
        let state = state_of(&mut states, upstream, now);
        // A client's query got a usable answer while the probe waited.
        if state.last_usable.is_some_and(|usable| usable > asked) {
            return;
        }
        // A server that has only private names may rightly refuse a probe for other names.
        if state.known.is_none() && state.refused.is_none() {
            return;
        }

        state.record_refusing(upstream, now);
    }

    /// Begins a probe of an upstream that has given no usable answer for `idle`, unless a probe is
    /// under way. Between two idle probes of an upstream that is neither dead nor refusing, at
    /// least `idle` passes. Returns the questions of the probe; none if no probe is due. Each probe
    /// begins with the next question of a cycle. The cycle has the last query that got a usable
    /// answer, if there is one, and then each of `questions`. After a usable answer, the cycle
    /// begins again.
    ///
    /// The caller sends the questions one after the other, until one gets an answer other than
    /// SERVFAIL and REFUSED. The caller calls [`UpstreamHealth::record_answer`] for each answer. If
    /// the only answers are SERVFAIL or REFUSED, the caller then calls
    /// [`UpstreamHealth::record_refused_probe`]. If there is no answer, the caller calls
    /// [`UpstreamHealth::record_probe_failure`].
    pub(super) fn begin_idle_probe(
        &self,
        upstream: &Upstream,
        questions: &[Arc<QueryKey>],
        idle: Duration,
        now: Instant,
    ) -> Vec<Arc<QueryKey>> {
        let mut states = self.0.lock();
        let state = state_of(&mut states, upstream, now);
        // If the upstream is dead or refusing, the next probe does not wait until `idle` has passed
        // since the last probe, so that the return of the upstream is noticed soon.
        let is_known_fault = state.dead.is_some() || state.refusing;
        let is_recent = |event: Instant| now.saturating_duration_since(event) < idle;
        if state.probing
            || state.last_usable.is_some_and(is_recent)
            || !is_known_fault && state.idle_probe.is_some_and(is_recent)
        {
            return Vec::new();
        }

        // The cycle has the known query only once, although `questions` may contain it.
        let known = state.known.as_ref();
        let is_known = |question: &&Arc<QueryKey>| {
            known.is_some_and(|known| known.query.name() == question.query.name())
        };
        let others = questions.iter().filter(|question| !is_known(question));
        let all: Vec<&Arc<QueryKey>> = known.into_iter().chain(others).collect();
        let Some(turn) = state.idle_probes.checked_rem(all.len()) else {
            return Vec::new();
        };

        let in_turn = all.into_iter().cycle().skip(turn).take(IDLE_QUESTIONS);
        let questions = in_turn.cloned().collect();
        state.idle_probes += 1;
        state.idle_probe = Some(now);
        state.probing = true;
        questions
    }

    /// Records that a query to the upstream got no valid reply. `silent` is true for a timeout.
    pub(super) fn record_failure(&self, upstream: &Upstream, silent: bool, now: Instant) {
        let mut states = self.0.lock();
        let state = state_of(&mut states, upstream, now);
        state.last_failure = Some(now);

        // A timeout counts only if the upstream has never given a usable answer: a good upstream
        // may be slow for some names.
        if !silent || state.known.is_none() {
            state.failures = state.failures.saturating_add(1);
        }
    }

    /// Whether the upstream is down. An upstream is down if it has failed within the last minute,
    /// and one of these conditions holds: it is dead, it is refusing, or its
    /// [failures](HealthState::failures) have reached [`IN_A_ROW`].
    pub(super) fn is_down(&self, upstream: &Upstream, now: Instant) -> bool {
        let states = self.0.lock();
        let state = states.get(upstream);
        state.is_some_and(|state| state.is_failing() && state.failed_recently(now))
    }

    /// Records that a query sent at `asked` timed out. If a probe is due, returns the query for the
    /// probe; the caller must then record the outcome of the probe as described at
    /// [`UpstreamHealth::begin_idle_probe`].
    pub(super) fn record_silence(
        &self,
        upstream: &Upstream,
        question: &Arc<QueryKey>,
        asked: Instant,
        now: Instant,
    ) -> Option<Arc<QueryKey>> {
        let mut states = self.0.lock();
        let state = state_of(&mut states, upstream, now);
        if state.probing || state.dead.is_some() || state.answered_since(asked) {
            return None;
        }

        // Silence to a second name is suspicious. Silence to the same name again is not.
        let first = state.silent_to.get_or_insert_with(|| Arc::clone(question));
        if first.query.name() == question.query.name() {
            return None;
        }
        state.probing = true;
        Some(Arc::clone(state.known.as_ref().unwrap_or(question)))
    }

    /// Records that a probe sent at `asked` failed. `dead` is true if the failure means that the
    /// upstream is dead.
    pub(super) fn record_probe_failure(
        &self,
        upstream: &Upstream,
        asked: Instant,
        now: Instant,
        dead: bool,
    ) {
        let mut states = self.0.lock();
        let state = state_of(&mut states, upstream, now);
        // A client's query was answered while the probe waited.
        if !state.probing || state.answered_since(asked) {
            return;
        }

        state.probing = false;
        if !dead && state.dead.is_none() {
            return;
        }

        // A further failed probe does not change `since`.
        let since = state.dead.map_or(now, |dead| dead.since);
        if state.dead.is_none() {
            tracing::warn!(%upstream, "upstream server does not answer, trying it last until it does");
        }
        state.dead = Some(DeadSince {
            since,
            next_probe: now + PROBE_EVERY,
        });
    }

    /// Whether the upstream was silent over TCP within the last [`TCP_PAUSE`].
    pub(super) fn was_silent_over_tcp(&self, upstream: &Upstream, now: Instant) -> bool {
        let states = self.0.lock();
        let silent = states.get(upstream).and_then(|state| state.tcp_silent);
        silent.is_some_and(|silent| now.saturating_duration_since(silent) < TCP_PAUSE)
    }

    /// Records whether the upstream was silent over TCP.
    pub(super) fn record_tcp(&self, upstream: &Upstream, now: Instant, silent: bool) {
        state_of(&mut self.0.lock(), upstream, now).tcp_silent = silent.then_some(now);
    }

    /// Whether the upstream is believed to know EDNS.
    pub(super) fn knows_edns(&self, upstream: &Upstream) -> bool {
        let states = self.0.lock();
        states
            .get(upstream)
            .is_none_or(|state| state.lacked_edns.is_none())
    }

    /// Whether a probe of the upstream has an OPT record. True if the upstream is believed to know
    /// EDNS, or if [`EDNS_PAUSE`] has passed since it last showed that it does not.
    pub(super) fn probes_edns(&self, upstream: &Upstream, now: Instant) -> bool {
        let states = self.0.lock();
        states
            .get(upstream)
            .is_none_or(|state| state.lacked_edns.is_none() || state.is_edns_probe_due(now))
    }

    /// Whether the upstream has given a usable answer (NOERROR or NXDOMAIN), and is believed to
    /// know EDNS.
    pub(super) fn has_answered_edns(&self, upstream: &Upstream) -> bool {
        let states = self.0.lock();
        states
            .get(upstream)
            .is_some_and(|state| state.known.is_some() && state.lacked_edns.is_none())
    }

    /// Records that the upstream does not know EDNS.
    pub(super) fn record_lack_of_edns(&self, upstream: &Upstream, now: Instant) {
        state_of(&mut self.0.lock(), upstream, now).lacked_edns = Some(now);
    }

    /// Records the reply to a probe with an OPT record. An upstream that did not know EDNS knows it
    /// now if the reply has an OPT record, too.
    pub(super) fn record_edns_probe(&self, upstream: &Upstream, has_opt: bool, now: Instant) {
        let mut states = self.0.lock();
        let state = state_of(&mut states, upstream, now);
        if state.lacked_edns.is_some() {
            state.lacked_edns = (!has_opt).then_some(now);
        }
    }

    /// Whether all upstreams are known to be dead, and each has failed within the last minute.
    pub(super) fn are_all_dead(&self, upstreams: &[Upstream], now: Instant) -> bool {
        let states = self.0.lock();
        upstreams.iter().all(|upstream| {
            states
                .get(upstream)
                .is_some_and(|state| state.dead.is_some() && state.failed_recently(now))
        })
    }
}

impl HealthState {
    fn is_failing(&self) -> bool {
        self.dead.is_some() || self.refusing || self.failures >= IN_A_ROW
    }

    fn record_refusing(&mut self, upstream: &Upstream, now: Instant) {
        if !self.refusing {
            tracing::warn!(%upstream, "upstream server answers every query with SERVFAIL or REFUSED");
        }
        self.refusing = true;
        self.last_failure = Some(now);
    }

    fn answered_since(&self, asked: Instant) -> bool {
        self.last_answer.is_some_and(|answer| answer > asked)
    }

    fn failed_recently(&self, now: Instant) -> bool {
        self.last_failure
            .is_some_and(|failure| now.saturating_duration_since(failure) < FAILURE_COUNTS)
    }

    /// Whether the next query to the upstream should start a probe. A dead upstream needs no
    /// separate probe for EDNS.
    fn is_probe_due(&self, now: Instant) -> bool {
        match self.dead {
            Some(dead) => dead.next_probe <= now,
            None => self.is_edns_probe_due(now),
        }
    }

    fn is_edns_probe_due(&self, now: Instant) -> bool {
        self.lacked_edns
            .is_some_and(|at| now.saturating_duration_since(at) >= EDNS_PAUSE)
    }
}

/// The state of an upstream, marked as used. A new state may evict the least recently used one.
fn state_of<'a>(
    states: &'a mut HashMap<Upstream, HealthState, RandomState>,
    upstream: &Upstream,
    now: Instant,
) -> &'a mut HealthState {
    // The number of upstreams grows with edits of the configuration.
    if states.len() >= MAX_REMEMBERED && !states.contains_key(upstream) {
        let stalest = states
            .iter()
            .min_by_key(|(_, state)| state.last_used)
            .map(|(upstream, _)| upstream.clone());
        stalest.and_then(|stalest| states.remove(&stalest));
    }

    let state = states.entry(upstream.clone()).or_default();
    state.last_used = Some(now);
    state
}

#[cfg(test)]
mod tests;
