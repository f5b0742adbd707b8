//! Cache of upstream replies. Replies are fresh within their TTLs, and stale answers replace
//! failures of the upstreams (RFC 8767).
//!
//! A [`Forwarder`](super::Forwarder) without a [`ReplyCache`] caches nothing. The cache never has
//! answers from our own zones.
//!
//! # Cached replies
//!
//! Replies with NOERROR or NXDOMAIN are cached, unless they are truncated or a TTL is zero. MINIMUM
//! of the SOA record limits the lifetime of a negative reply (RFC 2308); without an SOA record, a
//! negative reply is not cached. Replies to queries with forwarded EDNS options, such as a client
//! subnet, are not cached. Neither are replies to queries for types that are not record types, such
//! as ANY. The key of a cached reply includes the list of upstreams. After an edit of the list,
//! earlier replies no longer match.
//!
//! # Stale replies
//!
//! A fresh reply is the answer, with its TTLs counted down. A stale reply is the answer only while
//! the upstreams fail, or while the query cannot be forwarded, for example because too many queries
//! are in flight. Failures are SERVFAIL, REFUSED, and no usable reply within
//! [`ForwardLimits::budget`](super::ForwardLimits::budget), which is the client response timer of
//! RFC 8767, section 5. All TTLs of a stale answer are 30 seconds. After a failure of the
//! upstreams, clients get the stale reply at once, for the time [`CacheLimits::recheck`]. The next
//! query after that waits for the upstreams again. While all upstreams are known to be dead, no
//! client waits: once per [`CacheLimits::recheck`], a query is forwarded to refresh the reply.
//!
//! # Bounds
//!
//! [`CacheLimits::entries`] limits both the number of entries and their total size in KiB. Names
//! with a single query are evicted before names with repeated queries. The table is split into
//! shards, each with a read-write lock.

mod entry;
mod metrics;
mod outages;
mod rotation;

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use quick_cache::{Equivalent, Lifecycle, OptionsBuilder, Weighter};
use tokio::time::Instant;

use entry::{CacheEntry, CacheTime, EntryState, SharedUpstreams};
pub use metrics::CacheMetrics;
use outages::StaleOutages;
use wire::rcode;

use super::in_flight::ForwardOutcome;
use super::key::{BorrowedQueryKey, QueryKey, UpstreamList};
use super::{ForwardError, UpstreamReply};

/// Number of evicted entries whose hash the table remembers, as a fraction of the number of
/// entries. A name that comes back while its hash is remembered is kept for longer. With a larger
/// fraction, a table of the default size would need twice as many buckets.
const EVICTED: f64 = 0.4;
/// Minimum weight of an entry, in octets, even if the entry is smaller.
const MIN_WEIGHT: u64 = 1024;
/// Intended minimum number of entries in a shard, if there are several shards. `quick_cache` rounds
/// the number of shards up to a power of two, so a shard may have fewer entries. It still has room
/// for the largest reply.
const MIN_SHARD: usize = 128;
/// Maximum number of shards.
const MAX_SHARDS: usize = 16;

/// Limits of a [`ReplyCache`] in size and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Maximum number of entries, and maximum total size of the entries in KiB.
    pub entries: usize,
    /// Time for which a reply is kept beyond its TTL; zero disables stale answers.
    pub stale: Duration,
    /// Time after a failure of the upstreams during which clients get a stale reply without
    /// waiting.
    pub recheck: Duration,
}

impl Default for CacheLimits {
    /// 10,000 entries, no stale answers, and the interval of retries that RFC 8767, section 5,
    /// recommends.
    fn default() -> Self {
        Self {
            entries: 10_000,
            stale: Duration::ZERO,
            recheck: Duration::from_secs(30),
        }
    }
}

/// The cached replies.
#[derive(Debug)]
pub struct ReplyCache {
    table:
        quick_cache::sync::Cache<EntryKey, CacheEntry, EntryWeighter, RandomState, EvictionCounter>,
    /// The upstreams of the entries.
    upstreams: Mutex<Vec<SharedUpstreams>>,
    created: Instant,
    limits: CacheLimits,
    metrics: CacheMetrics,
    outages: StaleOutages,
}

/// A cached reply that is used as the answer.
#[derive(Debug)]
pub(crate) struct CachedReply {
    entry: CacheEntry,
    state: EntryState,
}

impl CachedReply {
    /// Appends the answer to the client's query to `out`. Returns whether it is truncated.
    pub(crate) fn append_answer(&self, query: &wire::Query<'_>, out: &mut Vec<u8>) -> bool {
        self.entry.append_answer(self.state, query, out)
    }

    pub(crate) fn rcode(&self) -> u16 {
        self.entry.rcode()
    }

    fn to_reply(&self, key: &QueryKey) -> Option<Arc<UpstreamReply>> {
        let reply = self.entry.aged_reply(self.state, &key.query)?;
        Some(Arc::new(reply))
    }
}

/// A cached reply to a query that would otherwise be forwarded.
pub(super) struct FoundReply {
    pub(super) reply: Arc<UpstreamReply>,
    /// Whether the caller should still forward the query, to refresh the reply.
    pub(super) refresh: bool,
}

impl ReplyCache {
    /// Creates an empty cache that counts in `metrics`; `None` for a limit of zero entries.
    pub fn new(limits: CacheLimits, metrics: CacheMetrics) -> Option<Self> {
        let octets = u64::try_from(limits.entries)
            .ok()?
            .checked_mul(MIN_WEIGHT)
            .filter(|octets| *octets > 0)?;

        let mut options = OptionsBuilder::new();
        options
            .weight_capacity(octets)
            .estimated_items_capacity(limits.entries)
            .ghost_allocation(EVICTED);
        // If there are several shards, each must have room for the largest reply.
        options.shards((limits.entries / MIN_SHARD).clamp(1, MAX_SHARDS));

        let table = quick_cache::sync::Cache::with_options(
            options.build().ok()?,
            EntryWeighter,
            RandomState::default(),
            EvictionCounter(metrics.clone()),
        );
        // A table that grows would take up to twice the memory of its entries.
        table.reserve(limits.entries);
        Some(Self {
            table,
            upstreams: Mutex::default(),
            created: Instant::now(),
            limits,
            metrics,
            outages: StaleOutages::default(),
        })
    }

    fn now(&self) -> CacheTime {
        self.time_at(Instant::now())
    }

    fn time_at(&self, now: Instant) -> CacheTime {
        let since = now.saturating_duration_since(self.created).as_millis();
        CacheTime(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// The cached answer to a client's query; `None` if the query must go to the
    /// [`Forwarder`](super::Forwarder).
    pub(crate) fn find_answer(
        &self,
        query: &wire::Query<'_>,
        upstreams: &UpstreamList,
    ) -> Option<CachedReply> {
        let key = BorrowedQueryKey::of_client(query, upstreams)?;
        let entry = self.table.get(&key)?;
        let state = entry.state_at(&self.limits, self.now())?;
        Some(self.count_use(entry, state))
    }

    /// The cached reply to a query that would otherwise be forwarded. If `are_dead` returns true, a
    /// stale reply is used even before the upstreams have failed for this query.
    pub(super) fn find_reply(
        &self,
        key: &Arc<QueryKey>,
        are_dead: impl FnOnce() -> bool,
    ) -> Option<FoundReply> {
        if !key.is_cacheable() {
            return None;
        }

        let entry = self.table.get(&key.borrowed());
        let found = entry.and_then(|entry| self.usable_reply(entry, key, are_dead));
        if found.is_none() {
            self.metrics.misses.inc();
        }
        found
    }

    /// The reply of `entry`; `None` if the query must be forwarded first.
    fn usable_reply(
        &self,
        entry: CacheEntry,
        key: &QueryKey,
        are_dead: impl FnOnce() -> bool,
    ) -> Option<FoundReply> {
        let now = self.now();
        let (state, refresh) = if let Some(state) = entry.state_at(&self.limits, now) {
            (state, false)
        } else {
            let stale = entry.state_when_failing(&self.limits, now)?;
            // If all upstreams are dead, no client waits for a query that will probably fail.
            if !are_dead() {
                return None;
            }
            // Of all callers, one refreshes the reply. The others only use it.
            (stale, entry.claim_retry(self.limits.recheck, now))
        };

        let reply = self.count_use(entry, state).to_reply(key)?;
        Some(FoundReply { reply, refresh })
    }

    /// The cached reply if it is fresh. Counts neither a hit nor a miss.
    pub(super) fn fresh_reply(&self, key: &QueryKey) -> Option<Arc<UpstreamReply>> {
        let entry = self.table.peek(&key.borrowed())?;
        let state = entry.state_at(&self.limits, self.now())?;
        let is_fresh = matches!(state, EntryState::Fresh(_));
        is_fresh
            .then(|| CachedReply { entry, state }.to_reply(key))
            .flatten()
    }

    /// Caches the upstreams' reply, or records that the upstreams failed.
    pub(super) fn record_outcome(&self, key: &Arc<QueryKey>, outcome: &ForwardOutcome) {
        let now = Instant::now();
        match outcome {
            Ok(reply) if matches!(reply.rcode, rcode::NOERROR | rcode::NXDOMAIN) => {
                self.insert_reply(key, reply, now);
            }
            Err(ForwardError::AllFailed(_)) => self.record_failure(key, now),
            Ok(reply) if reply.is_refusal() => self.record_failure(key, now),
            Ok(_) | Err(_) => {}
        }
    }

    /// Replaces a failed outcome with the cached reply, if there is a reply that is not too old.
    pub(super) fn replace_failure(
        &self,
        outcome: ForwardOutcome,
        key: &Arc<QueryKey>,
    ) -> ForwardOutcome {
        if !key.is_cacheable() || outcome.as_ref().is_ok_and(|reply| !reply.is_refusal()) {
            return outcome;
        }

        let Some(entry) = self.table.get(&key.borrowed()) else {
            return outcome;
        };
        let usable = entry.state_when_failing(&self.limits, self.now());
        let reply = usable.and_then(|state| self.count_use(entry, state).to_reply(key));
        reply.map_or(outcome, Ok)
    }

    /// Removes all replies.
    pub(super) fn clear(&self) {
        for (_, entry) in self.table.drain() {
            self.metrics.size.remove_entry(entry.size());
        }
    }

    /// Adds an entry for the reply, in place of an older entry. If the reply must not be cached,
    /// removes the older entry, which is obsolete.
    fn insert_reply(&self, key: &Arc<QueryKey>, reply: &Arc<UpstreamReply>, now: Instant) {
        let quiet = 2 * self.limits.recheck;
        self.outages.record_answer(&key.upstreams, quiet, now);
        if !key.is_cacheable() {
            return;
        }

        let size = &self.metrics.size;
        let upstreams = self.share_upstreams(&key.upstreams);
        match CacheEntry::new(key, upstreams, reply, self.time_at(now)) {
            Some(entry) => {
                size.add_entry(entry.size());
                self.table.insert(EntryKey(entry.clone()), entry);
            }
            None => {
                if let Some((_, removed)) = self.table.remove(&key.borrowed()) {
                    size.remove_entry(removed.size());
                }
            }
        }
    }

    /// Returns the list that other entries share, or a new list to share. If the list is new, lists
    /// that no entry uses are forgotten.
    fn share_upstreams(&self, upstreams: &UpstreamList) -> SharedUpstreams {
        let mut shared = self.upstreams.lock();
        if let Some(known) = shared.iter().find(|known| ***known == *upstreams) {
            return Arc::clone(known);
        }

        shared.retain(|known| Arc::strong_count(known) > 1);
        let added = SharedUpstreams::new(Arc::clone(upstreams));
        shared.push(Arc::clone(&added));
        added
    }

    fn record_failure(&self, key: &Arc<QueryKey>, now: Instant) {
        let Some(entry) = self.table.peek(&key.borrowed()) else {
            return;
        };
        let failed_at = self.time_at(now);
        if let Some(EntryState::Stale) = entry.state_when_failing(&self.limits, failed_at) {
            entry.record_failure(self.limits.recheck, failed_at);
            self.outages.record_failure(&key.upstreams, now);
        }
    }

    fn count_use(&self, entry: CacheEntry, state: EntryState) -> CachedReply {
        match state {
            EntryState::Fresh(_) => self.metrics.hits.inc(),
            EntryState::Stale => self.metrics.stale.inc(),
        }
        CachedReply { entry, state }
    }
}

/// The entry as its own key, so that the name and the upstreams are stored only once.
#[derive(Clone, Debug)]
struct EntryKey(CacheEntry);

impl Hash for EntryKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key().hash(state);
    }
}

impl PartialEq for EntryKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for EntryKey {}

impl Equivalent<EntryKey> for BorrowedQueryKey<'_> {
    fn equivalent(&self, key: &EntryKey) -> bool {
        *self == key.0.key()
    }
}

/// The weight of an entry is its size, but at least [`MIN_WEIGHT`] octets. The limit on octets
/// therefore also limits the number of entries.
#[derive(Clone, Debug)]
struct EntryWeighter;

impl Weighter<EntryKey, CacheEntry> for EntryWeighter {
    fn weight(&self, _: &EntryKey, entry: &CacheEntry) -> u64 {
        u64::from(entry.size()).max(MIN_WEIGHT)
    }
}

#[derive(Clone, Debug)]
struct EvictionCounter(CacheMetrics);

impl Lifecycle<EntryKey, CacheEntry> for EvictionCounter {
    type RequestState = ();

    // Called for evicted and rejected entries, but not for replaced entries.
    fn before_evict(&self, (): &mut (), _: &EntryKey, _: &mut CacheEntry) {
        self.0.evictions.inc();
    }

    // Called for evicted, replaced and rejected entries.
    fn on_evict(&self, (): &mut (), _: EntryKey, entry: CacheEntry) {
        self.0.size.remove_entry(entry.size());
    }
}

#[cfg(test)]
mod tests;
