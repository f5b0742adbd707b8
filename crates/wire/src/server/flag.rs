//! Servers as values of flags. As in kube-dns, flags accept more forms than the `ConfigMap`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use thiserror::Error;

use super::{DNS_PORT, Nameserver, ServerAddr};
use crate::rfc1123::MAX_NAME;

/// A flag's value that is not a server.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not a server: expected IP, IP:port, [IPv6]:port or name:port")]
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
        let wrong = || FlagAddrError(text.to_owned());
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let (host, port) =
            if text.parse::<IpAddr>().is_ok() || !text.contains(':') || text.ends_with(']') {
                (text, DNS_PORT)
            } else {
                let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
                (
                    host,
                    port.parse()
                        .ok()
                        .filter(|_| !host.contains(':'))
                        .ok_or_else(wrong)?,
                )
            };
        let server = Self::new(host, port);
        if server.is_plausible() {
            Ok(server)
        } else {
            Err(wrong())
        }
    }

    /// Whether the name is short enough and has only letters, digits, `-`, `.` and `_`. Always true
    /// for an address.
    fn is_plausible(&self) -> bool {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        match self {
            Self::Address(_) => true,
            Self::Name { name, .. } => name.len() <= MAX_NAME && name.bytes().all(allowed),
        }
    }
}

#[cfg(test)]
mod tests;
