//! The wildcard address of both IP families.
//!
//! Go listens on both families for any form of the wildcard address (an empty host, `0.0.0.0`, `::`). Existing pods
//! rely on both families: kubelets probe the pod's first address, clients query the first address of a Service, and
//! both addresses may be IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// The address to bind: `::`, which also accepts IPv4 on a socket without `IPV6_V6ONLY`, or `0.0.0.0` without IPv6.
pub fn wildcard_addr() -> IpAddr {
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}
