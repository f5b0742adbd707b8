//! One cached reply: its lifetime, and the answers made from the reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::CacheLimits;
use super::metrics::{CacheMetrics, Held};
use crate::external::STALE_TTL;
use crate::forward::key::Key;
use crate::forward::{Query, Reply, answer};
use crate::wire::{self, Edns, Header, Message, Section, extended_error, flag, info, rcode, rtype};

/// Upper limit of a TTL in seconds, so that a mistake in a zone does not stay for more than a day.
const MAX_TTL: u32 = 86_400;
/// Upper limit of the TTL of a negative answer, in seconds (RFC 2308, section 5).
const MAX_NEGATIVE_TTL: u32 = 10_800;
/// Memory per entry for the table and the allocator, in octets, beyond the content. 10,000 replies
/// with one address take 6 MB.
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

/// A reply and its lifetime.
#[derive(Debug)]
pub(super) struct Entry {
    reply: Arc<Reply>,
    /// Offsets of the TTLs in the message of the reply.
    ttls: Box<[u16]>,
    /// Upper limit of the TTLs, in seconds.
    max_ttl: u32,
    received: Instant,
    lifetime: Duration,
    /// Time of the next retry of the upstreams, in milliseconds since `received`; 0 if the
    /// upstreams have not failed since then.
    recheck: AtomicU64,
    held: Held,
}

impl Entry {
    /// Creates the entry for the reply to `query`; `None` if the reply must not be cached.
    pub(super) fn new(
        query: &Query,
        reply: &Arc<Reply>,
        metrics: &CacheMetrics,
        now: Instant,
    ) -> Option<Self> {
        let message = Message::parse(&reply.message)
            .ok()
            .filter(|_| !reply.truncated)?;
        let lifetime = Lifetime::of(&message, query.kind.qtype, reply.rcode)?;
        let ttls: Vec<u16> = message
            .records()
            .filter_map(|record| u16::try_from(record.ttl_range().start).ok())
            .collect();

        let octets = reply.message.len() + 2 * ttls.len() + query.name().len();
        let options = reply.opt.as_ref().map_or(0, |opt| opt.options.len());
        let fixed = size_of::<Self>() + size_of::<Reply>() + size_of::<Key>() + OVERHEAD;
        let size = octets + options + fixed;

        Some(Self {
            reply: Arc::clone(reply),
            ttls: ttls.into(),
            max_ttl: lifetime.cap,
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

    pub(super) fn rcode(&self) -> u16 {
        self.reply.rcode
    }

    /// Current state of the entry; `None` if the upstreams must be queried first.
    pub(super) fn state(&self, limits: &CacheLimits, now: Instant) -> Option<State> {
        let state = self.state_when_failing(limits, now)?;
        let recheck = self.recheck.load(Ordering::Relaxed);
        match state {
            State::Fresh(_) => Some(state),
            State::Stale { .. } if recheck == 0 => None,
            State::Stale { .. } => Some(State::Stale {
                due: milliseconds(self.age(now)) >= recheck,
            }),
        }
    }

    /// State of the entry if the upstreams have just failed; `None` if the entry is too old.
    pub(super) fn state_when_failing(&self, limits: &CacheLimits, now: Instant) -> Option<State> {
        let age = self.age(now);
        if age < self.lifetime {
            return Some(State::Fresh(
                u32::try_from(age.as_secs()).unwrap_or(u32::MAX),
            ));
        }
        (age < self.lifetime.saturating_add(limits.stale)).then_some(State::Stale { due: false })
    }

    /// Records that the upstreams failed. From now on a stale entry is the answer at once; a retry
    /// follows after `recheck`.
    pub(super) fn failed(&self, recheck: Duration, now: Instant) {
        self.recheck
            .store(self.after(recheck, now), Ordering::Relaxed);
    }

    /// Whether the caller should retry the upstreams. Only one caller gets true in each interval.
    pub(super) fn claim_retry(&self, recheck: Duration, now: Instant) -> bool {
        let due = self.recheck.load(Ordering::Relaxed);
        let next = self.after(recheck, now);
        due <= milliseconds(self.age(now))
            && self
                .recheck
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.received)
    }

    /// Converts the time `time` after `now` to milliseconds since `received`, the unit of the field
    /// `recheck`.
    fn after(&self, time: Duration, now: Instant) -> u64 {
        milliseconds(self.age(now).saturating_add(time)).max(1)
    }

    /// Appends the answer; see [`Found::append_answer`](super::Found::append_answer).
    pub(super) fn append_answer(
        &self,
        state: State,
        query: &wire::Query<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        let opt = self.reply.opt.as_ref().map(Edns::borrowed);
        let written = match (state, &query.edns) {
            (State::Stale { .. }, Some(edns)) => {
                let opt = self.stale_opt(edns.dnssec_ok);
                answer::append(
                    &self.reply.message,
                    Some(opt.borrowed()),
                    self.rcode(),
                    query,
                    out,
                )
            }
            _ => answer::append(&self.reply.message, opt, self.rcode(), query, out),
        };
        self.write_age(
            state,
            out.get_mut(start..start + written.length)
                .unwrap_or_default(),
        );
        written.truncated
    }

    /// The reply to `query` in this state.
    pub(super) fn reply(&self, state: State, query: &Query) -> Reply {
        let mut message = self.reply.message.clone();
        self.write_age(state, &mut message);
        let upstream = self.reply.upstream.clone();
        match state {
            State::Fresh(_) => {
                let opt = self.reply.opt.clone();
                Reply {
                    message,
                    opt,
                    upstream,
                    stale: false,
                    ..*self.reply
                }
            }
            State::Stale { .. } => {
                let opt = Some(self.stale_opt(query.kind.dnssec_ok));
                Reply {
                    message,
                    opt,
                    upstream,
                    stale: true,
                    ..*self.reply
                }
            }
        }
    }

    /// Counts the TTLs down in `message`, which begins as the reply does, and clears the flags that
    /// only a reply of the upstream itself may have.
    fn write_age(&self, state: State, message: &mut [u8]) {
        for at in &self.ttls {
            let Some(ttl) = message
                .get_mut(usize::from(*at)..)
                .and_then(<[u8]>::first_chunk_mut)
            else {
                break;
            };
            *ttl = match state {
                State::Fresh(age) => u32::from_be_bytes(*ttl)
                    .min(self.max_ttl)
                    .saturating_sub(age)
                    .to_be_bytes(),
                State::Stale { .. } => STALE_TTL.to_be_bytes(),
            };
        }

        if let Ok(header) = Header::parse(message) {
            // The upstream verified signatures that may have expired since.
            let cleared = match state {
                State::Fresh(_) => flag::AA,
                State::Stale { .. } => flag::AA | flag::AD,
            };
            Header {
                flags: header.flags & !cleared,
                ..header
            }
            .write_over(message);
        }
    }

    /// The OPT record of a stale answer, with the extended error that says so.
    fn stale_opt(&self, dnssec_ok: bool) -> Edns<Box<[u8]>> {
        let missing = self.rcode() == rcode::NXDOMAIN;
        let error = extended_error(
            if missing {
                info::STALE_NXDOMAIN
            } else {
                info::STALE_ANSWER
            },
            "",
        );
        let opt = self
            .reply
            .opt
            .as_ref()
            .map_or_else(|| Edns::ours(dnssec_ok), Edns::borrowed);
        opt.map(|options| [options, &error].concat().into())
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The time for which a reply is fresh, and the limit of its TTLs.
struct Lifetime {
    seconds: u32,
    /// Upper limit of the TTLs of the records, in seconds.
    cap: u32,
}

impl Lifetime {
    /// The lifetime is the smallest TTL; for a negative answer, at most MINIMUM of the SOA record
    /// (RFC 2308, section 5). `None` for a lifetime of zero, and for a negative answer without SOA
    /// record.
    fn of(message: &Message<'_>, qtype: u16, code: u16) -> Option<Self> {
        let ttls = message.records().map(|record| valid(record.ttl));
        let shortest = ttls.min()?;
        let positive = code == rcode::NOERROR
            && message
                .section(Section::Answer)
                .any(|record| record.rtype == qtype);
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
    let soa = message
        .section(Section::Authority)
        .find(|record| record.rtype == rtype::SOA)?;
    soa.data()
        .last_chunk()
        .map(|octets| valid(u32::from_be_bytes(*octets)))
}

#[cfg(test)]
mod tests;
