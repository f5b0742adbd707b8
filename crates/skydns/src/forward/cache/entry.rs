//! One cached reply: its lifetime, and the answers made from the reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use wire::{Edns, Header, Message, Section, extended_error, flag, info, rcode, rtype};

use super::CacheLimits;
use super::metrics::{CacheMetrics, EntryGauge};
use super::rotation::RotatedRecords;
use crate::external::STALE_TTL;
use crate::forward::key::QueryKey;
use crate::forward::{UpstreamQuery, UpstreamReply, answer};

/// Upper limit of a TTL in seconds, so that a mistake in a zone does not stay for more than a day.
const MAX_TTL: u32 = 86_400;
/// Upper limit of the TTL of a negative answer, in seconds (RFC 2308, section 5).
const MAX_NEGATIVE_TTL: u32 = 10_800;
/// Memory per entry for the table and the allocator, in octets, beyond the content. 10,000 replies
/// with one address take 6 MB.
const OVERHEAD: usize = 320;

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

/// A reply and its lifetime.
#[derive(Debug)]
pub(super) struct CacheEntry {
    reply: Arc<UpstreamReply>,
    /// Offsets of the TTLs in the message of the reply.
    ttls: Box<[u16]>,
    /// The addresses, if there are several.
    addresses: Option<Box<RotatedRecords>>,
    /// Upper limit of the TTLs, in seconds.
    max_ttl: u32,
    received: Instant,
    lifetime: Duration,
    /// Time of the next retry of the upstreams, in milliseconds since `received`; 0 if the
    /// upstreams have not failed since then.
    retry_at: AtomicU64,
    /// Counts the entry and its size in the metrics until the entry is dropped.
    counted: EntryGauge,
}

impl CacheEntry {
    /// Creates the entry for the reply to `query`; `None` if the reply must not be cached.
    pub(super) fn new(
        query: &UpstreamQuery,
        reply: &Arc<UpstreamReply>,
        metrics: &CacheMetrics,
        now: Instant,
    ) -> Option<Self> {
        if reply.truncated {
            return None;
        }
        let message = Message::parse(&reply.message).ok()?;
        let lifetime = ReplyLifetime::of_message(&message, query.kind.qtype, reply.rcode)?;
        let ttls: Vec<u16> = message
            .records()
            .filter_map(|record| u16::try_from(record.ttl_range().start).ok())
            .collect();

        let qtype = query.kind.qtype;
        let addresses = matches!(qtype, rtype::A | rtype::AAAA)
            .then(|| RotatedRecords::of_message(&message, &reply.message, qtype));

        // The size of an entry counts against the limit of the cache.
        let octets = reply.message.len() + 2 * ttls.len() + query.name().len();
        let options = reply.opt.as_ref().map_or(0, |opt| opt.options.len());
        let fixed = size_of::<Self>() + size_of::<UpstreamReply>() + size_of::<QueryKey>();
        let size = octets + options + fixed + OVERHEAD;

        Some(Self {
            reply: Arc::clone(reply),
            ttls: ttls.into(),
            addresses: addresses.flatten().map(Box::new),
            max_ttl: lifetime.max_ttl,
            received: now,
            lifetime: Duration::from_secs(lifetime.seconds.into()),
            retry_at: AtomicU64::new(0),
            counted: metrics.count_entry(u32::try_from(size).unwrap_or(u32::MAX)),
        })
    }

    /// Size of the entry in memory, in octets.
    pub(super) fn size(&self) -> u32 {
        self.counted.size()
    }

    pub(super) fn rcode(&self) -> u16 {
        self.reply.rcode
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
        if age < self.lifetime {
            let seconds = u32::try_from(age.as_secs()).unwrap_or(u32::MAX);
            return Some(EntryState::Fresh(seconds));
        }

        let usable = age < self.lifetime.saturating_add(limits.stale);
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
        let message = &self.reply.message;
        let written = if let (EntryState::Stale { .. }, Some(edns)) = (state, &query.edns) {
            let opt = self.stale_opt(edns.dnssec_ok);
            answer::append_answer(message, Some(opt.borrowed()), self.rcode(), query, out)
        } else {
            let opt = self.reply.opt.as_ref().map(Edns::borrowed);
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
    pub(super) fn aged_reply(&self, state: EntryState, query: &UpstreamQuery) -> UpstreamReply {
        let mut message = self.reply.message.clone();
        self.write_age(state, &mut message);

        let expired = matches!(state, EntryState::Stale { .. });
        // The client must learn that the answer is stale (RFC 8914).
        let opt = if expired {
            Some(self.stale_opt(query.kind.dnssec_ok))
        } else {
            self.reply.opt.clone()
        };
        UpstreamReply {
            message,
            opt,
            upstream: self.reply.upstream.clone(),
            stale: expired,
            ..*self.reply
        }
    }

    /// Counts the TTLs down in `message`, which begins as the reply does, and clears the flags that
    /// only a reply of the upstream itself may have.
    fn write_age(&self, state: EntryState, message: &mut [u8]) {
        for at in &self.ttls {
            let rest = message.get_mut(usize::from(*at)..);
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

    fn aged_ttl(&self, state: EntryState, ttl: u32) -> u32 {
        match state {
            EntryState::Fresh(age) => ttl.min(self.max_ttl).saturating_sub(age),
            EntryState::Stale { .. } => STALE_TTL,
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

        let opt = match &self.reply.opt {
            Some(opt) => opt.borrowed(),
            None => Edns::ours(dnssec_ok),
        };
        opt.map_options(|options| [options, &error].concat().into())
    }
}

fn as_milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The time for which a reply is fresh, and the limit of its TTLs.
struct ReplyLifetime {
    seconds: u32,
    /// Upper limit of the TTLs of the records, in seconds.
    max_ttl: u32,
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
        let lifetime = if positive {
            Self {
                seconds: shortest.min(MAX_TTL),
                max_ttl: MAX_TTL,
            }
        } else {
            let minimum = soa_minimum(message)?;
            let seconds = shortest.min(minimum).min(MAX_NEGATIVE_TTL);
            Self {
                seconds,
                max_ttl: seconds,
            }
        };
        (lifetime.seconds > 0).then_some(lifetime)
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
