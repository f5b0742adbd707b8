//! What is stored under a name: SkyDNS's service record, reduced to what makes answers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::wire::Name;

/// TTL of answers, in seconds.
pub const TTL: u32 = 30;
/// Priority of SRV records.
pub const PRIORITY: u16 = 10;
/// Weight of a record before the weights of one answer are made to share 100.
pub const WEIGHT: u16 = 10;

/// One entry of the tree (SkyDNS calls it a Service; that word means the Kubernetes kind here).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRecord {
    /// Where the name leads.
    pub host: Host,
    /// Labels below the zone of the node that the addresses of this record stand at, in wire format without the
    /// root: `3web 4apps 3svc`. Shared by all records of one Service.
    pub base: Arc<[u8]>,
    /// Port of SRV answers; 0 where none is known.
    pub port: u16,
    /// Seconds.
    pub ttl: u32,
    /// Priority of SRV answers.
    pub priority: u16,
    /// Weight, see [`WEIGHT`].
    pub weight: u16,
}

/// What a record leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// One IPv4 address.
    V4(Ipv4Addr),
    /// One IPv6 address.
    V6(Ipv6Addr),
    /// Several addresses under one label.
    Several(Arc<[IpAddr]>),
    /// The name made of [`ServiceRecord::base`].
    Base,
    /// The name made of the entry's own label and [`ServiceRecord::base`].
    Member,
    /// Any other name, inside or outside the zone.
    Name(Name),
}

impl ServiceRecord {
    /// A record with the usual TTL, priority and weight, and no port.
    pub fn new(host: Host, base: Arc<[u8]>) -> Self {
        Self { host, base, port: 0, ttl: TTL, priority: PRIORITY, weight: WEIGHT }
    }

    /// A record that leads to `addresses`.
    pub fn for_addresses(addresses: &[IpAddr], base: Arc<[u8]>) -> Self {
        let host = match addresses {
            [IpAddr::V4(ip)] => Host::V4(*ip),
            [IpAddr::V6(ip)] => Host::V6(*ip),
            several => Host::Several(several.into()),
        };
        Self::new(host, base)
    }

    /// The same with a port.
    #[must_use]
    pub fn with_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// True when the record leads to another name instead of addresses.
    pub fn is_alias(&self) -> bool {
        matches!(self.host, Host::Base | Host::Member | Host::Name(_))
    }

    /// The addresses that the record leads to.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let (one, several): (Option<IpAddr>, &[IpAddr]) = match &self.host {
            Host::V4(ip) => (Some(IpAddr::V4(*ip)), &[]),
            Host::V6(ip) => (Some(IpAddr::V6(*ip)), &[]),
            Host::Several(several) => (None, several),
            _ => (None, &[]),
        };
        one.into_iter().chain(several.iter().copied())
    }
}
