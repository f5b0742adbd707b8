//! Cache of upstream replies: fresh within their TTLs, and stale while the upstreams fail (RFC 8767).
//!
//! The cache is off unless [`Forwarder::with`](super::Forwarder::with) gets one. Cluster names are not forwarded,
//! so they are never cached here.
//!
//! # Cached replies
//!
//! Whole replies with NOERROR or NXDOMAIN and a TTL above zero are cached; negative replies for as long as their
//! SOA record says (RFC 2308). Truncated replies are not cached, nor are replies to queries with forwarded EDNS
//! options such as a client subnet. The key includes the list of upstreams: after an edit of the list, older
//! replies no longer match.
//!
//! # Stale replies
//!
//! A fresh reply is the answer, with its TTLs counted down. A stale reply is the answer only while the upstreams
//! fail: SERVFAIL, REFUSED, or no usable reply within [`Limits::budget`](super::Limits::budget), the client
//! response timer of RFC 8767, section 5. All its TTLs are 30. Once the upstreams have failed, the stale reply is
//! the answer at once, and the upstreams are retried every [`CacheLimits::recheck`] without a client waiting.
//!
//! # Bounds
//!
//! [`CacheLimits::entries`] bounds both the number of entries and their total size in KiB. Names with repeated queries
//! outlast names with a single query. The table is split into shards, each with a read-write lock.

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

/// Size that a smaller entry is counted with, in octets.
const SHARE: u64 = 1024;
/// Minimum number of entries in a shard: the largest reply counts as much as half of them.
const PART: usize = 128;
/// Maximum number of shards.
const MAX_PARTS: usize = 16;

/// Limits of a [`Cache`] in size and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Maximum number of entries, and of KiB of all entries together.
    pub entries: usize,
    /// Time for which a reply is kept beyond its TTL; zero disables stale answers.
    pub stale: Duration,
    /// Interval of attempts to refresh a stale reply while it is the answer.
    pub recheck: Duration,
}

impl Default for CacheLimits {
    /// No stale answers; 10,000 entries; the interval of refreshes that RFC 8767, section 5, recommends.
    fn default() -> Self {
        Self { entries: 10_000, stale: Duration::ZERO, recheck: Duration::from_secs(30) }
    }
}

/// The cached replies.
#[derive(Debug)]
pub struct Cache {
    table: quick_cache::sync::Cache<CacheKey, Arc<Entry>, Sizes, RandomState, Evictions>,
    limits: CacheLimits,
    metrics: CacheMetrics,
    outages: Outages,
}

/// A cached reply that is the answer.
#[derive(Debug)]
pub(crate) struct Found {
    entry: Arc<Entry>,
    state: State,
}

impl Found {
    /// Appends the reply to `out`, with ID 0, as the answer to a query for `name`, which has the case that the
    /// client sent. If the query has an OPT record, so has the answer, with `dnssec_ok` as its DO bit.
    pub(crate) fn append(&self, name: &[u8], dnssec_ok: Option<bool>, out: &mut Vec<u8>) {
        self.entry.append(self.state, name, dnssec_ok, out);
    }

    /// The RCODE.
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
    /// An empty cache that counts in `metrics`; `None` if it may hold no entries.
    pub fn new(limits: CacheLimits, metrics: CacheMetrics) -> Option<Self> {
        let octets = u64::try_from(limits.entries).ok()?.checked_mul(SHARE).filter(|octets| *octets > 0)?;
        let mut options = OptionsBuilder::new();
        options.weight_capacity(octets).estimated_items_capacity(limits.entries);
        options.shards((limits.entries / PART).clamp(1, MAX_PARTS));
        let (hasher, evictions) = (RandomState::default(), Evictions(metrics.clone()));
        let table = quick_cache::sync::Cache::with_options(options.build().ok()?, Sizes, hasher, evictions);
        Some(Self { table, limits, metrics, outages: Outages::default() })
    }

    /// The cached answer to a client's query, if no upstream has to be queried.
    pub(crate) fn answer(&self, query: &wire::Query<'_>, upstreams: &Upstreams) -> Option<Found> {
        let flags = query.header.flags & FORWARDED_FLAGS;
        let kind = QueryKind::of(query.qtype, query.qclass, flags, query.edns.as_ref())?;
        let entry = self.table.get(&BorrowedKey { name: query.lower(), kind, upstreams })?;
        let state = entry.state(&self.limits, Instant::now())?;
        (state != State::Stale { due: true }).then(|| self.found(entry, state))
    }

    /// The cached reply to a query that is about to be forwarded, and whether to forward it nevertheless, as a
    /// refresh.
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
        let refresh = state == State::Stale { due: true } && entry.claim_retry(self.limits.recheck, now);
        Some((self.found(entry, state).reply(&key.query), refresh))
    }

    /// Caches the upstreams' reply, or records that they failed.
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

    /// The cached reply in place of a failed outcome, if there is one.
    pub(super) fn instead_of(&self, outcome: Outcome, key: &Key) -> Outcome {
        if outcome.as_ref().is_ok_and(|reply| !is_failure(reply)) {
            return outcome;
        }
        let known = CacheKey::of(key).and_then(|key| self.table.get(&key)).and_then(|entry| {
            let state = entry.state_when_failing(&self.limits, Instant::now())?;
            Some(self.found(entry, state))
        });
        known.map_or(outcome, |found| Ok(found.reply(&key.query)))
    }

    /// Removes all replies.
    pub(super) fn clear(&self) {
        self.table.clear();
    }

    /// Replaces the entry, or removes it if the reply must not be cached: the upstreams' older reply is obsolete in
    /// any case.
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
        if let Some(State::Stale { .. }) = entry.state_when_failing(&self.limits, now) {
            entry.failed(self.limits.recheck, now);
            self.outages.failed(&key.upstreams, now);
        }
    }

    fn found(&self, entry: Arc<Entry>, state: State) -> Found {
        match state {
            State::Fresh(_) => self.metrics.hits.inc(),
            State::Stale { .. } => self.metrics.stale.inc(),
        }
        Found { entry, state }
    }
}

/// Whether a reply counts as a failure (RFC 8767, section 4). RCODEs that blame the query, such as FORMERR, do not.
fn is_failure(reply: &Reply) -> bool {
    matches!(reply.rcode, rcode::SERVFAIL | rcode::REFUSED)
}

/// Weighs entries by size, at least [`SHARE`] octets, so that the limit on octets also limits the number of
/// entries.
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

    // Unlike `on_evict`, it is not called for replaced entries.
    fn before_evict(&self, (): &mut (), _: &CacheKey, _: &mut Arc<Entry>) {
        self.0.evictions.inc();
    }
}

#[cfg(test)]
mod tests;
