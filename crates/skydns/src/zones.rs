//! The table of further zones: zones with records of their own, besides the cluster's zone.
//!
//! Of all domains that hold a name (cluster domains, stub domains, further zones) the longest is responsible; see
//! [`Authority`].

use std::sync::Arc;

use crate::backend::{Records, View, Zone};
use crate::wire::name::{Name, is_within};

/// TTL of the SOA record in the answer section, in seconds, unless the zone sets one TTL for all records.
pub(crate) const SOA_TTL: u32 = 3600;

/// The further zones. Empty unless some are configured; `clone` only increments a reference count.
#[derive(Clone, Default)]
pub struct Zones {
    /// Zones with the longest domain first; `None` for no zones.
    all: Option<Arc<[FurtherZone]>>,
}

/// One further zone. `clone` only increments reference counts.
#[derive(Clone)]
pub struct FurtherZone {
    /// Its domain, in lower case.
    pub domain: Name,
    /// The records. Until they [have synced](Records::has_synced), names of the zone are SERVFAIL.
    pub records: Arc<dyn Records>,
    /// TTL of the zone's answers, in seconds, overriding the TTL of each record.
    pub ttl: Option<u32>,
    /// TTL of negative answers, in seconds (RFC 2308).
    pub negative_ttl: u32,
    /// Whether the zone answers in SkyDNS style: the apex has the addresses at `apex.dns`, the name servers are at
    /// `ns.dns`, and an alias that cannot be resolved counts as no record.
    pub skydns: bool,
    /// Whether the zone holds PTR records only and is not authoritative for its domain: missing names are looked up
    /// elsewhere.
    pub pointers: bool,
    /// Number of the zone in [metrics](crate::metrics::Reply::zone). [`Zones::with`] assigns it; adding or replacing
    /// zones does not change it.
    pub number: u8,
}

impl FurtherZone {
    /// A zone of `records`, with each record's own TTL.
    pub fn new(domain: &Name, records: Arc<dyn Records>) -> Self {
        Self {
            domain: domain.to_lowercase(),
            records,
            ttl: None,
            negative_ttl: crate::record::NEGATIVE_TTL,
            skydns: false,
            pointers: false,
            number: 0,
        }
    }

    /// TTL of a record that is stored with the TTL `stored`, in seconds. A stored TTL of 0 stays 0.
    pub fn ttl_of(&self, stored: u32) -> u32 {
        self.ttl.filter(|_| stored != 0).unwrap_or(stored)
    }
}

impl std::fmt::Debug for FurtherZone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FurtherZone").field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Zones {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Zones {
    /// A table without any zone.
    pub const fn none() -> Self {
        Self { all: None }
    }

    /// Whether there are no zones.
    pub fn is_empty(&self) -> bool {
        self.all.is_none()
    }

    /// All zones, the longest domain first.
    pub fn iter(&self) -> impl Iterator<Item = &FurtherZone> {
        self.all.iter().flat_map(|all| all.iter())
    }

    /// Adds `zone`, or replaces the zone of its domain.
    #[must_use]
    pub fn with(&self, zone: FurtherZone) -> Self {
        let replaced = self.iter().find(|other| other.domain == zone.domain);
        let next = || u8::try_from(self.iter().count()).unwrap_or(u8::MAX);
        let number = replaced.map_or_else(next, |zone| zone.number);
        let others = self.iter().filter(|other| other.domain != zone.domain).cloned();
        let mut all: Vec<FurtherZone> = others.collect();
        all.push(FurtherZone { number, ..zone });
        all.sort_by_key(|zone| std::cmp::Reverse(zone.domain.wire().len()));
        Self { all: Some(all.into()) }
    }

    /// The longest zone that holds a name (wire format, lower case).
    pub fn find(&self, name: &[u8]) -> Option<&FurtherZone> {
        self.iter().find(|zone| !zone.pointers && is_within(name, zone.domain.wire()))
    }

    /// The zones of [pointers](FurtherZone::pointers) that may hold a name (wire format, lower case).
    pub(crate) fn pointers<'z>(&'z self, name: &'z [u8]) -> impl Iterator<Item = &'z FurtherZone> {
        self.iter().filter(move |zone| zone.pointers && is_within(name, zone.domain.wire()))
    }
}

/// Whether a name (wire format, lower case) is in one of our zones.
pub fn is_ours(view: &impl View, name: &[u8]) -> bool {
    view.zone().own(name).is_some() || Authority::of(view, name).is_some()
}

/// The zone that answers for a name: one of the cluster's domains, or a further zone.
#[derive(Clone, Copy)]
pub struct Authority<'v> {
    /// The domain that holds the name, in lower case.
    pub domain: &'v Name,
    /// The records of the zone.
    pub records: &'v dyn Records,
    /// The further zone; `None` for the cluster's zone.
    pub further: Option<&'v FurtherZone>,
}

impl<'v> Authority<'v> {
    /// The authority for a name (wire format, lower case); `None` for names that are forwarded.
    ///
    /// The longest domain wins, as in dnsmasq. Of equal domains the cluster's comes first, then a further zone's.
    pub fn of(view: &'v impl View, name: &[u8]) -> Option<Self> {
        let zone = view.zone();
        if !view.zones().is_empty()
            && let Some(further) = view.zones().find(name)
            && further.is_longer_than(zone.domain_of(name))
        {
            let delegated = zone.servers_for(name).1.is_some_and(|stub| !further.is_at_least(stub));
            return (!delegated).then_some(Self {
                domain: &further.domain,
                records: &*further.records,
                further: Some(further),
            });
        }
        let domain = zone.domain_of(name).filter(|_| zone.owns(name))?;
        Some(Self { domain, records: view, further: None })
    }

    /// The cluster's zone.
    pub(crate) fn cluster(view: &'v impl View) -> Self {
        Self { domain: &view.zone().domain, records: view, further: None }
    }

    /// Whether the zone answers in [SkyDNS style](FurtherZone::skydns).
    pub(crate) fn is_skydns(&self) -> bool {
        self.further.is_some_and(|further| further.skydns)
    }

    /// The labels of a name (wire format, lower case) below the domain.
    pub fn relative<'n>(&self, name: &'n [u8]) -> &'n [u8] {
        name.len()
            .checked_sub(self.domain.wire().len())
            .and_then(|below| name.get(..below))
            .unwrap_or_default()
    }

    /// TTL of a record that is stored with the TTL `stored`, in seconds; `zone` is the cluster's.
    pub(crate) fn ttl_of(&self, zone: &Zone, stored: u32) -> u32 {
        match self.further {
            None => zone.ttl_of(stored),
            Some(further) => further.ttl_of(stored),
        }
    }

    /// Maximum TTL of an answer of several records, in seconds; `zone` is the cluster's.
    pub(crate) fn max_ttl(&self, zone: &Zone) -> u32 {
        match self.further {
            None => zone.ttl(),
            Some(further) => further.ttl.unwrap_or(u32::MAX),
        }
    }

    /// TTL of the SOA record in the answer section, in seconds; `zone` is the cluster's.
    pub(crate) fn soa_ttl(&self, zone: &Zone) -> u32 {
        self.further.map_or(zone.ttl, |further| further.ttl).unwrap_or(SOA_TTL)
    }

    /// TTL of negative answers, in seconds; `zone` is the cluster's.
    pub(crate) fn negative_ttl(&self, zone: &Zone) -> u32 {
        self.further.map_or(zone.negative_ttl, |further| further.negative_ttl)
    }
}

impl FurtherZone {
    fn is_longer_than(&self, domain: Option<&Name>) -> bool {
        domain.is_none_or(|domain| self.domain.wire().len() > domain.wire().len())
    }

    fn is_at_least(&self, domain: &Name) -> bool {
        self.domain.wire().len() >= domain.wire().len()
    }
}
