//! Servers as values of flags. As in kube-dns, flags accept some hosts that the `ConfigMap`
//! rejects, such as an empty host, and names with upper case, `_` or a trailing dot.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use thiserror::Error;

use super::{DNS_PORT, Nameserver, ServerAddr};
use crate::rfc1123::MAX_NAME;

/// A flag's value that is not a server.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not a server: expected IP, IP:port, [IPv6]:port, name or name:port")]
pub struct FlagAddrError(pub String);

impl ServerAddr {
    /// A host (an IP address or a name) and a port.
    pub fn new(host: &str, port: u16) -> Self {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(ip) => Nameserver::new(ip, port).into(),
            // As in Go, an empty host is the local host.
            Err(_) if host.is_empty() => Nameserver::new(Ipv4Addr::LOCALHOST.into(), port).into(),
            Err(_) => Self::Name {
                name: host.to_ascii_lowercase(),
                port,
            },
        }
    }

    /// Parses a flag's value: `IP`, `IP:port`, `[IPv6]:port`, `name` or `name:port`.
    pub fn from_flag(text: &str) -> Result<Self, FlagAddrError> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }

        let (host, port) = split_flag_port(text).ok_or_else(|| FlagAddrError(text.to_owned()))?;
        let server = Self::new(host, port);
        if server.is_plausible() {
            Ok(server)
        } else {
            Err(FlagAddrError(text.to_owned()))
        }
    }

    /// Whether the name is short enough and has only letters, digits, `-`, `.` and `_`. Always true
    /// for an address.
    fn is_plausible(&self) -> bool {
        match self {
            Self::Address(_) => true,
            Self::Name { name, .. } => {
                name.len() <= MAX_NAME
                    && name
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
            }
        }
    }
}

/// Splits a flag's value into host and port. `None` if the port is invalid, or if the host before a
/// port has a colon.
fn split_flag_port(text: &str) -> Option<(&str, u16)> {
    let has_port = text.contains(':') && !text.ends_with(']') && text.parse::<IpAddr>().is_err();
    if !has_port {
        return Some((text, DNS_PORT));
    }

    // The caller has already parsed `[IPv6]:port`. No other host with a port may have a colon.
    let (host, port) = text.rsplit_once(':')?;
    if host.contains(':') {
        return None;
    }
    Some((host, port.parse().ok()?))
}

#[cfg(test)]
mod tests;
