//! Upstream servers: a protocol, an address and, for TLS, the name in the certificate.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use super::{AddressError, Nameserver, parse_nameserver, parse_port};
use crate::rfc1123::is_host;

/// The default port of DNS over TLS (RFC 7858 section 3.1).
pub const TLS_PORT: u16 = 853;

/// The protocol of queries to an upstream server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UpstreamProtocol {
    /// DNS over UDP, and over TCP after a truncated response.
    #[default]
    Udp,
    /// DNS over TCP only (RFC 7766).
    Tcp,
    /// DNS over TLS (RFC 7858).
    Tls,
}

impl UpstreamProtocol {
    /// `udp`, `tcp` or `tls`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }
}

/// An upstream server: `IP`, `IP:port` or `[IPv6]:port`, optionally after `dns://`, `tcp://` or
/// `tls://`. The name in the server's certificate may follow an address for TLS:
/// `tls://9.9.9.9#dns.quad9.net`. The format of `CoreDNS` is also accepted:
/// `tls://9.9.9.9%dns.quad9.net`, or `tls://9.9.9.9%dns.quad9.net:853` with a port.
///
/// Displayed as `IP:port` for plain DNS, else as `tcp://IP:port`, `tls://IP:port` or
/// `tls://IP:port#name`. An IPv6 address is displayed in brackets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Upstream {
    /// The protocol of queries.
    pub protocol: UpstreamProtocol,
    /// The address; the default port is 853 for TLS and 53 otherwise.
    pub server: Nameserver,
    /// The name in the server's certificate, a lower-case host name, for TLS only. Without a name,
    /// the certificate must contain the server's address.
    pub name: Option<Arc<str>>,
}

impl Upstream {
    /// The address as the standard library's type.
    pub fn socket_addr(&self) -> SocketAddr {
        self.server.socket_addr()
    }

    /// The address, if the protocol is plain DNS over UDP.
    pub fn plain(&self) -> Option<Nameserver> {
        (self.protocol == UpstreamProtocol::Udp).then_some(self.server)
    }
}

impl From<Nameserver> for Upstream {
    fn from(server: Nameserver) -> Self {
        Self {
            protocol: UpstreamProtocol::Udp,
            server,
            name: None,
        }
    }
}

impl From<SocketAddr> for Upstream {
    fn from(address: SocketAddr) -> Self {
        Nameserver::from(address).into()
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.protocol != UpstreamProtocol::Udp {
            write!(f, "{}://", self.protocol.as_str())?;
        }
        self.server.fmt(f)?;
        self.name
            .as_ref()
            .map_or(Ok(()), |name| write!(f, "#{name}"))
    }
}

impl FromStr for Upstream {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.split_once("://") {
            None => text.parse().map(Nameserver::into),
            Some(("dns", address)) => address.parse().map(Nameserver::into),
            Some(("tcp", address)) => Ok(Self {
                protocol: UpstreamProtocol::Tcp,
                server: address.parse()?,
                name: None,
            }),
            Some(("tls", rest)) => parse_tls_upstream(rest),
            Some((scheme, _)) => Err(AddressError::Scheme(scheme.to_owned())),
        }
    }
}

fn parse_tls_upstream(text: &str) -> Result<Upstream, AddressError> {
    let (server, name) = match (text.rsplit_once('#'), text.rsplit_once('%')) {
        (Some((address, name)), _) => (parse_nameserver(address, TLS_PORT)?, Some(name)),
        (None, Some((address, rest))) => {
            let (server, name) = parse_coredns_form(address, rest)?;
            (server, Some(name))
        }
        (None, None) => (parse_nameserver(text, TLS_PORT)?, None),
    };

    let name = name.map(parse_tls_name).transpose()?;
    Ok(Upstream {
        protocol: UpstreamProtocol::Tls,
        server,
        name,
    })
}

/// Parses the format of `CoreDNS`. `address` and `rest` are the parts before and after the last
/// `%`. The port may follow the name: `192.0.2.1%name:853`. Brackets may enclose the address
/// together with the name: `[2001:db8::1%name]:853`.
fn parse_coredns_form<'a>(
    address: &str,
    rest: &'a str,
) -> Result<(Nameserver, &'a str), AddressError> {
    let (name, port) = match rest.rsplit_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (rest, None),
    };
    let (bare, name) = match address.strip_prefix('[').zip(name.strip_suffix(']')) {
        Some(within) => within,
        None => (address, name),
    };

    let Some(port) = port else {
        return Ok((parse_nameserver(bare, TLS_PORT)?, name));
    };
    let ip: IpAddr = bare
        .parse()
        .map_err(|_| AddressError::Ip(bare.to_owned()))?;
    Ok((Nameserver::new(ip, parse_port(port)?), name))
}

fn parse_tls_name(text: &str) -> Result<Arc<str>, AddressError> {
    let lower = text.to_ascii_lowercase();
    if is_host(&lower) {
        Ok(lower.into())
    } else {
        Err(AddressError::TlsName(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream_text(text: &str) -> String {
        match text.parse::<Upstream>() {
            Ok(upstream) => {
                let again = upstream.to_string().parse();
                assert_eq!(again, Ok(upstream.clone()), "{text:?}");
                let is_udp = upstream.protocol == UpstreamProtocol::Udp;
                assert_eq!(upstream.plain().is_some(), is_udp);
                upstream.to_string()
            }
            Err(error) => error.to_string(),
        }
    }

    /// Each row has the text of an upstream, ` => `, and its normal form or the error.
    fn assert_upstreams(table: &str) {
        for row in table.trim().lines().map(str::trim) {
            let (text, expected) = row.split_once("=> ").unwrap();
            assert_eq!(upstream_text(text.trim_end()), expected, "{row}");
        }
    }

    #[test]
    fn upstreams_parse_and_print() {
        assert_upstreams(
            "
            192.0.2.1 => 192.0.2.1:53
            [2001:db8::1]:5353 => [2001:db8::1]:5353
            dns://192.0.2.1:5353 => 192.0.2.1:5353
            dns://2001:db8::1 => [2001:db8::1]:53
            tcp://10.0.0.1 => tcp://10.0.0.1:53
            tcp://[2001:db8::1]:5353 => tcp://[2001:db8::1]:5353
            tls://9.9.9.9 => tls://9.9.9.9:853
            tls://2620:fe::fe => tls://[2620:fe::fe]:853
            tls://9.9.9.9:8853 => tls://9.9.9.9:8853
            tls://9.9.9.9#dns.quad9.net => tls://9.9.9.9:853#dns.quad9.net
            tls://9.9.9.9:8853#DNS.Quad9.net => tls://9.9.9.9:8853#dns.quad9.net
            tls://[2620:fe::fe]:8853#dns.quad9.net => tls://[2620:fe::fe]:8853#dns.quad9.net
            tls://9.9.9.9%dns.quad9.net => tls://9.9.9.9:853#dns.quad9.net
            tls://9.9.9.9%dns.quad9.net:8853 => tls://9.9.9.9:8853#dns.quad9.net
            tls://9.9.9.9:8853%dns.quad9.net => tls://9.9.9.9:8853#dns.quad9.net
            tls://2620:fe::fe%dns.quad9.net => tls://[2620:fe::fe]:853#dns.quad9.net
            tls://2620:fe::fe%dns.quad9.net:8853 => tls://[2620:fe::fe]:8853#dns.quad9.net
            tls://[2620:fe::fe%dns.quad9.net]:8853 => tls://[2620:fe::fe]:8853#dns.quad9.net
            ",
        );
    }

    #[test]
    fn malformed_upstream_is_rejected() {
        assert_upstreams(
            r#"
            => bad IP address: ""
            https://9.9.9.9/dns-query => unknown protocol "https": expected dns, tcp or tls
            TLS://9.9.9.9 => unknown protocol "TLS": expected dns, tcp or tls
            tls:// => bad IP address: ""
            tls://dns.quad9.net => bad IP address: "dns.quad9.net"
            tls://9.9.9.9:0 => bad port number: "0"
            tls://9.9.9.9# => bad TLS server name: ""
            tls://9.9.9.9#9.9.9.9 => bad TLS server name: "9.9.9.9"
            tls://9.9.9.9%dns_quad9 => bad TLS server name: "dns_quad9"
            tls://9.9.9.9%dns.quad9.net: => bad port number: ""
            tls://[2620:fe::fe%dns.quad9.net => address [2620:fe::fe: brackets do not match, or are in the wrong place
            tcp://9.9.9.9#dns.quad9.net => bad IP address: "9.9.9.9#dns.quad9.net"
            9.9.9.9#dns.quad9.net => bad IP address: "9.9.9.9#dns.quad9.net"
            tls://tls://9.9.9.9 => bad IP address: "tls"
            "#,
        );
        let two_lines = upstream_text("tls://9.9.9.9#a\nb");
        assert_eq!(two_lines, r#"bad TLS server name: "a\nb""#);
    }
}
