//! Upstreams that would lead back to ourselves.

use std::net::{IpAddr, SocketAddr, UdpSocket};

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
