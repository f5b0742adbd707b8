//! A limit on the number of queries that each client may send in a second. It is off by default.
//!
//! Each client has a bucket of `burst` queries, which refills at `qps` queries a second. A query
//! above this limit is always answered, with REFUSED: a resolver that gets no answer waits for
//! seconds, asks again, and does not learn the reason. Without an extended error, the answer is not
//! larger than the query, so attackers cannot use it for amplification. An extended error adds
//! about 50 octets. The RCODE is REFUSED, because SERVFAIL makes musl ask again at once.
//!
//! A client is a [`ClientHost`]: one IPv4 address or one IPv6 /64 network. The containers of the
//! pod, on 127.0.0.1 and `::1`, have no limit, because dnsmasq sends the queries of all its
//! clients, and probes must be answered.
//!
//! The table consists of a fixed number of sets, each for eight clients. The hash of a client
//! selects its set. A query reads only this set, so the cost is the same for any number of clients.
//! A full set forgets the client that would be the first to have its whole burst again. So forged
//! addresses that send one query each usually do not replace a client at its limit.

use std::hash::BuildHasher as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use foldhash::quality::RandomState;

use crate::client_shares::ClientHost;
use crate::client_warnings::ClientWarnings;

/// Number of sets; a power of two.
const SETS: usize = 8192;
/// Number of clients in a set. The table takes 512 KiB.
const WAYS: usize = 8;
/// Bits of an entry that tell the clients of a set apart. The other bits are a time in
/// microseconds.
const TAG_BITS: u32 = 16;
const TIME_BITS: u32 = u64::BITS - TAG_BITS;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// Maximum of [`ClientRates::burst`]: an hour, in microseconds.
const MAX_BURST: u64 = 3_600_000_000;
/// Maximum number of attempts to change an entry that other threads change at the same time.
const ATTEMPTS: usize = 4;

/// The limit of each client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientRate {
    /// Queries a second.
    pub qps: NonZeroU32,
    /// Queries that a client may send at once after a pause.
    pub burst: NonZeroU32,
}

/// The clients, each with the unused part of its limit.
#[derive(Debug)]
pub(crate) struct ClientRates {
    /// Microseconds in which the rate allows one query.
    interval: u64,
    /// Microseconds in which the rate allows the queries of a whole burst.
    burst: u64,
    start: Instant,
    hasher: RandomState,
    /// The entries, set by set: the tag of a client, and the time at which it has its whole burst
    /// again. An entry whose time has passed is free.
    entries: Box<[AtomicU64]>,
    warnings: ClientWarnings,
}

/// An entry of the table, unpacked.
#[derive(Debug, Clone, Copy)]
struct RateEntry {
    tag: u64,
    /// The time at which the client has its whole burst again, in microseconds since the start.
    full_at: u64,
}

impl RateEntry {
    fn unpack(packed: u64) -> Self {
        Self {
            tag: packed >> TIME_BITS,
            full_at: packed & TIME_MASK,
        }
    }

    fn pack(self) -> u64 {
        self.tag << TIME_BITS | self.full_at & TIME_MASK
    }
}

impl ClientRates {
    /// Creates a table without clients.
    pub(crate) fn new(rate: ClientRate) -> Self {
        // The interval is in whole microseconds, so every `qps` above 500,000 acts as 1,000,000.
        let interval = (1_000_000 / u64::from(rate.qps.get())).max(1);
        Self {
            interval,
            burst: (interval * u64::from(rate.burst.get())).clamp(interval, MAX_BURST),
            start: Instant::now(),
            hasher: RandomState::default(),
            entries: (0..SETS * WAYS).map(|_| AtomicU64::new(0)).collect(),
            warnings: ClientWarnings::default(),
        }
    }

    /// Whether a query of `client` is within the client's limit; if so, counts the query.
    pub(crate) fn admits_query(&self, client: IpAddr, now: Instant) -> bool {
        let client = client.to_canonical();
        if client == Ipv4Addr::LOCALHOST || client == Ipv6Addr::LOCALHOST {
            return true;
        }
        let hash = self.hasher.hash_one(ClientHost::from(client));
        let tag = hash >> TIME_BITS;
        let now = self.microseconds(now);

        for _ in 0..ATTEMPTS {
            let Some((entry, packed)) = self.find_entry(hash, tag) else {
                return true;
            };
            let known = RateEntry::unpack(packed);
            let full_at = if known.tag == tag { known.full_at } else { 0 };

            // Each query defers the time at which the client has its whole burst again. That time
            // may be at most one burst ahead.
            let full_at = full_at.max(now) + self.interval;
            if full_at > now + self.burst {
                return false;
            }
            let counted = RateEntry { tag, full_at }.pack();
            if entry
                .compare_exchange(packed, counted, Relaxed, Relaxed)
                .is_ok()
            {
                return true;
            }
        }
        // Other threads have changed the entry at each attempt. Admitting one query too many does
        // no harm.
        true
    }

    /// The entry of the client. If the client has no entry, the result is the entry to replace: the
    /// entry that becomes free first.
    fn find_entry(&self, hash: u64, tag: u64) -> Option<(&AtomicU64, u64)> {
        let set = usize::try_from(hash).unwrap_or_default() % SETS;
        let entries = self.entries.get(set * WAYS..(set + 1) * WAYS)?;

        let mut first_free: Option<(&AtomicU64, u64)> = None;
        for entry in entries {
            let packed = entry.load(Relaxed);
            let known = RateEntry::unpack(packed);
            if known.tag == tag && known.full_at > 0 {
                return Some((entry, packed));
            }
            if first_free.is_none_or(|(_, free)| known.full_at < RateEntry::unpack(free).full_at) {
                first_free = Some((entry, packed));
            }
        }
        first_free
    }

    /// Microseconds since the start; at least one, because zero means that an entry was never used.
    fn microseconds(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.start);
        u64::try_from(elapsed.as_micros()).map_or(TIME_MASK, |micros| micros + 1)
    }

    /// Logs a client above its limit. [`ClientWarnings`] limits the number of log lines.
    pub(crate) fn warn_of_limited(&self, client: IpAddr, now: Instant) {
        if self.warnings.take_turn(now) {
            tracing::warn!(%client, "client exceeds --client-qps; its queries above the limit get REFUSED");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn mk_rates(qps: u32, burst: u32) -> ClientRates {
        ClientRates::new(ClientRate {
            qps: NonZeroU32::new(qps).unwrap(),
            burst: NonZeroU32::new(burst).unwrap(),
        })
    }

    /// Sends `sent` queries of `client` at once, and returns how many of them are within its limit.
    fn admitted(rates: &ClientRates, client: &str, millis: u64, sent: usize) -> usize {
        let now = rates.start + Duration::from_millis(millis);
        let client = client.parse().unwrap();
        (0..sent)
            .filter(|_| rates.admits_query(client, now))
            .count()
    }

    #[test]
    fn client_gets_burst_and_rate() {
        let rates = mk_rates(10, 5);
        for (millis, client, expected) in [
            (0, "10.0.0.1", 5),
            (50, "10.0.0.1", 0),
            (100, "10.0.0.1", 1),
            (450, "10.0.0.1", 3),
            (100_000, "10.0.0.1", 5),
            // Each host has a limit of its own, and an IPv6 network is one host.
            (100_000, "10.0.0.2", 5),
            (100_000, "::ffff:10.0.0.2", 0),
            (100_000, "fd00::1", 5),
            (100_000, "fd00::2", 0),
            (100_000, "fd00:0:0:1::1", 5),
            // The containers of the pod, whose addresses are 127.0.0.1 and ::1, have no limit.
            (100_000, "127.0.0.1", 20),
            (100_000, "::1", 20),
            (100_000, "127.0.0.2", 5),
        ] {
            let found = admitted(&rates, client, millis, 20);
            assert_eq!(found, expected, "{client} at {millis} ms");
        }
    }

    #[test]
    fn forged_addresses_do_not_reset_limit_of_client() {
        let rates = mk_rates(10, 50);
        assert_eq!(admitted(&rates, "10.0.0.1", 0, 100), 50);
        // There are four times as many forged addresses as entries in the table.
        let forged = SETS * WAYS * 4;
        for address in 0..u32::try_from(forged).unwrap() {
            let address = Ipv4Addr::from_bits(0x0b00_0000 + address);
            assert!(rates.admits_query(address.into(), rates.start));
        }
        assert_eq!(admitted(&rates, "10.0.0.1", 0, 100), 0);
        assert_eq!(admitted(&rates, "10.0.0.1", 1000, 100), 10);
    }

    #[test]
    fn threads_share_limit() {
        let rates = mk_rates(1, 1000);
        let client = "10.0.0.1".parse().unwrap();
        let count = || {
            let queries = 0..10_000;
            queries
                .filter(|_| rates.admits_query(client, rates.start))
                .count()
        };
        let total: usize = std::thread::scope(|scope| {
            let threads = [scope.spawn(count), scope.spawn(count)];
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        // A query beyond the limit is admitted only if all attempts fail because of other threads.
        assert!((1000..=1100).contains(&total), "{total}");
    }

    #[test]
    fn highest_rate_admits_many_queries_at_once() {
        let rates = mk_rates(u32::MAX, u32::MAX);
        assert_eq!(admitted(&rates, "10.0.0.1", 0, 10_000), 10_000);
    }
}
