//! The record of a name: SkyDNS's service record, reduced to the fields that answers need.

use std::borrow::Cow;
use std::net::IpAddr;

use wire::Name;

/// Default TTL of answers, in seconds.
pub const TTL: u32 = 30;
/// Default TTL of negative answers, in seconds.
pub const NEGATIVE_TTL: u32 = 60;
/// Default priority of a record.
pub const PRIORITY: u16 = 10;
/// Default weight of a record. An SRV answer gives each weight as a percentage of the sum of the
/// weights with the same priority. A weight of 0 counts as 100.
pub const WEIGHT: u16 = 10;

/// The record of one [`Entry`](crate::Entry) of a name. The record borrows the stored data. SkyDNS
/// calls such a record a Service. In this crate, "Service" always means a Service of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRecord<'v> {
    /// Target of the record.
    pub host: Host<'v>,
    /// A name relative to the zone, in wire format without the root label, such as
    /// `\x03web\x04apps\x03svc`. See [`Host::Base`] and [`Host::Member`]. In SRV answers, the
    /// target of a record with addresses is the label of its entry followed by this name, as for
    /// [`Host::Member`].
    pub base: &'v [u8],
    /// Port of SRV answers; 0 if unknown.
    pub port: u16,
    /// TTL in seconds.
    pub ttl: u32,
    /// Priority of SRV answers, and preference of MX answers.
    pub priority: u16,
    /// Weight, see [`WEIGHT`].
    pub weight: u16,
    /// Data of TXT and MX answers; `None` for records of Kubernetes objects.
    pub extras: Option<&'v Extras>,
}

/// Data of a record for TXT and MX answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    /// Text of TXT answers; empty for none.
    pub text: Box<str>,
    /// Whether the record is a mail exchange.
    pub mail: bool,
}

/// Target of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host<'v> {
    /// One address.
    Address(IpAddr),
    /// Several addresses under one label.
    Several(&'v [IpAddr]),
    /// The name [`ServiceRecord::base`] in the zone.
    Base,
    /// The label of the entry, followed by [`ServiceRecord::base`], in the zone.
    Member,
    /// Any other name, in one of our zones or external.
    Name(Cow<'v, Name>),
    /// No target. Such a record may have a text for TXT answers.
    Nothing,
}

impl<'v> ServiceRecord<'v> {
    /// Creates a record with the default TTL, priority and weight, and without port.
    pub fn new(host: Host<'v>, base: &'v [u8]) -> Self {
        Self {
            host,
            base,
            port: 0,
            ttl: TTL,
            priority: PRIORITY,
            weight: WEIGHT,
            extras: None,
        }
    }

    /// Creates a record for `addresses`.
    pub fn for_addresses(addresses: &'v [IpAddr], base: &'v [u8]) -> Self {
        let host = match addresses {
            [ip] => Host::Address(*ip),
            several => Host::Several(several),
        };
        Self::new(host, base)
    }

    /// Sets the port of the record.
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
