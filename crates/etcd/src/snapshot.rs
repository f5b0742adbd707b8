//! The view of a DNS server that serves zones of etcd without a cluster: an immutable
//! [`EtcdSnapshot`], and [`EtcdBackend`], from which readers load the current snapshot.

use std::net::IpAddr;

use skydns::{EntryVisit, FurtherZone, Lookup, Pointer, PublishedView, Records, View, Zone, Zones};
use wire::Name;

/// The current snapshot, as a backend of the DNS server.
pub type EtcdBackend = PublishedView<EtcdSnapshot>;

/// All zones at one point in time, and the settings of the server. `clone` only increments
/// reference counts.
#[derive(Debug, Clone)]
pub struct EtcdSnapshot {
    /// The settings. There is no cluster domain, so the field `domain` holds the domain of the
    /// first zone from etcd.
    pub zone: Zone,
    /// The zones from etcd, including the zone `arpa` for reverse names.
    pub zones: Zones,
}

impl EtcdSnapshot {
    /// A snapshot without zones.
    pub fn new(zone: Zone) -> Self {
        Self {
            zone,
            zones: Zones::none(),
        }
    }

    /// The same zones with these settings.
    #[must_use]
    pub fn with_settings(&self, zone: Zone) -> Self {
        Self {
            zone,
            zones: self.zones.clone(),
        }
    }

    /// The same settings and zones, with `zone` added. `zone` replaces a zone with the same domain.
    #[must_use]
    pub fn with_zone(&self, zone: FurtherZone) -> Self {
        Self {
            zone: self.zone.clone(),
            zones: self.zones.with(zone),
        }
    }

    /// A zone whose keys have not been listed yet; `None` once all zones are loaded.
    pub fn unloaded_zone(&self) -> Option<&FurtherZone> {
        self.zones.iter().find(|zone| !zone.records.has_synced())
    }
}

/// There is no cluster, so there are no cluster records, and no lists of Kubernetes objects to wait
/// for. The records of etcd are in the zones.
impl Records for EtcdSnapshot {
    fn has_synced(&self) -> bool {
        true
    }

    fn visit_entries<'v>(&'v self, _visit: EntryVisit<'_, 'v>) -> Lookup {
        Lookup::Missing
    }

    fn has_descendants(&self, _path: &[&str]) -> bool {
        false
    }
}

impl View for EtcdSnapshot {
    /// Reverse names are in the zone `arpa` of [`zones`](View::zones).
    fn reverse_record<'v>(&'v self, _address: IpAddr, _visit: &mut dyn FnMut(&'v Pointer)) {}

    fn zone(&self) -> &Zone {
        &self.zone
    }

    fn cluster_domain_of(&self, _name: &[u8]) -> Option<&Name> {
        None
    }

    fn zones(&self) -> &Zones {
        &self.zones
    }
}
