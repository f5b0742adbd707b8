//! Upstreams that lead back to ourselves.
//!
//! The plain case is an upstream that is one of our own addresses: [`usable_upstreams`]. The other one is an upstream
//! that forwards to us, such as a resolver of the node that was told to use the cluster's DNS: each upstream is asked
//! for a name that nobody else can know, and if we are asked for that name in turn, we know which upstream it came
//! back through. dnsmasq finds its own loops in the same way.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use super::{Query, Transport};

/// Names asked for to find loops are a label of sixteen hexadecimal digits before this. `test.` is nobody's
/// (RFC 6761), and resolvers forward it like any other name.
const SUFFIX: &[u8] = b"\x0cforward-loop\x04test\x00";

const DIGITS: u8 = 16;

const TYPE_TXT: u16 = 16;
const CLASS_IN: u16 = 1;

/// What is known of loops.
#[derive(Debug, Default)]
pub(super) struct Loops {
    /// The names that are being asked for, and whether they came back.
    probes: Mutex<HashMap<u64, bool>>,
    /// The upstreams through which a name came back.
    found: RwLock<Vec<SocketAddr>>,
}

impl Loops {
    /// A question that tells, while the probe lives, whether it came back.
    pub(super) fn probe(&self) -> Probe<'_> {
        let nonce = rand::random();
        self.probes().insert(nonce, false);
        Probe { loops: self, nonce }
    }

    /// Is this one of our own questions, come back?
    pub(super) fn notice(&self, query: &Query) -> bool {
        let Some(nonce) = nonce_of(&query.name) else { return false };
        self.probes().get_mut(&nonce).map(|came_back| *came_back = true).is_some()
    }

    /// From now on these upstreams, and no others, are known to lead back to us.
    pub(super) fn set_found(&self, found: Vec<SocketAddr>) {
        *self.found.write().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// Those of `upstreams` that are not known to lead back to us.
    pub(super) fn without(&self, upstreams: &[SocketAddr]) -> Vec<SocketAddr> {
        let found = self.found.read().unwrap_or_else(PoisonError::into_inner);
        upstreams.iter().filter(|upstream| !found.contains(upstream)).copied().collect()
    }

    /// No code that holds a lock can panic half way through a change.
    fn probes(&self) -> MutexGuard<'_, HashMap<u64, bool>> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name that is asked of an upstream and should not come back.
pub(super) struct Probe<'a> {
    loops: &'a Loops,
    nonce: u64,
}

impl Probe<'_> {
    /// The question to ask.
    pub(super) fn query(&self) -> Query {
        let label = format!("{:016x}", self.nonce);
        Query {
            name: [&[DIGITS], label.as_bytes(), SUFFIX].concat().into(),
            qtype: TYPE_TXT,
            qclass: CLASS_IN,
            recursion_desired: true,
            checking_disabled: false,
            authentic_data: false,
            edns: None,
            transport: Transport::Udp,
        }
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

fn nonce_of(name: &[u8]) -> Option<u64> {
    let (label, suffix) = name.split_at_checked(usize::from(DIGITS) + 1)?;
    let (length, digits) = label.split_first()?;
    if *length != DIGITS || !suffix.eq_ignore_ascii_case(SUFFIX) {
        return None;
    }
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// The upstreams that are not one of the addresses we listen on; a warning is logged for each that is.
///
/// Someone who listens on all addresses is at every address of this machine, so an upstream is dropped too if its
/// port is ours and its address is local. Call this when the configuration changes, not for every query: it asks the
/// operating system.
pub fn usable_upstreams(upstreams: &[SocketAddr], listening: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_us = |upstream: &SocketAddr| listening.iter().any(|ours| leads_to(*upstream, *ours));
    let (loops, usable): (Vec<_>, Vec<_>) = upstreams.iter().partition(|upstream| is_us(upstream));
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
