//! All addresses of this machine, of both families.
//!
//! Go listens on both whichever way it is told to listen on any (an empty host, `0.0.0.0`, `::`), and people's pods
//! rely on it: kubelets probe the pod's first address, clients ask the first address of a Service, and both may be IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// The address to bind: `::`, which takes IPv4 too on a socket without `IPV6_V6ONLY`, or `0.0.0.0` where there is no IPv6.
pub fn wildcard_addr() -> IpAddr {
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}
