//! Upstreams that lead back to ourselves.
//!
//! The plain case is an upstream that is one of our own addresses: [`usable_upstreams`]. The other one is an upstream
//! that forwards to us, such as a resolver of the node that was told to use the cluster's DNS: it is asked for a name
//! that nobody else can know, and if we are asked for that name in turn, we know which upstream it came back through.
//! dnsmasq finds its own loops in the same way.
//!
//! The name is below a domain for which the upstream is used. A stub domain's server in the cluster may well know that
//! domain itself and forward all else to us: that is no loop.
//!
//! When to look, and what becomes of an upstream that leads back, is the caller's business.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dnsconfig::Upstream;

use super::Query;
use crate::wire::name::{MAX_NAME, Name};
use crate::wire::rtype;

/// Names asked for to find loops are a label of sixteen hexadecimal digits, this label and a domain.
const LABEL: &[u8] = b"\x0cforward-loop";

const DIGITS: u8 = 16;

/// The names that are being asked for, by their digits, and whether they came back.
#[derive(Debug, Default)]
pub(super) struct Loops(Mutex<HashMap<u64, bool>>);

impl Loops {
    /// A question below `domain` that tells, while the probe lives, whether it came back; none where the domain's name
    /// leaves no room for it.
    pub(super) fn probe(&self, domain: &Name) -> Option<Probe<'_>> {
        let nonce: u64 = rand::random();
        let digits = format!("{nonce:016x}");
        let name = [&[DIGITS], digits.as_bytes(), LABEL, domain.wire()].concat();
        if name.len() > MAX_NAME {
            return None;
        }
        self.probes().insert(nonce, false);
        Some(Probe { loops: self, nonce, name: name.into() })
    }

    /// Is this one of our own questions, come back? It may be a whole question, or its name alone.
    pub(super) fn notice(&self, question: &[u8]) -> bool {
        let Some(nonce) = nonce_of(question) else { return false };
        self.probes().get_mut(&nonce).map(|came_back| *came_back = true).is_some()
    }

    /// No code that holds a lock can panic half way through a change.
    fn probes(&self) -> MutexGuard<'_, HashMap<u64, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name that is asked of an upstream and should not come back.
pub(super) struct Probe<'a> {
    loops: &'a Loops,
    nonce: u64,
    name: Box<[u8]>,
}

impl Probe<'_> {
    /// The question to ask.
    pub(super) fn query(&self) -> Query {
        Query::new(self.name.clone(), rtype::TXT)
    }

    /// Has it come back so far?
    pub(super) fn came_back(&self) -> bool {
        self.loops.probes().get(&self.nonce).copied().unwrap_or_default()
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        self.loops.probes().remove(&self.nonce);
    }
}

fn nonce_of(question: &[u8]) -> Option<u64> {
    let (label, below) = question.split_at_checked(usize::from(DIGITS) + 1)?;
    let (length, digits) = label.split_first()?;
    // A length octet is no letter.
    if *length != DIGITS || !below.get(..LABEL.len())?.eq_ignore_ascii_case(LABEL) {
        return None;
    }
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// The upstreams that are not one of the addresses we listen on; a warning is logged for each that is.
///
/// Someone who listens on all addresses is at every address of this machine, so an upstream is dropped too if its
/// port is ours and its address is local. Call this when the configuration changes, not for every query: it asks the
/// operating system.
pub fn usable_upstreams(upstreams: &[Upstream], listening: &[SocketAddr]) -> Vec<Upstream> {
    let is_us = |upstream: &Upstream| listening.iter().any(|ours| leads_to(upstream.socket_addr(), *ours));
    let (loops, usable): (Vec<_>, Vec<_>) = upstreams.iter().cloned().partition(is_us);
    for upstream in loops {
        tracing::warn!(%upstream, "upstream server is this server itself, not used");
    }
    usable
}

fn leads_to(upstream: SocketAddr, ours: SocketAddr) -> bool {
    let (there, here) = (upstream.ip().to_canonical(), ours.ip().to_canonical());
    if upstream.port() != ours.port() {
        return false;
    }
    // `::` takes IPv4 too, unless told not to; 0.0.0.0 does not take IPv6.
    let everywhere = here.is_unspecified() && (here.is_ipv6() || there.is_ipv4());
    let anywhere = there.is_unspecified() && (here.is_loopback() || here.is_unspecified());
    there == here || anywhere || everywhere && is_local(there)
}

/// Only addresses of this machine can be bound to.
fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}
