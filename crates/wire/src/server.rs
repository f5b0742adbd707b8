//! DNS servers to send queries to: an address with a port, or an unresolved name.

mod flag;
mod upstream;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use nix::net::if_::{if_indextoname, if_nametoindex};

use crate::rfc1123::is_host;

pub use self::flag::FlagAddrError;
pub use self::upstream::{TLS_PORT, Upstream, UpstreamProtocol};

/// The default port of a DNS server.
pub const DNS_PORT: u16 = 53;

/// The address of a DNS server: `IP`, `IP:port` or `[IPv6]:port` in the configuration. Displayed as
/// `IP:port` or `[IPv6]:port`, and with an interface as `[IPv6%index]:port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nameserver {
    /// The address.
    pub ip: IpAddr,
    /// The port; 53 by default.
    pub port: u16,
    /// The index of the interface of a link-local address; 0 for none.
    scope: u32,
}

impl Nameserver {
    /// A server on the given port.
    pub fn new(ip: IpAddr, port: u16) -> Self {
        Self { ip, port, scope: 0 }
    }

    /// Parses an IP address without a port. An IPv6 address may have an interface of this machine,
    /// by name (`fe80::1%eth0`) or by index (`fe80::1%2`), as in resolv.conf. `None` if the address
    /// is malformed, or if this machine has no such interface.
    pub fn with_interface(address: &str, port: u16) -> Option<Self> {
        let Some((ip, interface)) = address.split_once('%') else {
            return Some(Self::new(address.parse().ok()?, port));
        };

        let ip: Ipv6Addr = ip.parse().ok()?;
        // The interface is looked up by name before its index is parsed, because a name may consist
        // of digits.
        let scope = if_nametoindex(interface)
            .ok()
            .or_else(|| parse_interface_index(interface))?;
        Some(Self {
            ip: ip.into(),
            port,
            scope,
        })
    }

    /// Reads an address as dnsmasq writes it: `192.0.2.1`, `192.0.2.1#53` or `fe80::1%eth0#53`.
    pub fn from_dnsmasq(text: &str) -> Option<Self> {
        let (address, port) = text.split_once('#').unwrap_or((text, "53"));
        Self::with_interface(address, port.parse().ok()?)
    }

    /// The name of the interface of a link-local address. `None` if the address has no interface,
    /// or if the interface no longer exists.
    pub fn interface(self) -> Option<String> {
        if self.scope == 0 {
            return None;
        }
        interface_name(self.scope)
    }

    /// The address as the standard library's type.
    pub fn socket_addr(self) -> SocketAddr {
        match self.ip {
            IpAddr::V4(ip) => (ip, self.port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, self.port, 0, self.scope).into(),
        }
    }
}

impl From<IpAddr> for Nameserver {
    fn from(ip: IpAddr) -> Self {
        Self::new(ip, DNS_PORT)
    }
}

impl From<SocketAddr> for Nameserver {
    fn from(address: SocketAddr) -> Self {
        let scope = match address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(address) => address.scope_id(),
        };
        Self {
            ip: address.ip(),
            port: address.port(),
            scope,
        }
    }
}

impl fmt::Display for Nameserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket_addr().fmt(f)
    }
}

impl FromStr for Nameserver {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse_nameserver(text, DNS_PORT)
    }
}

/// Parses the index of an interface. `None` if this machine has no interface with this index.
fn parse_interface_index(text: &str) -> Option<u32> {
    let index = text.parse().ok()?;
    interface_name(index).map(|_| index)
}

fn interface_name(index: u32) -> Option<String> {
    let name = if_indextoname(index).ok()?.into_string().ok()?;
    // For an unknown index, nix returns an empty name, not an error.
    (!name.is_empty()).then_some(name)
}

/// Parses `IP` with port `default`, `IP:port` or `[IPv6]:port`.
fn parse_nameserver(text: &str, default: u16) -> Result<Nameserver, AddressError> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(Nameserver::new(ip, default));
    }
    // Differs from kube-dns, which reports a missing port for `10.0.0.300`, although the address is
    // invalid.
    if !text.contains(':') {
        return Err(AddressError::Ip(text.to_owned()));
    }

    let (host, port) = split_host_port(text)?;
    let ip = host
        .parse()
        .map_err(|_| AddressError::Ip(host.to_owned()))?;
    Ok(Nameserver::new(ip, parse_port(port)?))
}

/// An invalid server address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// An IPv6 address in brackets lacks a port.
    #[error("address {}: missing port in address", .0.escape_debug())]
    MissingPort(String),
    /// There is more than one colon, and no bracket at the beginning.
    #[error("address {}: too many colons in address", .0.escape_debug())]
    TooManyColons(String),
    /// The brackets do not match, or are in the wrong place.
    #[error("address {}: brackets do not match, or are in the wrong place", .0.escape_debug())]
    Brackets(String),
    /// The host is neither an IP address nor, where a name is accepted, a valid name.
    #[error("bad IP address: {0:?}")]
    Ip(String),
    /// The port is not a number from 1 to 65535.
    #[error("bad port number: {0:?}")]
    Port(String),
    /// The word before `://` is not a supported protocol.
    #[error("unknown protocol {0:?}: expected dns, tcp or tls")]
    Scheme(String),
    /// The name for the certificate is not a host name.
    #[error("bad TLS server name: {0:?}")]
    TlsName(String),
}

/// A server: an address, or a name that resolves to one or more addresses. `FromStr` parses the
/// server of a stub domain; [`ServerAddr::from_flag`] parses flags.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServerAddr {
    /// `IP`, `IP:port` or `[IPv6]:port`, optionally with a protocol, see [`Upstream`].
    Address(Upstream),
    /// A DNS name, optionally with `:port`.
    // Differs from kube-dns, which rejects a name with a port.
    Name {
        /// A lower-case name. Only a name from a flag may have a trailing dot.
        name: String,
        /// The port; 53 by default.
        port: u16,
    },
}

impl ServerAddr {
    /// Whether the server is queried in plain DNS over UDP. dnsmasq can query only such servers.
    pub fn is_plain(&self) -> bool {
        match self {
            Self::Address(server) => server.plain().is_some(),
            Self::Name { .. } => true,
        }
    }
}

impl From<SocketAddr> for ServerAddr {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address.into())
    }
}

impl From<Nameserver> for ServerAddr {
    fn from(server: Nameserver) -> Self {
        Self::Address(server.into())
    }
}

impl fmt::Display for ServerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name { name, port } => write!(f, "{name}:{port}"),
        }
    }
}

impl FromStr for ServerAddr {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.contains("://") {
            return text.parse().map(Self::Address);
        }
        // An IPv6 address contains colons, so the text is parsed as an address before a port is
        // split off.
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Nameserver::from(ip).into());
        }

        let (host, port) = split_host_port(text).unwrap_or((text, ""));
        // `host:` means the default port, as in kube-dns.
        let port = if port.is_empty() {
            DNS_PORT
        } else {
            parse_port(port)?
        };
        if let Ok(ip) = host.parse() {
            return Ok(Nameserver::new(ip, port).into());
        }

        // Differs from kube-dns, which accepts the mistyped address `192.0.2.300` as a name.
        if !is_host(host) {
            return Err(AddressError::Ip(text.to_owned()));
        }
        Ok(Self::Name {
            name: host.to_owned(),
            port,
        })
    }
}

/// Splits `host:port` and `[host]:port`; the port may be empty.
fn split_host_port(text: &str) -> Result<(&str, &str), AddressError> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest
            .split_once(']')
            .ok_or_else(|| AddressError::Brackets(text.to_owned()))?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, port)),
            None if after.is_empty() => Err(AddressError::MissingPort(text.to_owned())),
            None => Err(AddressError::Brackets(text.to_owned())),
        };
    }

    let (host, port) = text
        .rsplit_once(':')
        .ok_or_else(|| AddressError::MissingPort(text.to_owned()))?;
    // In an IPv6 address without brackets, any colon could begin the port.
    if host.contains(':') {
        return Err(AddressError::TooManyColons(text.to_owned()));
    }
    if text.contains(['[', ']']) {
        return Err(AddressError::Brackets(text.to_owned()));
    }
    Ok((host, port))
}

/// Parses a port from 1 to 65535, written in digits only. The standard library would also accept
/// `+53`.
fn parse_port(text: &str) -> Result<u16, AddressError> {
    let port = if text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse().unwrap_or(0)
    } else {
        0
    };

    if port == 0 {
        return Err(AddressError::Port(text.to_owned()));
    }
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nameserver_text(text: &str) -> String {
        match text.parse::<Nameserver>() {
            Ok(server) => server.to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn stub_server_text(text: &str) -> String {
        match text.parse::<ServerAddr>() {
            Ok(ServerAddr::Address(a)) => format!("address {a}"),
            Ok(name @ ServerAddr::Name { .. }) => format!("name {name}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn nameserver_is_parsed_or_rejected() {
        for (text, expected) in [
            ("192.0.2.1", "192.0.2.1:53"),
            ("192.0.2.1:5353", "192.0.2.1:5353"),
            ("[192.0.2.1]:5353", "192.0.2.1:5353"),
            ("2001:db8::1", "[2001:db8::1]:53"),
            ("[2001:db8::1]:5353", "[2001:db8::1]:5353"),
            ("2001:db8::1:5353", "[2001:db8::1:5353]:53"),
            (
                "[2001:db8::1]",
                "address [2001:db8::1]: missing port in address",
            ),
            ("10.0.0.300", "bad IP address: \"10.0.0.300\""),
            ("dns.example", "bad IP address: \"dns.example\""),
            ("dns.example:53", "bad IP address: \"dns.example\""),
            ("", "bad IP address: \"\""),
            ("192.0.2.1:", "bad port number: \"\""),
            ("192.0.2.1:0", "bad port number: \"0\""),
            ("192.0.2.1:65536", "bad port number: \"65536\""),
            ("192.0.2.1:+53", "bad port number: \"+53\""),
            ("192.0.2.1:53\n", "bad port number: \"53\\n\""),
            ("1:2:x", "address 1:2:x: too many colons in address"),
            (
                "fe80::1%eth0",
                "address fe80::1%eth0: too many colons in address",
            ),
        ] {
            assert_eq!(nameserver_text(text), expected, "{text:?}");
        }
    }

    #[test]
    fn stub_server_is_parsed_or_rejected() {
        for (text, expected) in [
            ("192.0.2.1", "address 192.0.2.1:53"),
            ("192.0.2.1:", "address 192.0.2.1:53"),
            ("[2001:db8::1]:5353", "address [2001:db8::1]:5353"),
            ("ns.acme.example", "name ns.acme.example:53"),
            ("ns.acme.example:5353", "name ns.acme.example:5353"),
            ("NS.acme.example", "bad IP address: \"NS.acme.example\""),
            ("ns.acme.example.", "bad IP address: \"ns.acme.example.\""),
            ("192.0.2.300", "bad IP address: \"192.0.2.300\""),
            ("192.0.2.1:0", "bad port number: \"0\""),
            ("[2001:db8::1]", "bad IP address: \"[2001:db8::1]\""),
            ("[ns.acme.example]:53", "name ns.acme.example:53"),
            ("", "bad IP address: \"\""),
            (
                "tls://192.0.2.1%ns.acme.example",
                "address tls://192.0.2.1:853#ns.acme.example",
            ),
            (
                "tls://ns.acme.example",
                "bad IP address: \"ns.acme.example\"",
            ),
        ] {
            assert_eq!(stub_server_text(text), expected, "{text:?}");
        }
    }
}
