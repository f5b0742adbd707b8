//! Replies of upstreams, kept for as long as their TTLs allow, and beyond that for when the upstreams fail (RFC 8767).
//!
//! Off unless [`Forwarder::with`](super::Forwarder::with) gets one. Cluster names are not forwarded, so they are
//! never kept here.
//!
//! # Kept replies
//!
//! Whole replies with NOERROR or NXDOMAIN and a TTL above zero; negative ones for as long as their SOA record says (RFC
//! 2308). Truncated replies are not kept, nor are those to questions with EDNS options that are forwarded, such as a client
//! subnet. A reply belongs to the list of upstreams that was asked: after an edit of the list it is not found.
//!
//! # Stale replies
//!
//! A fresh reply is the answer, its TTLs counted down. An older one is the answer only while the upstreams fail: SERVFAIL,
//! REFUSED, or nothing usable within [`Limits::budget`](super::Limits::budget), the client response timer of RFC 8767,
//! section 5. All its TTLs are 30. Once the upstreams have failed, it is the answer at once, and they are asked again every
//! [`CacheLimits::recheck`] with no client waiting.
//!
//! # Bounds
//!
//! [`CacheLimits::entries`] entries and as many KiB together. Names that are asked for repeatedly outlast those that are
//! asked for once. The table is cut into parts, each with a lock that readers share.

mod entry;
mod key;
mod metrics;
mod outages;

use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::RandomState;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use tokio::time::Instant;

use entry::{Entry, State};
use key::{BorrowedKey, CacheKey, QueryKind, Upstreams};
pub use metrics::CacheMetrics;
use outages::Outages;

use super::inflight::{Key, Outcome};
use super::{FORWARDED_FLAGS, ForwardError, Query, Reply};
use crate::wire::{self, rcode};

/// Octets that an entry counts for, at least.
const SHARE: u64 = 1024;
/// Entries of one part of the table, at least: the largest reply takes half of it.
const PART: usize = 128;
/// Parts of the table, at most.
const MAX_PARTS: usize = 16;

/// Bounds of a [`Cache`] in number and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Entries, and KiB of them all together.
    pub entries: usize,
    /// Time for which a reply is kept beyond its TTL; zero for not at all.
    pub stale: Duration,
    /// Time between two attempts to refresh a stale reply that is the answer meanwhile.
    pub recheck: Duration,
}

impl Default for CacheLimits {
    /// Nothing is served stale; the rest as RFC 8767, section 5, recommends.
    fn default() -> Self {
        Self { entries: 10_000, stale: Duration::ZERO, recheck: Duration::from_secs(30) }
    }
}

/// The replies that are kept.
#[derive(Debug)]
pub struct Cache {
    table: quick_cache::sync::Cache<CacheKey, Arc<Entry>, Sizes, RandomState, Evictions>,
    limits: CacheLimits,
    metrics: CacheMetrics,
    outages: Outages,
}

/// A kept reply that is the answer.
#[derive(Debug)]
pub(crate) struct Found {
    entry: Arc<Entry>,
    state: State,
}

impl Found {
    /// Appends the reply to `out`, with ID 0, as the answer to a question for `name`, which has the case the client sent. It
    /// has an OPT record where the question has one, whose DO bit is `dnssec_ok`.
    pub(crate) fn append(&self, name: &[u8], dnssec_ok: Option<bool>, out: &mut Vec<u8>) {
        self.entry.append(self.state, name, dnssec_ok, out);
    }

    /// RCODE.
    pub(crate) fn rcode(&self) -> u16 {
        self.entry.header().rcode()
    }

    fn reply(&self, query: &Query) -> Arc<Reply> {
        let mut message = Vec::new();
        self.append(&query.name, query.edns.as_ref().map(|edns| edns.dnssec_ok), &mut message);
        let [_, answers, ..] = self.entry.header().counts;
        let upstream = self.entry.upstream().clone();
        Arc::new(Reply { message, upstream, rcode: self.rcode(), truncated: false, answers })
    }
}

impl Cache {
    /// An empty cache that counts in `metrics`; `None` where it may hold nothing.
    pub fn new(limits: CacheLimits, metrics: CacheMetrics) -> Option<Self> {
        let octets = u64::try_from(limits.entries).ok()?.checked_mul(SHARE).filter(|octets| *octets > 0)?;
        let mut options = OptionsBuilder::new();
        options.weight_capacity(octets).estimated_items_capacity(limits.entries);
        options.shards((limits.entries / PART).clamp(1, MAX_PARTS));
        let (hasher, evictions) = (RandomState::default(), Evictions(metrics.clone()));
        let table = quick_cache::sync::Cache::with_options(options.build().ok()?, Sizes, hasher, evictions);
        Some(Self { table, limits, metrics, outages: Outages::default() })
    }

    /// The answer to a client's question, if it is known and nobody needs to be asked.
    pub(crate) fn answer(&self, query: &wire::Query<'_>, upstreams: &Upstreams) -> Option<Found> {
        let flags = query.header.flags & FORWARDED_FLAGS;
        let kind = QueryKind::of(query.qtype, query.qclass, flags, query.edns.as_ref())?;
        let entry = self.table.get(&BorrowedKey { name: query.lower(), kind, upstreams })?;
        let state = entry.state(&self.limits, Instant::now())?;
        (state != State::Failing { due: true }).then(|| self.found(entry, state))
    }

    /// The reply to a question that is about to be asked, and whether it is to be asked all the same, to refresh it.
    pub(super) fn reply(&self, key: &Key) -> Option<(Arc<Reply>, bool)> {
        let cache_key = CacheKey::of(key)?;
        let now = Instant::now();
        let known = self.table.get(&cache_key).and_then(|entry| {
            let state = entry.state(&self.limits, now)?;
            Some((entry, state))
        });
        let Some((entry, state)) = known else {
            self.metrics.misses.inc();
            return None;
        };
        let refresh = state == State::Failing { due: true } && entry.take_turn(self.limits.recheck, now);
        Some((self.found(entry, state).reply(&key.query), refresh))
    }

    /// Keeps what the upstreams replied, or takes note that they failed.
    pub(super) fn settle(&self, key: &Key, outcome: &Result<Reply, ForwardError>) {
        let now = Instant::now();
        match outcome {
            Ok(reply) if matches!(reply.rcode, rcode::NOERROR | rcode::NXDOMAIN) => {
                self.keep(key, reply, now);
            }
            Err(ForwardError::AllFailed(_)) => self.failed(key, now),
            Ok(reply) if is_failure(reply) => self.failed(key, now),
            Ok(_) | Err(_) => {}
        }
    }

    /// The reply that is kept in place of an outcome that is none, where there is one.
    pub(super) fn instead_of(&self, outcome: Outcome, key: &Key) -> Outcome {
        if outcome.as_ref().is_ok_and(|reply| !is_failure(reply)) {
            return outcome;
        }
        let known = CacheKey::of(key).and_then(|key| self.table.get(&key)).and_then(|entry| {
            let state = entry.last_resort(&self.limits, Instant::now())?;
            Some(self.found(entry, state))
        });
        known.map_or(outcome, |found| Ok(found.reply(&key.query)))
    }

    /// Removes all replies.
    pub(super) fn clear(&self) {
        self.table.clear();
    }

    /// Replaces what was known, also by nothing: what was true before the upstreams replied is not served any more.
    fn keep(&self, key: &Key, reply: &Reply, now: Instant) {
        self.outages.answered(&key.upstreams, 2 * self.limits.recheck, now);
        let Some(cache_key) = CacheKey::of(key) else { return };
        match Entry::new(&key.query, reply, &self.metrics, now) {
            Some(entry) => self.table.insert(cache_key, Arc::new(entry)),
            None => drop(self.table.remove(&cache_key)),
        }
    }

    fn failed(&self, key: &Key, now: Instant) {
        let Some(entry) = CacheKey::of(key).and_then(|key| self.table.peek(&key)) else { return };
        if let Some(State::Failing { .. }) = entry.last_resort(&self.limits, now) {
            entry.failed(self.limits.recheck, now);
            self.outages.failed(&key.upstreams, now);
        }
    }

    fn found(&self, entry: Arc<Entry>, state: State) -> Found {
        match state {
            State::Fresh(_) => self.metrics.hits.inc(),
            State::Failing { .. } => self.metrics.stale.inc(),
        }
        Found { entry, state }
    }
}

/// RFC 8767, section 4: other RCODEs than NOERROR and NXDOMAIN may be taken for a failure. Those that say that the question
/// is at fault are not.
fn is_failure(reply: &Reply) -> bool {
    matches!(reply.rcode, rcode::SERVFAIL | rcode::REFUSED)
}

/// Weighs entries: octets, but at least [`SHARE`], so that the bound of octets is one of entries, too.
#[derive(Clone, Debug)]
struct Sizes;

impl Weighter<CacheKey, Arc<Entry>> for Sizes {
    fn weight(&self, _: &CacheKey, entry: &Arc<Entry>) -> u64 {
        u64::from(entry.size()).max(SHARE)
    }
}

/// Counts evictions.
#[derive(Clone, Debug)]
struct Evictions(CacheMetrics);

impl Lifecycle<CacheKey, Arc<Entry>> for Evictions {
    type RequestState = ();

    // Unlike `on_evict`, not called for what is replaced.
    fn before_evict(&self, (): &mut (), _: &CacheKey, _: &mut Arc<Entry>) {
        self.0.evictions.inc();
    }
}

#[cfg(test)]
mod tests;
