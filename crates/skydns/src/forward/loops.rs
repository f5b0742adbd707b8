//! Detection of upstreams that forward back to this server.
//!
//! In the simple case, an upstream is one of our own addresses; see [`usable_upstreams`]. Otherwise
//! an upstream forwards to us, for example a resolver of the node that uses the cluster's DNS. Such
//! an upstream is queried for a random name. If a query for that name reaches us, the upstream is
//! part of a loop. dnsmasq detects its own loops in the same way.
//!
//! The random name is below a domain for which the upstream is used. A stub domain's server in the
//! cluster may serve that domain and forward all other names to us, which is not a loop.
//!
//! The caller decides when to check, and whether to use an upstream in a loop.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use dnsconfig::Upstream;
use parking_lot::Mutex;

use super::Query;
use crate::wire::name::{MAX_NAME, Name};
use crate::wire::rtype;

/// Second label of a probe's name. The first label is 16 hexadecimal digits; the domain follows.
const LABEL: &[u8] = b"\x0cforward-loop";

const DIGITS: u8 = 16;

/// The probes in flight, with the number in the first label as key. The value tells whether the
/// probe came back.
#[derive(Debug, Default)]
pub(super) struct Loops(Mutex<HashMap<u64, bool>>);

impl Loops {
    /// Creates a probe for a name below `domain`; `None` if the name would be too long. The probe
    /// is recognized until it is dropped.
    pub(super) fn probe(&self, domain: &Name) -> Option<Probe<'_>> {
        let nonce: u64 = rand::random();
        let digits = format!("{nonce:016x}");
        let name = [&[DIGITS], digits.as_bytes(), LABEL, domain.wire()].concat();
        if name.len() > MAX_NAME {
            return None;
        }
        self.0.lock().insert(nonce, false);
        Some(Probe {
            loops: self,
            nonce,
            name: name.into(),
        })
    }

    /// Whether `question` is one of our own probes, and records that the probe came back.
    /// `question` is a whole question, or a name alone.
    pub(super) fn notice(&self, question: &[u8]) -> bool {
        let Some(nonce) = nonce_of(question) else {
            return false;
        };
        self.0
            .lock()
            .get_mut(&nonce)
            .map(|came_back| *came_back = true)
            .is_some()
    }
}

/// A query for a random name. In a loop the query comes back to this server.
pub(super) struct Probe<'a> {
    loops: &'a Loops,
    nonce: u64,
    name: Box<[u8]>,
}

impl Probe<'_> {
    /// The query to send.
    pub(super) fn query(&self) -> Query {
        Query::new(&self.name, rtype::TXT)
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

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        self.loops.0.lock().remove(&self.nonce);
    }
}

fn nonce_of(question: &[u8]) -> Option<u64> {
    let (label, below) = question.split_at_checked(usize::from(DIGITS) + 1)?;
    let (length, digits) = label.split_first()?;
    // A length octet is never a letter, so the comparison may ignore case.
    if *length != DIGITS || !below.get(..LABEL.len())?.eq_ignore_ascii_case(LABEL) {
        return None;
    }
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// Returns the upstreams that are not this server itself, and logs a warning for each of the
/// others.
///
/// A server on a wildcard address listens on every local address. An upstream with our port and a
/// local address is then removed, too. The function makes system calls: call it when the
/// configuration changes, not for every query.
pub fn usable_upstreams(upstreams: &[Upstream], listening: &[SocketAddr]) -> Vec<Upstream> {
    let is_us = |upstream: &Upstream| {
        listening
            .iter()
            .any(|ours| leads_to(upstream.socket_addr(), *ours))
    };
    let (loops, usable): (Vec<_>, Vec<_>) = upstreams.iter().cloned().partition(is_us);
    for upstream in loops {
        tracing::warn!(%upstream, "upstream server is this server itself, ignored");
    }
    usable
}

fn leads_to(upstream: SocketAddr, ours: SocketAddr) -> bool {
    let (there, here) = (upstream.ip().to_canonical(), ours.ip().to_canonical());
    if upstream.port() != ours.port() {
        return false;
    }
    // `::` also accepts IPv4, unless IPV6_V6ONLY is set; 0.0.0.0 does not accept IPv6.
    let listens_on_all = here.is_unspecified() && (here.is_ipv6() || there.is_ipv4());
    let goes_to_loopback = there.is_unspecified() && (here.is_loopback() || here.is_unspecified());
    there == here || goes_to_loopback || listens_on_all && is_local(there)
}

/// Whether the address is local. Only local addresses can be bound.
fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}
