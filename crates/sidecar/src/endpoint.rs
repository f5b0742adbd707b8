//! The address of a server, as people write it in flags.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

/// The port of DNS.
const DNS: u16 = 53;

/// A server: an address, or a name that is looked up each time it is used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// An address.
    Address(SocketAddr),
    /// A host name and a port.
    Name(String, u16),
}

/// A server that cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not a server: expected IP, IP:port, [IPv6]:port or name:port")]
pub struct EndpointError(pub String);

impl Endpoint {
    /// A host (an IP address or a name) and a port.
    pub fn new(host: &str, port: u16) -> Self {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(ip) => Self::Address(SocketAddr::new(ip, port)),
            // What Go makes of no host.
            Err(_) if host.is_empty() => Self::Address(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)),
            Err(_) => Self::Name(host.to_ascii_lowercase(), port),
        }
    }

    /// The address behind it; the first one of a name.
    ///
    /// # Errors
    ///
    /// When the system's resolver does not know the name.
    pub async fn resolve(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Address(address) => Ok(*address),
            Self::Name(name, port) => tokio::net::lookup_host((name.as_str(), *port))
                .await?
                .next()
                .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such host")),
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let wrong = || EndpointError(text.to_owned());
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::Address(address));
        }
        if text.parse::<IpAddr>().is_ok() || !text.contains(':') || text.ends_with(']') {
            return Ok(Self::new(text, DNS)).and_then(plausible(text));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        if host.contains(':') {
            return Err(wrong());
        }
        Ok(Self::new(host, port)).and_then(plausible(text))
    }
}

/// Refuses names that no resolver could know.
fn plausible(text: &str) -> impl FnOnce(Endpoint) -> Result<Endpoint, EndpointError> {
    let wrong = EndpointError(text.to_owned());
    |endpoint| match &endpoint {
        Endpoint::Address(_) => Ok(endpoint),
        Endpoint::Name(name, _) => {
            let fits = name.len() <= 253
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
            if fits { Ok(endpoint) } else { Err(wrong) }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests;
