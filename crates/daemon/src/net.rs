//! The address that a server listens on, chosen as in Go's `net` package.
//!
//! Go listens on both families for any form of the wildcard address (an empty host, `0.0.0.0`,
//! `::`). Existing pods rely on this: kubelets probe the first address of the pod, and clients
//! query the first address of the Service. Each of these addresses may be IPv4 or IPv6.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::time::timeout;

/// Timeout of the lookup of a name to listen on.
const LOOKUP: Duration = Duration::from_secs(5);

/// The address to bind: `::`, which also accepts IPv4 on a socket without `IPV6_V6ONLY`, or
/// `0.0.0.0` on a machine without IPv6.
pub fn wildcard_addr() -> IpAddr {
    // A socket shows whether the machine has IPv6.
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// Converts the host in a flag to the address to listen on. The host is an IP address, optionally
/// in brackets, or a name such as `localhost`. As in Go, an empty host and the wildcard address of
/// either family mean both families, and a name means its first IPv4 address. A name without IPv4
/// addresses means its first address.
pub async fn listen_addr(host: &str) -> io::Result<IpAddr> {
    let host = without_brackets(host);
    if host.is_empty() {
        return Ok(wildcard_addr());
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(if ip.is_unspecified() {
            wildcard_addr()
        } else {
            ip
        });
    }

    let lookup = timeout(LOOKUP, tokio::net::lookup_host((host, 0)));
    let found = lookup.await.map_err(|_| io::ErrorKind::TimedOut)??;
    let addresses: Vec<SocketAddr> = found.collect();

    // As in Go, an IPv4 address is preferred, so `localhost` is 127.0.0.1.
    let first_v4 = addresses.iter().find(|address| address.is_ipv4());
    let chosen = first_v4
        .or(addresses.first())
        .ok_or(io::ErrorKind::NotFound)?;
    Ok(chosen.ip())
}

/// The host without the brackets around it, if there are any.
pub(crate) fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn host_of_flag_becomes_address() {
        let everywhere = wildcard_addr().to_string();
        for (host, expected) in [
            ("", everywhere.as_str()),
            ("0.0.0.0", &everywhere),
            ("::", &everywhere),
            ("[::]", &everywhere),
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("[::1]", "::1"),
            ("localhost", "127.0.0.1"),
        ] {
            let address = listen_addr(host).await;
            assert_eq!(
                address.map(|ip| ip.to_string()).ok().as_deref(),
                Some(expected),
                "{host:?}"
            );
        }
    }

    #[tokio::test]
    async fn unknown_host_is_an_error() {
        assert!(listen_addr("no such host").await.is_err());
    }
}
