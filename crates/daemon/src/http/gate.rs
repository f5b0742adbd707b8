//! The gate in front of pages that only people with access to this pod may see, such as the page
//! with the DNS queries of the cluster.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;
use warp::Filter;
use warp::http::HeaderMap;
use warp::http::header::HOST;

use super::ClientAddr;

/// The reason why a request does not pass the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotLocal {
    /// The client's address is unknown, or neither `127.0.0.1` nor `::1`. This includes clients in
    /// the pod that connect to the pod's address.
    #[error("only clients within the pod may read this page, and only at 127.0.0.1 or ::1")]
    Client,
    /// The Host header is missing, repeated, or neither an IP address nor `localhost`. The owner of
    /// a web site can make the name of the site resolve to a loopback address, so that scripts of
    /// the site can send requests to this server (DNS rebinding). The Host header of such a request
    /// has the name of the site.
    #[error("the Host header must be an IP address or localhost")]
    Host,
}

/// Extracts whether the request comes from `127.0.0.1` or `::1`, and was addressed to an IP address
/// or to localhost. Requests through `kubectl exec` and `kubectl port-forward` come from one of
/// these two addresses.
pub fn local_only()
-> impl Filter<Extract = (Result<(), NotLocal>,), Error = Infallible> + Clone + Send + Sync + 'static
{
    warp::ext::optional::<ClientAddr>()
        .and(warp::header::headers_cloned())
        .map(|client, headers| check_local(client, &headers))
}

fn check_local(client: Option<ClientAddr>, headers: &HeaderMap) -> Result<(), NotLocal> {
    let loopback = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    // On a dual-stack socket, 127.0.0.1 appears as `::ffff:127.0.0.1`.
    if !client.is_some_and(|client| loopback.contains(&client.0.ip().to_canonical())) {
        return Err(NotLocal::Client);
    }

    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    // If there are two Host headers, a proxy and this server could each use a different one.
    let is_only = hosts.next().is_none();
    if is_only && host.is_some_and(is_address_or_localhost) {
        Ok(())
    } else {
        Err(NotLocal::Host)
    }
}

/// Whether the value of a Host header is an IP address or `localhost`, with or without a port. An
/// IPv6 address must be in brackets.
fn is_address_or_localhost(host: &str) -> bool {
    if host.parse::<SocketAddr>().is_ok() {
        return true;
    }

    // In an IPv6 address without brackets, the last colon does not begin a port. Such an address is
    // not valid in a Host header, and is rejected below.
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !name.contains(':') => name,
        _ => host,
    };
    let unbracketed = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    match unbracketed {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "127.0.0.1:40000";

    fn answer(client: &str, hosts: &[&str]) -> Result<(), NotLocal> {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, host.parse().unwrap());
        }
        check_local(Some(ClientAddr(client.parse().unwrap())), &headers)
    }

    #[test]
    fn only_127_0_0_1_and_ipv6_loopback_pass() {
        for (client, expected) in [
            ("127.0.0.1:40000", Ok(())),
            ("[::1]:40000", Ok(())),
            ("[::ffff:127.0.0.1]:40000", Ok(())),
            ("127.0.0.2:40000", Err(NotLocal::Client)),
            ("[::ffff:127.0.0.2]:40000", Err(NotLocal::Client)),
            ("10.244.0.7:40000", Err(NotLocal::Client)),
            ("[fd00::1]:40000", Err(NotLocal::Client)),
        ] {
            assert_eq!(answer(client, &["127.0.0.1:8081"]), expected, "{client}");
        }
        assert_eq!(check_local(None, &HeaderMap::new()), Err(NotLocal::Client));
    }

    #[test]
    fn host_must_be_one_address_or_localhost() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:8081",
            "192.0.2.1:8081",
            "[::1]",
            "[::1]:8081",
            "localhost",
            "localhost:8081",
            "LocalHost:80",
        ] {
            assert_eq!(answer(CLIENT, &[host]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8081",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8081",
            "localhost:x",
            "localhost:99999",
            "::1",
            "[::1",
            "[evil.example]:8081",
            "",
            ":8081",
        ] {
            assert_eq!(answer(CLIENT, &[host]), Err(NotLocal::Host), "{host:?}");
        }
        assert_eq!(answer(CLIENT, &[]), Err(NotLocal::Host));
        assert_eq!(
            answer(CLIENT, &["localhost", "evil.example"]),
            Err(NotLocal::Host)
        );
    }
}
