//! One cached reply: its lifetime, and the answers made from the reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use triomphe::ThinArc;
use wire::{
    Edns, HEADER, Header, Message, RecordIter, Section, Upstream, extended_error, flag, info,
    rcode, rtype,
};

use super::CacheLimits;
use super::rotation::RotatedRecords;
use crate::external::STALE_TTL;
use crate::forward::key::{BorrowedQueryKey, QueryKey, UpstreamList};
use crate::forward::query::QueryKind;
use crate::forward::{UpstreamQuery, UpstreamReply, answer};

/// Upper limit of a TTL in seconds, so that a wrong record is fresh for a day at most.
const MAX_TTL: u32 = 86_400;
/// Upper limit of the TTL of a negative answer, in seconds (RFC 2308, section 5).
const MAX_NEGATIVE_TTL: u32 = 10_800;
/// Memory per entry for the table, the reference count, the length and the allocator, in octets.
const OVERHEAD: usize = 80;
/// Length of QTYPE and QCLASS, in octets.
const TYPE_AND_CLASS: usize = 4;

/// A list of upstreams that many entries share. Each entry holds only a pointer.
pub(super) type SharedUpstreams = Arc<UpstreamList>;

/// A time in milliseconds since the creation of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheTime(pub(super) u64);

/// State of an entry, which decides how the entry is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryState {
    /// Fresh, with the age in seconds.
    Fresh(u32),
    /// Stale: the lifetime has passed, but the reply can still replace a failure.
    Stale,
}

/// A reply, its lifetime, and the key of its query. Clones share the reply.
///
/// Most of the cache's memory is in its entries. So an entry is one allocation, and its key has no
/// copy of the question: name, QTYPE and QCLASS of the key are those in the question of the reply.
/// The slice of the entry has the octets of the reply without its OPT record, and then the options
/// of that record.
#[derive(Clone, Debug)]
pub(super) struct CacheEntry(ThinArc<EntryHead, u8>);

/// The data of an entry besides the octets of the reply.
#[derive(Debug)]
pub(super) struct EntryHead {
    /// The upstreams of the key.
    upstreams: SharedUpstreams,
    pub(super) received: CacheTime,
    /// The addresses, if [`CacheEntry::append_answer`] can rotate them (see [`RotatedRecords`]).
    addresses: Option<RotatedRecords>,
    /// Time after `received` during which the reply is fresh, in seconds.
    pub(super) lifetime: u32,
    /// Until this time, clients get the stale reply without waiting for the upstreams. In
    /// milliseconds since `received`; 0 until `record_failure` or `claim_retry` sets a time.
    retry_at: AtomicU32,
    /// RD, AD and CD of the query; see [`QueryKind`].
    query_flags: u16,
    /// DO of the query.
    query_dnssec_ok: bool,
    /// The OPT record of the reply, with the length of its options.
    opt: Option<Edns<u16>>,
    /// Index in `upstreams` of the upstream that replied.
    upstream: u16,
    /// RCODE, with the upper bits from the OPT record.
    rcode: u16,
    /// Length of the query name in wire format, in octets.
    name_length: u8,
    /// Whether the answer is negative. No TTL of a negative answer may exceed the lifetime.
    negative: bool,
}

impl CacheEntry {
    /// Creates the entry for the reply to `key`; `None` if the reply must not be cached.
    ///
    /// `upstreams` are those of the key, shared with other entries.
    pub(super) fn new(
        key: &QueryKey,
        upstreams: SharedUpstreams,
        reply: &UpstreamReply,
        now: CacheTime,
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
        let upstream = upstreams.iter().position(|one| *one == reply.upstream)?;
        let options = reply.opt.as_ref().map_or(&[][..], |opt| &opt.options);
        let options_length = u16::try_from(options.len()).ok()?;

        // The upstream may have changed the case of the name.
        let mut octets = [&*reply.message, options].concat();
        octets
            .get_mut(HEADER..HEADER + query.name().len())?
            .copy_from_slice(query.name());

        let head = EntryHead {
            upstreams,
            received: now,
            addresses: addresses.flatten(),
            lifetime: lifetime.seconds,
            retry_at: AtomicU32::new(0),
            query_flags: query.kind.flags,
            query_dnssec_ok: query.kind.dnssec_ok,
            opt: reply
                .opt
                .as_ref()
                .map(|opt| opt.borrowed().map_options(|_| options_length)),
            upstream: u16::try_from(upstream).ok()?,
            rcode: reply.rcode,
            name_length: u8::try_from(query.name().len()).ok()?,
            negative: lifetime.negative,
        };
        Some(Self(ThinArc::from_header_and_slice(head, &octets)))
    }

    pub(super) fn head(&self) -> &EntryHead {
        &self.0.header.header
    }

    /// The reply without its OPT record.
    pub(super) fn message(&self) -> &[u8] {
        self.split_octets().0
    }

    /// The OPT record of the reply.
    fn opt(&self) -> Option<Edns<&[u8]>> {
        let opt = self.head().opt?;
        Some(opt.map_options(|_| self.split_octets().1))
    }

    /// The message, and the options of its OPT record.
    fn split_octets(&self) -> (&[u8], &[u8]) {
        let octets = &self.0.slice;
        let options = self.head().opt.map_or(0, |opt| opt.options);
        let message = octets.len().saturating_sub(options.into());
        octets.split_at_checked(message).unwrap_or_default()
    }

    /// The key of the query. The reply was cached, so the query had no forwarded EDNS options.
    pub(super) fn key(&self) -> BorrowedQueryKey<'_> {
        let head = self.head();
        let question = self.message().get(HEADER..).unwrap_or_default();
        let (name, fields) = question
            .split_at_checked(head.name_length.into())
            .unwrap_or_default();
        let [qtype, qclass] = [0, 2].map(|at| {
            let field = fields.get(at..).and_then(<[u8]>::first_chunk);
            u16::from_be_bytes(field.copied().unwrap_or_default())
        });

        BorrowedQueryKey {
            name,
            kind: QueryKind {
                qtype,
                qclass,
                flags: head.query_flags,
                dnssec_ok: head.query_dnssec_ok,
            },
            options: &[],
            upstreams: &head.upstreams,
        }
    }

    /// Size of the entry in memory, in octets. The size counts against the limit of the cache.
    pub(super) fn size(&self) -> u32 {
        let size = size_of::<EntryHead>() + self.0.slice.len() + OVERHEAD;
        u32::try_from(size).unwrap_or(u32::MAX)
    }

    pub(super) fn rcode(&self) -> u16 {
        self.head().rcode
    }

    /// Current state of the entry; `None` if the entry is too old, or if it is stale and `retry_at`
    /// is unset or has passed (RFC 8767, section 5).
    pub(super) fn state_at(&self, limits: &CacheLimits, now: CacheTime) -> Option<EntryState> {
        let state = self.state_when_failing(limits, now)?;
        let retry_at = self.head().retry_at.load(Ordering::Relaxed);
        let is_usable = match state {
            EntryState::Fresh(_) => true,
            EntryState::Stale => as_milliseconds(self.age_at(now)) < retry_at,
        };
        is_usable.then_some(state)
    }

    /// State of the entry if the upstreams have just failed; `None` if the entry is too old.
    pub(super) fn state_when_failing(
        &self,
        limits: &CacheLimits,
        now: CacheTime,
    ) -> Option<EntryState> {
        let age = self.age_at(now);
        if age < self.lifetime() {
            let seconds = u32::try_from(age.as_secs()).unwrap_or(u32::MAX);
            return Some(EntryState::Fresh(seconds));
        }

        let usable = age < self.lifetime().saturating_add(limits.stale);
        usable.then_some(EntryState::Stale)
    }

    /// Records that the upstreams failed. Until `recheck` has passed, clients get the stale entry
    /// without waiting for the upstreams.
    pub(super) fn record_failure(&self, recheck: Duration, now: CacheTime) {
        let next = self.time_after(recheck, now);
        self.head().retry_at.store(next, Ordering::Relaxed);
    }

    /// Whether the caller should retry the upstreams. After one caller gets true, no caller gets
    /// true until `recheck` has passed.
    pub(super) fn claim_retry(&self, recheck: Duration, now: CacheTime) -> bool {
        let due = self.head().retry_at.load(Ordering::Relaxed);
        if due > as_milliseconds(self.age_at(now)) {
            return false;
        }

        // If several callers try at the same time, `compare_exchange` succeeds for only one.
        let next = self.time_after(recheck, now);
        self.head()
            .retry_at
            .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    fn lifetime(&self) -> Duration {
        Duration::from_secs(self.head().lifetime.into())
    }

    fn age_at(&self, now: CacheTime) -> Duration {
        let CacheTime(received) = self.head().received;
        Duration::from_millis(now.0.saturating_sub(received))
    }

    /// Converts the time `pause` after `now` to milliseconds since `received`, the unit of the
    /// field `retry_at`. The result is never 0, because 0 means that no time is set.
    fn time_after(&self, pause: Duration, now: CacheTime) -> u32 {
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
        let message = self.message();
        let written = if let (EntryState::Stale, Some(edns)) = (state, &query.edns) {
            let opt = self.stale_opt(edns.dnssec_ok);
            answer::append_answer(message, Some(opt.borrowed()), self.rcode(), query, out)
        } else {
            answer::append_answer(message, self.opt(), self.rcode(), query, out)
        };

        // `records` ends before the OPT record, because the OPT record has no TTL to count down.
        let records = out.get_mut(start..start + written.length);
        let records = records.unwrap_or_default();
        self.write_age(state, records);
        if let Some(addresses) = &self.head().addresses {
            addresses.rotate(records);
        }
        written.truncated
    }

    /// The reply to `query` from an entry in this state.
    pub(super) fn aged_reply(
        &self,
        state: EntryState,
        query: &UpstreamQuery,
    ) -> Option<UpstreamReply> {
        let mut message = self.message().to_vec();
        self.write_age(state, &mut message);

        let expired = matches!(state, EntryState::Stale);
        // The client must learn that the answer is stale (RFC 8914).
        let opt = if expired {
            Some(self.stale_opt(query.kind.dnssec_ok))
        } else {
            self.opt().map(|opt| opt.map_options(Box::from))
        };
        let header = Header::parse(&message).ok()?;
        Some(UpstreamReply {
            opt,
            rcode: self.rcode(),
            answers: header.counts[1],
            stale: expired,
            ..UpstreamReply::bare(message, header, self.replied_upstream()?)
        })
    }

    fn replied_upstream(&self) -> Option<&Upstream> {
        let head = self.head();
        head.upstreams.get(usize::from(head.upstream))
    }

    /// Writes the TTLs for an answer in this state into `message`, which is a copy of the reply or
    /// of its beginning. Clears the flags that an answer from the cache must not have.
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
        // AD says that the upstream verified the signatures. They may have expired since.
        let cleared = match state {
            EntryState::Fresh(_) => flag::AA,
            EntryState::Stale => flag::AA | flag::AD,
        };
        Header {
            flags: header.flags & !cleared,
            ..header
        }
        .write_over(message);
    }

    /// Offsets of the TTLs in the message.
    fn ttl_offsets(&self) -> impl Iterator<Item = usize> {
        let message = self.message();
        let counts = Header::parse(message).map_or([0; 4], |header| header.counts);
        let [_, counts @ ..] = counts;
        let question_end = HEADER + usize::from(self.head().name_length) + TYPE_AND_CLASS;

        // The message was parsed when the entry was created: names need no second check.
        let mut records = RecordIter::new(message, question_end, counts);
        std::iter::from_fn(move || records.next_unfollowed()?.ok())
            .map(|record| record.ttl_range().start)
    }

    fn aged_ttl(&self, state: EntryState, ttl: u32) -> u32 {
        match state {
            EntryState::Fresh(age) => ttl.min(self.max_ttl()).saturating_sub(age),
            EntryState::Stale => STALE_TTL,
        }
    }

    /// Upper limit of the TTLs, in seconds.
    fn max_ttl(&self) -> u32 {
        if self.head().negative {
            self.head().lifetime
        } else {
            MAX_TTL
        }
    }

    /// The OPT record of a stale answer, with the extended error for stale answers.
    fn stale_opt(&self, dnssec_ok: bool) -> Edns<Box<[u8]>> {
        let code = if self.rcode() == rcode::NXDOMAIN {
            info::STALE_NXDOMAIN
        } else {
            info::STALE_ANSWER
        };
        let error = extended_error(code, "");

        let opt = self.opt().unwrap_or_else(|| Edns::ours(dnssec_ok));
        opt.map_options(|options| [options, &error].concat().into())
    }
}

fn as_milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// The time for which a reply is fresh.
struct ReplyLifetime {
    seconds: u32,
    /// Whether the answer is negative.
    negative: bool,
}

impl ReplyLifetime {
    /// The lifetime is the smallest TTL, but at most [`MAX_TTL`]. For a negative answer, it is also
    /// at most [`MAX_NEGATIVE_TTL`] and MINIMUM of the SOA record (RFC 2308, section 5). `None` for
    /// a lifetime of zero, and for a negative answer without an SOA record.
    fn of_message(message: &Message<'_>, qtype: u16, code: u16) -> Option<Self> {
        let ttls = message.records().map(|record| valid_ttl(record.ttl));
        let shortest = ttls.min()?;

        let mut answers = message.section(Section::Answer);
        // An answer with an alias, but without a record of the type, is negative, too.
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

/// MINIMUM, the last field of the SOA record in the authority section.
fn soa_minimum(message: &Message<'_>) -> Option<u32> {
    let soa = message
        .section(Section::Authority)
        .find(|record| record.rtype == rtype::SOA)?;
    let minimum = soa.data().last_chunk()?;
    Some(valid_ttl(u32::from_be_bytes(*minimum)))
}

#[cfg(test)]
mod tests;
