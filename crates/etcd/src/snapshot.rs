//! The zones of etcd as all that a DNS server serves, without a cluster: an immutable
//! [`EtcdSnapshot`], and [`EtcdBackend`], from which readers load the current snapshot.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use skydns::{Backend, EntryVisit, FurtherZone, Lookup, Pointer, Records, View, Zone, Zones};
use tokio::sync::watch;
use wire::Name;

/// All zones at one point in time, and the settings of the server. `clone` only increments
/// reference counts.
#[derive(Debug, Clone)]
pub struct EtcdSnapshot {
    /// The settings. The domain is that of a zone of etcd, which stands in for own names.
    pub zone: Zone,
    /// The zones from etcd, and their reverse names.
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

    /// A zone whose keys have not been listed yet; `None` once all zones are loaded.
    pub fn unloaded_zone(&self) -> Option<&FurtherZone> {
        self.zones.iter().find(|zone| !zone.records.has_synced())
    }
}

/// The records of the cluster that does not exist: there are none, and nothing to wait for.
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

/// The current snapshot. Readers load it atomically, without a lock.
#[derive(Debug)]
pub struct EtcdBackend {
    current: ArcSwap<EtcdSnapshot>,
    /// Signals each new snapshot.
    changes: watch::Sender<()>,
}

impl EtcdBackend {
    /// Publishes the first snapshot.
    pub fn new(snapshot: EtcdSnapshot) -> Self {
        Self {
            current: ArcSwap::from_pointee(snapshot),
            changes: watch::Sender::new(()),
        }
    }

    /// Replaces the settings.
    pub fn set_settings(&self, zone: Zone) {
        let zones = self.get().zones.clone();
        self.publish(EtcdSnapshot { zone, zones });
    }

    /// Adds a zone, or replaces the zone with the same domain.
    pub fn set_zone(&self, zone: FurtherZone) {
        let current = self.get();
        self.publish(EtcdSnapshot {
            zone: current.zone.clone(),
            zones: current.zones.with(zone),
        });
    }

    /// The current snapshot.
    pub fn get(&self) -> Arc<EtcdSnapshot> {
        self.current.load_full()
    }

    /// Subscribes to replacements of the snapshot.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn publish(&self, snapshot: EtcdSnapshot) {
        self.current.store(Arc::new(snapshot));
        self.changes.send_replace(());
    }
}

impl Backend for EtcdBackend {
    type View = EtcdSnapshot;
    type Guard = EtcdSnapshotGuard;

    fn view(&self) -> Self::Guard {
        EtcdSnapshotGuard(self.current.load())
    }

    fn keep(guard: Self::Guard) -> Arc<EtcdSnapshot> {
        arc_swap::Guard::into_inner(guard.0)
    }
}

/// Holds the snapshot that a query reads.
pub struct EtcdSnapshotGuard(arc_swap::Guard<Arc<EtcdSnapshot>>);

impl Deref for EtcdSnapshotGuard {
    type Target = EtcdSnapshot;

    fn deref(&self) -> &EtcdSnapshot {
        &self.0
    }
}
