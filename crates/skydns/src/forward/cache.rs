//! Cache of upstream replies. Replies are fresh within their TTLs, and stale answers replace
//! failures of the upstreams (RFC 8767).
//!
//! The cache is off unless [`Forwarder::with`](super::Forwarder::with) gets a cache. Cluster names
//! are not forwarded and therefore not cached here.
//!
//! # Cached replies
//!
//! Whole replies with NOERROR or NXDOMAIN and a TTL above zero are cached. The SOA record of a
//! negative reply sets its lifetime (RFC 2308). Truncated replies are not cached, nor are replies
//! to queries with forwarded EDNS options such as a client subnet. The key is that of the query in
//! flight. It includes the list of upstreams: replies from before an edit of the list no longer
//! match.
//!
//! # Stale replies
//!
//! A fresh reply is the answer, with its TTLs counted down. A stale reply is the answer only while
//! the upstreams fail. Failures are SERVFAIL, REFUSED, and no usable reply within
//! [`Limits::budget`](super::Limits::budget), which is the client response timer of RFC 8767,
//! section 5. All TTLs of a stale answer are 30 seconds. After a failure of the upstreams, and
//! while all of them are known to be dead, clients get the stale reply at once. The upstreams are
//! then retried every [`CacheLimits::recheck`], and no client waits for the retry.
//!
//! # Bounds
//!
//! [`CacheLimits::entries`] limits both the number of entries and their total size in KiB. Names
//! with a single query are evicted before names with repeated queries. The table is split into
//! shards, each with a read-write lock.

mod entry;
mod metrics;
mod outages;

use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::RandomState;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use tokio::time::Instant;

use entry::{Entry, State};
pub use metrics::CacheMetrics;
use outages::Outages;

use super::inflight::Outcome;
use super::key::{BorrowedKey, Key, Upstreams};
use super::{ForwardError, Reply};
use crate::wire::{self, rcode};

/// Minimum size with which an entry counts, in octets.
const SHARE: u64 = 1024;
/// Minimum number of entries in a shard. The largest reply takes the space of half of a shard's
/// entries.
const PART: usize = 128;
/// Maximum number of shards.
const MAX_PARTS: usize = 16;

/// Limits of a [`Cache`] in size and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Maximum number of entries, and maximum total size of the entries in KiB.
    pub entries: usize,
    /// Time for which a reply is kept beyond its TTL; zero disables stale answers.
    pub stale: Duration,
    /// Interval between retries of the upstreams while a stale reply is the answer.
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
pub struct Cache {
    table: quick_cache::sync::Cache<Arc<Key>, Arc<Entry>, Sizes, RandomState, Evictions>,
    limits: CacheLimits,
    metrics: CacheMetrics,
    outages: Outages,
}

/// A cached reply that is used as the answer.
#[derive(Debug)]
pub(crate) struct Found {
    entry: Arc<Entry>,
    state: State,
}

impl Found {
    /// Appends the answer to the client's query to `out`. Returns whether it is truncated.
    pub(crate) fn append_answer(&self, query: &wire::Query<'_>, out: &mut Vec<u8>) -> bool {
        self.entry.append_answer(self.state, query, out)
    }

    pub(crate) fn rcode(&self) -> u16 {
        self.entry.rcode()
    }

    fn reply(&self, key: &Key) -> Arc<Reply> {
        Arc::new(self.entry.reply(self.state, &key.query))
    }
}

impl Cache {
    /// Creates an empty cache that counts in `metrics`; `None` for a limit of zero entries.
    pub fn new(limits: CacheLimits, metrics: CacheMetrics) -> Option<Self> {
        let octets = u64::try_from(limits.entries)
            .ok()?
            .checked_mul(SHARE)
            .filter(|octets| *octets > 0)?;
        let mut options = OptionsBuilder::new();
        options
            .weight_capacity(octets)
            .estimated_items_capacity(limits.entries);
        options.shards((limits.entries / PART).clamp(1, MAX_PARTS));
        let (hasher, evictions) = (RandomState::default(), Evictions(metrics.clone()));
        let table =
            quick_cache::sync::Cache::with_options(options.build().ok()?, Sizes, hasher, evictions);
        Some(Self {
            table,
            limits,
            metrics,
            outages: Outages::default(),
        })
    }

    /// The cached answer to a client's query; `None` if an upstream must be queried.
    pub(crate) fn answer(&self, query: &wire::Query<'_>, upstreams: &Upstreams) -> Option<Found> {
        let entry = self.table.get(&BorrowedKey::of_client(query, upstreams)?)?;
        let state = entry.state(&self.limits, Instant::now())?;
        (state != State::Stale { due: true }).then(|| self.found(entry, state))
    }

    /// The cached reply to a query that would otherwise be forwarded. The second value tells
    /// whether the caller should still forward the query, to refresh the reply. A stale reply is
    /// also used before the upstreams have failed for this query, if they `are_dead`.
    pub(super) fn reply(
        &self,
        key: &Arc<Key>,
        are_dead: impl FnOnce() -> bool,
    ) -> Option<(Arc<Reply>, bool)> {
        if !key.is_cacheable() {
            return None;
        }
        let now = Instant::now();
        let known = self.table.get(key).and_then(|entry| {
            let state = entry.state(&self.limits, now).or_else(|| {
                let stale = entry.state_when_failing(&self.limits, now)?;
                let due = State::Stale { due: true };
                (matches!(stale, State::Stale { .. }) && are_dead()).then_some(due)
            })?;
            Some((entry, state))
        });
        let Some((entry, state)) = known else {
            self.metrics.misses.inc();
            return None;
        };
        let refresh =
            state == State::Stale { due: true } && entry.claim_retry(self.limits.recheck, now);
        Some((self.found(entry, state).reply(key), refresh))
    }

    /// Caches the upstreams' reply, or records that the upstreams failed.
    pub(super) fn settle(&self, key: &Arc<Key>, outcome: &Outcome) {
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

    /// Replaces a failed outcome by the cached reply, if there is one.
    pub(super) fn instead_of(&self, outcome: Outcome, key: &Arc<Key>) -> Outcome {
        if !key.is_cacheable() || outcome.as_ref().is_ok_and(|reply| !is_failure(reply)) {
            return outcome;
        }
        let known = self.table.get(key).and_then(|entry| {
            let state = entry.state_when_failing(&self.limits, Instant::now())?;
            Some(self.found(entry, state))
        });
        known.map_or(outcome, |found| Ok(found.reply(key)))
    }

    /// Removes all replies.
    pub(super) fn clear(&self) {
        self.table.clear();
    }

    /// Replaces the entry, or removes the entry if the new reply must not be cached. In both cases
    /// the older reply is obsolete.
    fn keep(&self, key: &Arc<Key>, reply: &Arc<Reply>, now: Instant) {
        self.outages
            .answered(&key.upstreams, 2 * self.limits.recheck, now);
        if !key.is_cacheable() {
            return;
        }
        match Entry::new(&key.query, reply, &self.metrics, now) {
            Some(entry) => self.table.insert(Arc::clone(key), Arc::new(entry)),
            None => drop(self.table.remove(key)),
        }
    }

    fn failed(&self, key: &Arc<Key>, now: Instant) {
        let Some(entry) = self.table.peek(key) else {
            return;
        };
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

/// Whether a reply counts as a failure (RFC 8767, section 4). RCODEs that reject the query itself,
/// such as FORMERR, do not count.
fn is_failure(reply: &Reply) -> bool {
    matches!(reply.rcode, rcode::SERVFAIL | rcode::REFUSED)
}

/// The weight of an entry is its size, but at least [`SHARE`] octets. The limit on octets therefore
/// also limits the number of entries.
#[derive(Clone, Debug)]
struct Sizes;

impl Weighter<Arc<Key>, Arc<Entry>> for Sizes {
    fn weight(&self, _: &Arc<Key>, entry: &Arc<Entry>) -> u64 {
        u64::from(entry.size()).max(SHARE)
    }
}

#[derive(Clone, Debug)]
struct Evictions(CacheMetrics);

impl Lifecycle<Arc<Key>, Arc<Entry>> for Evictions {
    type RequestState = ();

    // Only evictions call this hook; `on_evict` is also called for replaced entries.
    fn before_evict(&self, (): &mut (), _: &Arc<Key>, _: &mut Arc<Entry>) {
        self.0.evictions.inc();
    }
}

#[cfg(test)]
mod tests;
