//! The record stored under a name: SkyDNS's service record, reduced to the parts that answers need.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::wire::Name;

/// TTL of answers, in seconds.
pub const TTL: u32 = 30;
/// TTL of negative answers, in seconds.
pub const NEGATIVE_TTL: u32 = 60;
/// Priority of SRV records.
pub const PRIORITY: u16 = 10;
/// Weight of a record, before the weights of one answer are scaled to a sum of 100.
pub const WEIGHT: u16 = 10;

/// One entry of the tree (SkyDNS calls it a Service, which here means the Kubernetes kind). It is created for each
/// visit and borrows the stored data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRecord<'v> {
    /// Target of the record.
    pub host: Host<'v>,
    /// Name of the tree node that holds this record's addresses, relative to the zone, in wire format without the
    /// root: `3web 4apps 3svc`.
    pub base: &'v [u8],
    /// Port of SRV answers; 0 if unknown.
    pub port: u16,
    /// TTL, in seconds.
    pub ttl: u32,
    /// Priority of SRV answers.
    pub priority: u16,
    /// Weight, see [`WEIGHT`].
    pub weight: u16,
    /// Data of TXT and MX answers; `None` for records of Kubernetes objects.
    pub extras: Option<&'v Extras>,
}

/// Data of a record besides addresses and ports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    /// Text of TXT answers; empty for none.
    pub text: Box<str>,
    /// Whether it is a mail exchange, whose preference is the priority.
    pub mail: bool,
}

/// Target of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host<'v> {
    /// One address.
    Address(IpAddr),
    /// Several addresses under one label.
    Several(&'v [IpAddr]),
    /// The name made of [`ServiceRecord::base`].
    Base,
    /// The name made of the entry's own label and [`ServiceRecord::base`].
    Member,
    /// Any other name, in a zone of ours or external.
    Name(Cow<'v, Name>),
    /// None: the record is a text only.
    Nothing,
}

impl<'v> ServiceRecord<'v> {
    /// A record with the default TTL, priority and weight, and no port.
    pub fn new(host: Host<'v>, base: &'v [u8]) -> Self {
        Self { host, base, port: 0, ttl: TTL, priority: PRIORITY, weight: WEIGHT, extras: None }
    }

    /// A record with `addresses`.
    pub fn for_addresses(addresses: &'v [IpAddr], base: &'v [u8]) -> Self {
        let host = match addresses {
            [ip] => Host::Address(*ip),
            several => Host::Several(several),
        };
        Self::new(host, base)
    }

    /// The same record with a port.
    #[must_use]
    pub fn with_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Whether the target is another name instead of addresses.
    pub fn is_alias(&self) -> bool {
        matches!(self.host, Host::Base | Host::Member | Host::Name(_))
    }

    /// The addresses of the record.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let (one, several): (Option<IpAddr>, &[IpAddr]) = match &self.host {
            Host::Address(ip) => (Some(*ip), &[]),
            Host::Several(several) => (None, several),
            _ => (None, &[]),
        };
        one.into_iter().chain(several.iter().copied())
    }
}
