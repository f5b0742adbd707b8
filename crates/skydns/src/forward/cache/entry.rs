//! One cached reply: its lifetime, and the answers made from the reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use wire::{
    Edns, HEADER, Header, Message, Section, Upstream, extended_error, flag, info, rcode, rtype,
};

use super::CacheLimits;
use super::metrics::CacheSize;
use super::rotation::RotatedRecords;
use crate::external::STALE_TTL;
use crate::forward::key::{BorrowedQueryKey, QueryKey, UpstreamList};
use crate::forward::query::QueryKind;
use crate::forward::{UpstreamQuery, UpstreamReply, answer};

/// Upper limit of a TTL in seconds, so that a mistake in a zone does not stay for more than a day.
const MAX_TTL: u32 = 86_400;
/// Upper limit of the TTL of a negative answer, in seconds (RFC 2308, section 5).
const MAX_NEGATIVE_TTL: u32 = 10_800;
/// Memory per entry for the table, the reference counts and the allocator, in octets.
const OVERHEAD: usize = 80;

/// State of an entry, which decides how the entry is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryState {
    /// Fresh, with the age in seconds.
    Fresh(u32),
    /// Stale: the answer only while the upstreams fail.
    Stale {
        /// Whether the next retry of the upstreams is due.
        due: bool,
    },
}

/// A reply, its lifetime, and the key of its query. The memory of the cache is mostly that of its
/// entries, so nothing in an entry can be computed from the rest.
#[derive(Debug)]
pub(super) struct CacheEntry {
    /// The reply without its OPT record. The name of its question is that of the key.
    message: Box<[u8]>,
    /// The OPT record of the reply.
    opt: Option<Edns<Box<[u8]>>>,
    /// The addresses, if there are several.
    addresses: Option<Box<RotatedRecords>>,
    /// The upstreams of the key.
    upstreams: UpstreamList,
    /// Index in `upstreams` of the one that replied.
    upstream: u16,
    kind: QueryKind,
    /// Length of the query name in wire format, in octets.
    name_length: u8,
    /// RCODE, with the upper bits from the OPT record.
    rcode: u16,
    /// Whether the answer is negative, so that no TTL may exceed the lifetime.
    negative: bool,
    /// Time from `received` in which the reply is fresh, in seconds.
    lifetime: u32,
    received: Instant,
    /// Time of the next retry of the upstreams, in milliseconds since `received`; 0 if the
    /// upstreams have not failed since then.
    retry_at: AtomicU64,
    /// Counts the entry until it is dropped.
    counted: Arc<CacheSize>,
}

impl CacheEntry {
    /// Creates the entry for the reply to `key`; `None` if the reply must not be cached.
    pub(super) fn new(
        key: &QueryKey,
        reply: &UpstreamReply,
        counted: &Arc<CacheSize>,
        now: Instant,
    ) -> Option<Self> {
        if reply.truncated {
            return None;
        }
        let query = &key.query;
        let qtype = query.kind.qtype;
        let parsed = Message::parse(&reply.message).ok()?;
        let lifetime = ReplyLifetime::of_message(&parsed, qtype, reply.rcode)?;

        let addresses = matches!(qtype, rtype::A | rtype::AAAA)
            .then(|| RotatedRecords::of_message(&parsed, &reply.message, qtype));
        let upstream = key
            .upstreams
            .iter()
            .position(|one| *one == reply.upstream)?;

        // The upstream may have changed the case of the name.
        let mut message = reply.message.clone();
        message
            .get_mut(HEADER..HEADER + query.name().len())?
            .copy_from_slice(query.name());

        let entry = Self {
            message,
            opt: reply.opt.clone(),
            addresses: addresses.flatten().map(Box::new),
            upstreams: Arc::clone(&key.upstreams),
            upstream: u16::try_from(upstream).ok()?,
            kind: query.kind,
            name_length: u8::try_from(query.name().len()).ok()?,
            rcode: reply.rcode,
            negative: lifetime.negative,
            lifetime: lifetime.seconds,
            received: now,
            retry_at: AtomicU64::new(0),
            counted: Arc::clone(counted),
        };
        entry.counted.add_entry(entry.size());
        Some(entry)
    }

    /// The key of the query, which is without EDNS options.
    pub(super) fn key(&self) -> BorrowedQueryKey<'_> {
        let end = HEADER + usize::from(self.name_length);
        BorrowedQueryKey {
            name: self.message.get(HEADER..end).unwrap_or_default(),
            kind: self.kind,
            options: &[],
            upstreams: &self.upstreams,
        }
    }

    /// Size of the entry in memory, in octets. The size counts against the limit of the cache.
    pub(super) fn size(&self) -> u32 {
        let options = self.opt.as_ref().map_or(0, |opt| opt.options.len());
        let addresses = self.addresses.as_ref().map_or(0, |one| size_of_val(&**one));
        let size = size_of::<Self>() + self.message.len() + options + addresses + OVERHEAD;
        u32::try_from(size).unwrap_or(u32::MAX)
    }

    pub(super) fn rcode(&self) -> u16 {
        self.rcode
    }

    /// Current state of the entry; `None` if the upstreams must be queried first.
    pub(super) fn state_at(&self, limits: &CacheLimits, now: Instant) -> Option<EntryState> {
        let state = self.state_when_failing(limits, now)?;
        let retry_at = self.retry_at.load(Ordering::Relaxed);
        match state {
            EntryState::Fresh(_) => Some(state),
            EntryState::Stale { .. } if retry_at == 0 => None,
            EntryState::Stale { .. } => Some(EntryState::Stale {
                due: as_milliseconds(self.age_at(now)) >= retry_at,
            }),
        }
    }

    /// State of the entry if the upstreams have just failed; `None` if the entry is too old.
    pub(super) fn state_when_failing(
        &self,
        limits: &CacheLimits,
        now: Instant,
    ) -> Option<EntryState> {
        let age = self.age_at(now);
        if age < self.lifetime() {
            let seconds = u32::try_from(age.as_secs()).unwrap_or(u32::MAX);
            return Some(EntryState::Fresh(seconds));
        }

        let usable = age < self.lifetime().saturating_add(limits.stale);
        usable.then_some(EntryState::Stale { due: false })
    }

    /// Records that the upstreams failed. From now on a stale entry is the answer at once; a retry
    /// follows after `recheck`.
    pub(super) fn record_failure(&self, recheck: Duration, now: Instant) {
        let next = self.time_after(recheck, now);
        self.retry_at.store(next, Ordering::Relaxed);
    }

    /// Whether the caller should retry the upstreams. Only one caller gets true in each interval.
    pub(super) fn claim_retry(&self, recheck: Duration, now: Instant) -> bool {
        let due = self.retry_at.load(Ordering::Relaxed);
        if due > as_milliseconds(self.age_at(now)) {
            return false;
        }

        // Of several callers, the exchange succeeds for one.
        let next = self.time_after(recheck, now);
        self.retry_at
            .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    fn lifetime(&self) -> Duration {
        Duration::from_secs(self.lifetime.into())
    }

    fn age_at(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.received)
    }

    /// Converts the time `pause` after `now` to milliseconds since `received`, the unit of the
    /// field `retry_at`. Never 0, which has a meaning of its own.
    fn time_after(&self, pause: Duration, now: Instant) -> u64 {
        as_milliseconds(self.age_at(now).saturating_add(pause)).max(1)
    }

    /// Appends the answer; see [`CachedReply::append_answer`](super::CachedReply::append_answer).
    pub(super) fn append_answer(
        &self,
        state: EntryState,
        query: &wire::Query<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        let message = &self.message;
        let written = if let (EntryState::Stale { .. }, Some(edns)) = (state, &query.edns) {
            let opt = self.stale_opt(edns.dnssec_ok);
            answer::append_answer(message, Some(opt.borrowed()), self.rcode(), query, out)
        } else {
            let opt = self.opt.as_ref().map(Edns::borrowed);
            answer::append_answer(message, opt, self.rcode(), query, out)
        };

        // Up to `length`, since the OPT record that follows has no TTL to count down.
        let records = out.get_mut(start..start + written.length);
        let records = records.unwrap_or_default();
        self.write_age(state, records);
        if let Some(addresses) = &self.addresses {
            addresses.rotate(records);
        }
        written.truncated
    }

    /// The reply to `query` in this state.
    pub(super) fn aged_reply(
        &self,
        state: EntryState,
        query: &UpstreamQuery,
    ) -> Option<UpstreamReply> {
        let mut message = self.message.to_vec();
        self.write_age(state, &mut message);

        let expired = matches!(state, EntryState::Stale { .. });
        // The client must learn that the answer is stale (RFC 8914).
        let opt = if expired {
            Some(self.stale_opt(query.kind.dnssec_ok))
        } else {
            self.opt.clone()
        };
        let header = Header::parse(&message).ok()?;
        Some(UpstreamReply {
            opt,
            rcode: self.rcode,
            answers: header.counts[1],
            stale: expired,
            ..UpstreamReply::bare(message, header, self.replied_upstream()?)
        })
    }

    fn replied_upstream(&self) -> Option<&Upstream> {
        self.upstreams.get(usize::from(self.upstream))
    }

    /// Counts the TTLs down in `message`, which begins as the reply does, and clears the flags that
    /// only a reply of the upstream itself may have.
    fn write_age(&self, state: EntryState, message: &mut [u8]) {
        for at in self.ttl_offsets() {
            let rest = message.get_mut(at..);
            // A truncated answer lacks the last records.
            let Some(ttl) = rest.and_then(<[u8]>::first_chunk_mut) else {
                break;
            };
            *ttl = self.aged_ttl(state, u32::from_be_bytes(*ttl)).to_be_bytes();
        }

        let Ok(header) = Header::parse(message) else {
            return;
        };
        // The upstream verified signatures that may have expired since.
        let cleared = match state {
            EntryState::Fresh(_) => flag::AA,
            EntryState::Stale { .. } => flag::AA | flag::AD,
        };
        Header {
            flags: header.flags & !cleared,
            ..header
        }
        .write_over(message);
    }

    /// Offsets of the TTLs in the message.
    fn ttl_offsets(&self) -> impl Iterator<Item = usize> {
        let message = Message::parse(&self.message).ok();
        let records = message.into_iter().flat_map(|message| message.records());
        records.map(|record| record.ttl_range().start)
    }

    fn aged_ttl(&self, state: EntryState, ttl: u32) -> u32 {
        match state {
            EntryState::Fresh(age) => ttl.min(self.max_ttl()).saturating_sub(age),
            EntryState::Stale { .. } => STALE_TTL,
        }
    }

    /// Upper limit of the TTLs, in seconds.
    fn max_ttl(&self) -> u32 {
        if self.negative {
            self.lifetime
        } else {
            MAX_TTL
        }
    }

    /// The OPT record of a stale answer, with the extended error that says so.
    fn stale_opt(&self, dnssec_ok: bool) -> Edns<Box<[u8]>> {
        let code = if self.rcode() == rcode::NXDOMAIN {
            info::STALE_NXDOMAIN
        } else {
            info::STALE_ANSWER
        };
        let error = extended_error(code, "");

        let opt = match &self.opt {
            Some(opt) => opt.borrowed(),
            None => Edns::ours(dnssec_ok),
        };
        opt.map_options(|options| [options, &error].concat().into())
    }
}

impl Drop for CacheEntry {
    fn drop(&mut self) {
        self.counted.remove_entry(self.size());
    }
}

fn as_milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The time for which a reply is fresh.
struct ReplyLifetime {
    seconds: u32,
    /// Whether the answer is negative.
    negative: bool,
}

impl ReplyLifetime {
    /// The lifetime is the smallest TTL; for a negative answer, at most MINIMUM of the SOA record
    /// (RFC 2308, section 5). `None` for a lifetime of zero, and for a negative answer without SOA
    /// record.
    fn of_message(message: &Message<'_>, qtype: u16, code: u16) -> Option<Self> {
        let ttls = message.records().map(|record| valid_ttl(record.ttl));
        let shortest = ttls.min()?;

        let mut answers = message.section(Section::Answer);
        // An alias without a target of the type is a negative answer, too, and so is any answer to
        // a query for ANY.
        let positive = code == rcode::NOERROR && answers.any(|record| record.rtype == qtype);
        let seconds = if positive {
            shortest.min(MAX_TTL)
        } else {
            let minimum = soa_minimum(message)?;
            shortest.min(minimum).min(MAX_NEGATIVE_TTL)
        };
        (seconds > 0).then_some(Self {
            seconds,
            negative: !positive,
        })
    }
}

/// A TTL with the most significant bit set counts as zero (RFC 2181, section 8).
fn valid_ttl(ttl: u32) -> u32 {
    if ttl > u32::MAX / 2 { 0 } else { ttl }
}

/// MINIMUM of the SOA record in the authority section, which is the last field of the record.
fn soa_minimum(message: &Message<'_>) -> Option<u32> {
    let soa = message
        .section(Section::Authority)
        .find(|record| record.rtype == rtype::SOA)?;
    let minimum = soa.data().last_chunk()?;
    Some(valid_ttl(u32::from_be_bytes(*minimum)))
}

#[cfg(test)]
mod tests;
