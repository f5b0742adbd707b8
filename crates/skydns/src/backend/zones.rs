//! The table of further zones: zones with records of our own, in addition to the cluster's zone.
//!
//! Cluster domains, stub domains and further zones may hold the same name. The longest domain is
//! responsible; see [`Authority`].

use std::sync::Arc;

use wire::name::{Name, is_within};

use super::{ExternalRoute, Records, View, Zone};
use crate::external_rules::RuleAnswer;

/// TTL of the SOA record in the answer section, in seconds. A zone with one TTL for all records
/// uses that TTL instead.
pub(crate) const SOA_TTL: u32 = 3600;

/// The further zones, if any are configured. Clones share the zones.
#[derive(Clone, Default)]
pub struct Zones {
    /// Zones, the longest domain first; `None` without zones.
    all: Option<Arc<[FurtherZone]>>,
}

/// One further zone. Clones share domain and records.
#[derive(Clone)]
pub struct FurtherZone {
    /// The domain of the zone, in lower case.
    pub domain: Name,
    /// The records. Until they [have synced](Records::has_synced), the answer for names of the zone
    /// is SERVFAIL, unless the zone holds only [PTR records](Self::pointers).
    pub records: Arc<dyn Records>,
    /// TTL of the zone's answers, in seconds; `None` if each record keeps its own TTL. See
    /// [`ttl_of`](Self::ttl_of).
    pub ttl: Option<u32>,
    /// TTL of negative answers, in seconds (RFC 2308).
    pub negative_ttl: u32,
    /// Whether the zone answers in SkyDNS style. For example, the addresses of the apex are then
    /// those of the name `apex.dns` in the zone, if that name exists. The name servers are those
    /// entries of `ns.dns` in the zone that have addresses, if there are any. An alias in a loop,
    /// or with a target that must not be forwarded, gets NODATA instead of SERVFAIL.
    pub skydns: bool,
    /// Whether the zone holds only PTR records and is not authoritative for its domain. A name
    /// without PTR records in the zone is answered as if the zone did not exist.
    pub pointers: bool,
    /// Number of the zone in [metrics](crate::engine::Reply::zone). [`Zones::with`] assigns the
    /// number, which stays the same when zones are added or replaced.
    pub number: u8,
}

impl FurtherZone {
    /// Creates a zone of `records`. Each record keeps its own TTL.
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

    /// TTL of a record with the stored TTL `stored`, in seconds. A stored TTL of 0 stays 0.
    pub fn ttl_of(&self, stored: u32) -> u32 {
        self.ttl.filter(|_| stored != 0).unwrap_or(stored)
    }
}

impl std::fmt::Debug for FurtherZone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FurtherZone")
            .field("domain", &self.domain)
            .finish_non_exhaustive()
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

    /// Adds `zone`, or replaces the zone with the same domain.
    #[must_use]
    pub fn with(&self, zone: FurtherZone) -> Self {
        // Metrics identify a zone by its number, so a zone that replaces another one gets the same
        // number.
        let replaced = self.iter().find(|other| other.domain == zone.domain);
        let next = || u8::try_from(self.iter().count()).unwrap_or(u8::MAX);
        let number = replaced.map_or_else(next, |zone| zone.number);
        let others = self
            .iter()
            .filter(|other| other.domain != zone.domain)
            .cloned();
        let mut all: Vec<FurtherZone> = others.collect();
        all.push(FurtherZone { number, ..zone });
        // With the longest domain first, the first match of `find` is responsible.
        all.sort_by_key(|zone| std::cmp::Reverse(zone.domain.wire().len()));
        Self {
            all: Some(all.into()),
        }
    }

    /// The zone with the longest domain that holds a name (wire format, lower case). Zones that
    /// hold only [PTR records](FurtherZone::pointers) are skipped.
    pub fn find(&self, name: &[u8]) -> Option<&FurtherZone> {
        self.iter()
            .find(|zone| !zone.pointers && is_within(name, zone.domain.wire()))
    }

    /// The zones that hold only [PTR records](FurtherZone::pointers), and whose domain holds a name
    /// (wire format, lower case).
    pub(crate) fn pointers<'z>(&'z self, name: &'z [u8]) -> impl Iterator<Item = &'z FurtherZone> {
        self.iter()
            .filter(move |zone| zone.pointers && is_within(name, zone.domain.wire()))
    }
}

/// Whether a name (wire format, lower case) is a host or an alias of the configuration, or in one
/// of our zones.
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
    /// The authority for a name (wire format, lower case); `None` if no zone of ours is
    /// responsible.
    ///
    /// The longest domain wins, as in dnsmasq. If domains are equal, the cluster's domain takes
    /// precedence, then a further zone, then a stub domain.
    pub fn of(view: &'v impl View, name: &[u8]) -> Option<Self> {
        let zone = view.zone();
        if !view.zones().is_empty()
            && let Some(further) = view.zones().find(name)
            && further.is_longer_than(view.cluster_domain_of(name))
        {
            // A stub domain below the further zone is longer, and its upstreams answer.
            let delegated = zone
                .servers_for(name)
                .1
                .is_some_and(|stub| !further.is_at_least(stub));
            return (!delegated).then_some(Self {
                domain: &further.domain,
                records: &*further.records,
                further: Some(further),
            });
        }
        let domain = view.cluster_domain_of(name);
        let domain = domain.filter(|_| zone.owns(name))?;
        Some(Self {
            domain,
            records: view,
            further: None,
        })
    }

    /// Whether the zone answers for its apex and for empty non-terminals as RFC 1034 requires. The
    /// cluster's zone does so only with `--strict-dns`, because kube-dns does not. `zone` is the
    /// cluster's zone.
    pub(crate) fn is_whole_zone(&self, zone: &Zone) -> bool {
        zone.strict || self.further.is_some()
    }

    pub(crate) fn cluster(view: &'v impl View) -> Self {
        Self {
            domain: &view.zone().domain,
            records: view,
            further: None,
        }
    }

    /// Whether the zone answers in [SkyDNS style](FurtherZone::skydns).
    pub(crate) fn is_skydns(&self) -> bool {
        self.further.is_some_and(|further| further.skydns)
    }

    /// The labels of a name (wire format, lower case) in front of the domain.
    pub fn relative<'n>(&self, name: &'n [u8]) -> &'n [u8] {
        name.len()
            .checked_sub(self.domain.wire().len())
            .and_then(|below| name.get(..below))
            .unwrap_or_default()
    }

    /// TTL of a record with the stored TTL `stored`, in seconds. `zone` is the cluster's zone.
    pub(crate) fn ttl_of(&self, zone: &Zone, stored: u32) -> u32 {
        match self.further {
            None => zone.ttl_of(stored),
            Some(further) => further.ttl_of(stored),
        }
    }

    /// If several records of an answer get one common TTL, the TTL is at most this, in seconds.
    /// `zone` is the cluster's zone.
    pub(crate) fn max_ttl(&self, zone: &Zone) -> u32 {
        match self.further {
            None => zone.ttl(),
            Some(further) => further.ttl.unwrap_or(u32::MAX),
        }
    }

    /// TTL of the SOA record in the answer section, in seconds. `zone` is the cluster's zone.
    pub(crate) fn soa_ttl(&self, zone: &Zone) -> u32 {
        self.further
            .map_or(zone.ttl, |further| further.ttl)
            .unwrap_or(SOA_TTL)
    }

    /// TTL of negative answers, in seconds. `zone` is the cluster's zone.
    pub(crate) fn negative_ttl(&self, zone: &Zone) -> u32 {
        self.further
            .map_or(zone.negative_ttl, |further| further.negative_ttl)
    }

    /// Whether a nonexistent name of this zone (wire format, lower case) is forwarded. `zone` is
    /// the cluster's zone.
    ///
    /// The name must be in an entry of `zone.fallthrough`. The entry must be the domain of this
    /// zone, or lie below this domain.
    pub(crate) fn falls_through(&self, zone: &Zone, name: &[u8]) -> bool {
        zone.fallthrough
            .iter()
            .any(|part| is_within(part.wire(), self.domain.wire()) && is_within(name, part.wire()))
    }
}

/// Upper limit of the negative TTL of an upstream's response for a name (wire format, lower case),
/// in seconds.
///
/// A name in one of our zones is forwarded if it does not exist there and falls through. The name
/// may be created at any time. An upstream's negative answer must not hide the new name for longer
/// than our own negative answer would. Names outside our zones have no limit.
pub(crate) fn negative_ttl_limit(view: &impl View, name: &[u8]) -> Option<u32> {
    let zone = view.zone();
    if zone.fallthrough.is_empty() {
        return None;
    }

    let authority = Authority::of(view, name)?;
    Some(authority.negative_ttl(zone))
}

/// Returns how a query for `name` (wire format, lower case) is answered. The name is outside our
/// zones, or falls through. Rules apply only to names outside our zones.
pub(crate) fn external_route<'v>(
    view: &'v impl View,
    name: &'v [u8],
    qtype: u16,
) -> ExternalRoute<'v> {
    if Authority::of(view, name).is_some() {
        return ExternalRoute::Forward;
    }
    view.zone().external_route(name, qtype)
}

/// The answer of a rule in place of an upstream's `message` for a name (wire format, lower case);
/// `None` if the message is passed on. Rules apply only to names outside our zones.
pub(crate) fn rule_for_reply<'v>(
    view: &'v impl View,
    message: &[u8],
    name: &'v [u8],
) -> Option<RuleAnswer<'v>> {
    let rule = view.zone().rule_for_reply(message, name)?;
    Authority::of(view, name).is_none().then_some(rule)
}

impl FurtherZone {
    fn is_longer_than(&self, domain: Option<&Name>) -> bool {
        domain.is_none_or(|domain| self.domain.wire().len() > domain.wire().len())
    }

    fn is_at_least(&self, domain: &Name) -> bool {
        self.domain.wire().len() >= domain.wire().len()
    }
}
