//! Detection of upstreams that forward back to this server.
//!
//! In the simple case, an upstream is one of our own addresses; see [`is_own_address`]. In the
//! other case, an upstream is another server that forwards to us, for example a resolver on the
//! node that uses the cluster's DNS. To find such a loop, the upstream is queried for a random
//! name. If a query for that name reaches us, the upstream is part of a loop. dnsmasq detects its
//! own loops in the same way.
//!
//! The random name is below a domain for which the upstream is used. The upstream may forward other
//! names to us, which is not a loop. An example is the server of a stub domain that uses the
//! cluster's DNS for all names outside the stub domain.
//!
//! The caller decides when to check, and whether to use an upstream in a loop.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use parking_lot::Mutex;
use wire::Upstream;
use wire::{
    name::{MAX_NAME, Name},
    rtype,
};

use super::UpstreamQuery;

/// Second label of a probe's name. The first label is 16 hexadecimal digits; the domain follows.
const LABEL: &[u8] = b"\x0cforward-loop";

const DIGITS: u8 = 16;

/// Maximum number of upstreams that are queried at the same time.
pub(super) const MAX_LOOP_PROBES: usize = 64;

/// The probes in flight, with the number in the first label as key. The value tells whether the
/// probe came back.
#[derive(Debug, Default)]
pub(super) struct LoopProbes(Mutex<HashMap<u64, bool>>);

impl LoopProbes {
    /// Creates a probe for a name below `domain`; `None` if the name would be too long. The probe
    /// is recognized until it is dropped.
    pub(super) fn start_probe(&self, domain: &Name) -> Option<LoopProbe<'_>> {
        // A random name is in no cache on the way, and nobody can guess it.
        let nonce: u64 = rand::random();
        let digits = format!("{nonce:016x}");
        let name = [&[DIGITS], digits.as_bytes(), LABEL, domain.wire()].concat();
        if name.len() > MAX_NAME {
            return None;
        }

        self.0.lock().insert(nonce, false);
        Some(LoopProbe {
            loops: self,
            nonce,
            name: name.into(),
        })
    }

    /// Returns whether `name` (wire format) is the name of a probe in flight, and if so, records
    /// that the probe came back.
    pub(super) fn record_return(&self, name: &[u8]) -> bool {
        // Almost all names have another form, so they do not need the lock.
        let Some(nonce) = parse_nonce(name) else {
            return false;
        };

        let mut probes = self.0.lock();
        let Some(came_back) = probes.get_mut(&nonce) else {
            return false;
        };
        *came_back = true;
        true
    }
}

/// A query for a random name. In a loop the query comes back to this server.
pub(super) struct LoopProbe<'a> {
    loops: &'a LoopProbes,
    nonce: u64,
    name: Box<[u8]>,
}

impl LoopProbe<'_> {
    /// The query to send.
    pub(super) fn query(&self) -> UpstreamQuery {
        UpstreamQuery::new(&self.name, rtype::TXT)
    }

    /// Whether the query has come back so far.
    pub(super) fn came_back(&self) -> bool {
        self.loops
            .0
            .lock()
            .get(&self.nonce)
            .copied()
            .unwrap_or_default()
    }
}

impl Drop for LoopProbe<'_> {
    fn drop(&mut self) {
        self.loops.0.lock().remove(&self.nonce);
    }
}

fn parse_nonce(name: &[u8]) -> Option<u64> {
    let (label, below) = name.split_at_checked(usize::from(DIGITS) + 1)?;
    let (length, digits) = label.split_first()?;
    // A length octet is never a letter, so the comparison may ignore case.
    if *length != DIGITS || !below.get(..LABEL.len())?.eq_ignore_ascii_case(LABEL) {
        return None;
    }
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// Whether the upstream is this server itself, which listens on the addresses `listening`.
///
/// A server on the wildcard address `::` listens on every local address, and a server on `0.0.0.0`
/// listens on every local IPv4 address. Then every upstream with such an address and the server's
/// port is this server. The function makes system calls: call it when the configuration changes,
/// not for every query.
pub fn is_own_address(upstream: &Upstream, listening: &[SocketAddr]) -> bool {
    let address = upstream.socket_addr();
    listening.iter().any(|ours| is_same_server(address, *ours))
}

/// Whether a query to the address `upstream` reaches the socket that is bound to `ours`.
fn is_same_server(upstream: SocketAddr, ours: SocketAddr) -> bool {
    if upstream.port() != ours.port() {
        return false;
    }

    let target = upstream.ip().to_canonical();
    let bound = ours.ip().to_canonical();
    // `::` also accepts IPv4, unless IPV6_V6ONLY is set; 0.0.0.0 does not accept IPv6.
    let binds_all = bound.is_unspecified() && (bound.is_ipv6() || target.is_ipv4());
    // The kernel delivers queries for the wildcard address to the loopback address.
    let reaches_loopback =
        target.is_unspecified() && (bound.is_loopback() || bound.is_unspecified());
    target == bound || reaches_loopback || binds_all && is_local(target)
}

/// Whether the address is local. Only local addresses can be bound.
fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}
