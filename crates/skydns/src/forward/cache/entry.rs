//! One cached reply: its lifetime, and the answers made from the reply.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dnsconfig::Upstream;
use tokio::time::Instant;

use super::CacheLimits;
use super::key::CacheKey;
use super::metrics::{CacheMetrics, Held};
use crate::forward::{Query, Reply};
use crate::wire::{Edns, HEADER, Header, Message, Record, Section, extended_error, flag, info, rcode, rtype};

/// Upper limit of a TTL in seconds, so that a mistake in a zone does not stay for more than a day.
const MAX_TTL: u32 = 86_400;
/// Upper limit of the TTL of a negative answer, in seconds (RFC 2308, section 5).
const MAX_NEGATIVE_TTL: u32 = 10_800;
/// TTL of all records of a stale answer, in seconds (RFC 8767, section 4).
const STALE_TTL: u32 = 30;
/// Memory per entry for the table and the allocator, in octets, beyond the content. 10,000 replies with one address
/// take 6 MB.
const OVERHEAD: usize = 320;

/// State of an entry, which decides how the entry is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Fresh, with the age in seconds.
    Fresh(u32),
    /// Stale: the answer only while the upstreams fail.
    Stale {
        /// Whether the next retry of the upstreams is due.
        due: bool,
    },
}

/// A reply whose OPT record is stored apart.
#[derive(Debug)]
pub(super) struct Entry {
    /// Header, question and records.
    body: Box<[u8]>,
    /// Offsets of the TTLs in `body`.
    ttls: Box<[u16]>,
    opt: Option<Edns<Box<[u8]>>>,
    upstream: Upstream,
    received: Instant,
    lifetime: Duration,
    /// Time of the next retry of the upstreams, in milliseconds since `received`; 0 if the upstreams have not failed
    /// since then.
    recheck: AtomicU64,
    held: Held,
}

impl Entry {
    /// Creates the entry for the reply to `query`; `None` if the reply must not be cached.
    pub(super) fn new(query: &Query, reply: &Reply, metrics: &CacheMetrics, now: Instant) -> Option<Self> {
        let message = Message::parse(&reply.message).ok().filter(|_| !reply.truncated)?;
        message.question()?;
        let opt = message.records().find(is_opt);
        // The OPT record holds the upper bits of an extended RCODE (RFC 6891, section 6.1.3).
        if opt.as_ref().is_some_and(|opt| opt.ttl >> 24 != 0) {
            return None;
        }
        let lifetime = Lifetime::of(&message, query.qtype, reply.rcode)?;
        let end = opt.as_ref().map_or(message.end(), |opt| opt.range().start);
        let mut body: Box<[u8]> = reply.message.get(..end)?.into();
        let ttls = write_ttls(&message, lifetime.cap, &mut body);
        let opt: Option<Edns<Box<[u8]>>> = opt.map(|opt| Edns::of(&opt).map(Box::from));
        let size = body.len() + 2 * ttls.len() + opt.as_ref().map_or(0, |opt| opt.options.len());
        let size = size + query.name.len() + size_of::<Self>() + size_of::<CacheKey>() + OVERHEAD;
        Some(Self {
            body,
            ttls,
            opt,
            upstream: reply.upstream.clone(),
            received: now,
            lifetime: Duration::from_secs(lifetime.seconds.into()),
            recheck: AtomicU64::new(0),
            held: metrics.hold(u32::try_from(size).unwrap_or(u32::MAX)),
        })
    }

    /// Size of the entry in memory, in octets.
    pub(super) fn size(&self) -> u32 {
        self.held.size()
    }

    pub(super) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Header of the reply, with ID 0. The counts leave out the OPT record.
    pub(super) fn header(&self) -> Header {
        Header::parse(&self.body).unwrap_or(Header { id: 0, flags: 0, counts: [0; 4] })
    }

    /// Current state of the entry; `None` if the upstreams must be queried first.
    pub(super) fn state(&self, limits: &CacheLimits, now: Instant) -> Option<State> {
        let state = self.state_when_failing(limits, now)?;
        let recheck = self.recheck.load(Ordering::Relaxed);
        match state {
            State::Fresh(_) => Some(state),
            State::Stale { .. } if recheck == 0 => None,
            State::Stale { .. } => Some(State::Stale { due: milliseconds(self.age(now)) >= recheck }),
        }
    }

    /// State of the entry if the upstreams have just failed; `None` if the entry is too old.
    pub(super) fn state_when_failing(&self, limits: &CacheLimits, now: Instant) -> Option<State> {
        let age = self.age(now);
        if age < self.lifetime {
            return Some(State::Fresh(u32::try_from(age.as_secs()).unwrap_or(u32::MAX)));
        }
        (age < self.lifetime.saturating_add(limits.stale)).then_some(State::Stale { due: false })
    }

    /// Records that the upstreams failed. From now on a stale entry is the answer at once; a retry follows after
    /// `recheck`.
    pub(super) fn failed(&self, recheck: Duration, now: Instant) {
        self.recheck.store(self.after(recheck, now), Ordering::Relaxed);
    }

    /// Whether the caller should retry the upstreams. Only one caller gets true in each interval.
    pub(super) fn claim_retry(&self, recheck: Duration, now: Instant) -> bool {
        let due = self.recheck.load(Ordering::Relaxed);
        let next = self.after(recheck, now);
        due <= milliseconds(self.age(now))
            && self.recheck.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.received)
    }

    /// Converts the time `time` after `now` to milliseconds since `received`, the unit of the field `recheck`.
    fn after(&self, time: Duration, now: Instant) -> u64 {
        milliseconds(self.age(now).saturating_add(time)).max(1)
    }

    /// Appends the answer; see [`Found::append`](super::Found::append).
    pub(super) fn append(&self, state: State, name: &[u8], dnssec_ok: Option<bool>, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.body);
        let mut header = self.header();
        if let Some(dnssec_ok) = dnssec_ok {
            self.append_opt(state, dnssec_ok, out);
            header.counts[3] = header.counts[3].saturating_add(1);
        }
        let message = out.get_mut(start..).unwrap_or_default();
        if let Some(question) = message.get_mut(HEADER..HEADER + name.len()) {
            question.copy_from_slice(name);
        }
        for at in &self.ttls {
            let Some(ttl) = message.get_mut(usize::from(*at)..).and_then(<[u8]>::first_chunk_mut) else {
                break;
            };
            *ttl = match state {
                State::Fresh(age) => u32::from_be_bytes(*ttl).saturating_sub(age).to_be_bytes(),
                State::Stale { .. } => STALE_TTL.to_be_bytes(),
            };
        }
        if matches!(state, State::Stale { .. }) {
            // The upstream verified signatures that may have expired since.
            header.flags &= !flag::AD;
        }
        header.write_over(message);
    }

    fn append_opt(&self, state: State, dnssec_ok: bool, out: &mut Vec<u8>) {
        let opt = self.opt.as_ref().map_or_else(|| Edns::ours(dnssec_ok), Edns::borrowed);
        let missing = self.header().rcode() == rcode::NXDOMAIN;
        let info_code = if missing { info::STALE_NXDOMAIN } else { info::STALE_ANSWER };
        match state {
            State::Fresh(_) => opt.append(rcode::NOERROR, out),
            State::Stale { .. } => {
                let error = extended_error(info_code, "");
                opt.map(|options| [options, &error].concat()).append(rcode::NOERROR, out);
            }
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn is_opt(record: &Record<'_>) -> bool {
    record.section == Section::Additional && record.rtype == rtype::OPT
}

/// Completes `body`, a copy of `message` up to the OPT record. The header gets the counts of the remaining records,
/// ID 0 and no AA; TTLs are limited to `cap`. Returns the offsets of the TTLs.
fn write_ttls(message: &Message<'_>, cap: u32, body: &mut [u8]) -> Box<[u16]> {
    let records = || message.records().take_while(|record| !is_opt(record));
    let additional = records().filter(|record| record.section == Section::Additional).count();
    let header = message.header();
    let [questions, answers, authorities, _] = header.counts;
    let counts = [questions, answers, authorities, u16::try_from(additional).unwrap_or(u16::MAX)];
    Header { id: 0, flags: header.flags & !flag::AA, counts }.write_over(body);
    let mut places = Vec::new();
    for record in records() {
        let place = record.ttl_range();
        if let Some(ttl) = body.get_mut(place.clone()) {
            ttl.copy_from_slice(&record.ttl.min(cap).to_be_bytes());
        }
        places.extend(u16::try_from(place.start));
    }
    places.into()
}

/// The time for which a reply is fresh, and the limit of its TTLs.
struct Lifetime {
    seconds: u32,
    /// Upper limit of the TTLs of the records, in seconds.
    cap: u32,
}

impl Lifetime {
    /// The lifetime is the smallest TTL; for a negative answer, at most MINIMUM of the SOA record (RFC 2308, section
    /// 5). `None` for a lifetime of zero, and for a negative answer without SOA record.
    fn of(message: &Message<'_>, qtype: u16, code: u16) -> Option<Self> {
        let ttls = message.records().filter(|record| !is_opt(record)).map(|record| valid(record.ttl));
        let shortest = ttls.min()?;
        let positive =
            code == rcode::NOERROR && message.section(Section::Answer).any(|record| record.rtype == qtype);
        let (seconds, cap) = if positive {
            (shortest.min(MAX_TTL), MAX_TTL)
        } else {
            let seconds = shortest.min(minimum(message)?).min(MAX_NEGATIVE_TTL);
            (seconds, seconds)
        };
        (seconds > 0).then_some(Self { seconds, cap })
    }
}

/// A TTL with the most significant bit set counts as zero (RFC 2181, section 8).
fn valid(ttl: u32) -> u32 {
    if ttl > u32::MAX / 2 { 0 } else { ttl }
}

/// MINIMUM of the SOA record in the authority section, which is the last field of the record.
fn minimum(message: &Message<'_>) -> Option<u32> {
    let soa = message.section(Section::Authority).find(|record| record.rtype == rtype::SOA)?;
    soa.data().last_chunk().map(|octets| valid(u32::from_be_bytes(*octets)))
}

#[cfg(test)]
mod tests;
