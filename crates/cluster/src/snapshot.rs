//! The published records: an immutable snapshot, and the place that readers find the current one at.

mod label;
mod pod;

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use skydns::{Backend, Entry, Host, Lookup, Name, Pointer, ServiceRecord, View, Zone};
use smol_str::SmolStr;
use treecache::{Map, TreeCache};

use crate::few::Few;
use crate::objects::ObjectKey;
use crate::records::Records;

/// All records at one point in time. `clone` is a handful of reference counts.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The zone, its upstreams and stub domains.
    pub zone: Zone,
    /// Both first listings are in, or a snapshot file was loaded.
    pub synced: bool,
    /// The records, by path below the zone.
    pub tree: TreeCache<Records>,
    /// Owners of addresses, the oldest first.
    pub reverse: Map<IpAddr, Few<Pointer>>,
    /// Federations, if any are configured.
    pub federation: Option<Arc<Federation>>,
    /// Services that answer for their federated names: those with ready endpoints, and external names. Kept only while
    /// federations are configured.
    pub backed: Map<ObjectKey, ()>,
    /// An empty [`ServiceRecord::base`], for records that stand in no node.
    nowhere: Arc<[u8]>,
}

/// How federated names are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Federation {
    /// Federation name to its domain.
    pub domains: std::collections::BTreeMap<String, String>,
    /// Where this cluster is; `None` while no node that says so is known.
    pub place: Option<Place>,
}

/// Zone and region of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The zone.
    pub zone: SmolStr,
    /// The region.
    pub region: SmolStr,
}

impl Snapshot {
    /// No records, not synced.
    pub fn new(zone: Zone) -> Self {
        Self {
            zone,
            synced: false,
            tree: TreeCache::default(),
            reverse: Map::default(),
            federation: None,
            backed: Map::default(),
            nowhere: Arc::new([]),
        }
    }

    /// The answer to a federated name: the local Service where it has endpoints, else the name in the federation.
    fn federated(&self, domain: &str, federation: &str, key: &ObjectKey) -> Option<ServiceRecord> {
        let ObjectKey { namespace, name } = key;
        let target = if self.backed.get(key).is_some() {
            format!("{name}.{namespace}.svc.{}", self.zone.domain)
        } else {
            let place = self.federation.as_ref()?.place.as_ref()?;
            format!("{name}.{namespace}.{federation}.svc.{}.{}.{domain}.", place.zone, place.region)
        };
        let record = ServiceRecord::new(Host::Name(Name::parse(&target).ok()?), Arc::clone(&self.nowhere));
        Some(ServiceRecord { ttl: 0, priority: 0, weight: 0, ..record })
    }

    /// Looks a federated name up; `None` when it is none.
    fn federation<'v>(&'v self, path: &[&str], visit: &mut dyn FnMut(Entry<'v>)) -> Option<Lookup> {
        let &["svc", federation, namespace, name] = path else { return None };
        let domain = self.federation.as_ref()?.domains.get(federation)?;
        if !label::is_service_name(name) || !label::is_dns_label(namespace) {
            return None;
        }
        Some(match self.federated(domain, federation, &ObjectKey::new(namespace, name)) {
            Some(record) => {
                visit(Entry { label: "", record: Cow::Owned(record) });
                Lookup::Exists
            }
            None => Lookup::Unknown,
        })
    }

    fn pod<'v>(&'v self, label: &str, visit: &mut dyn FnMut(Entry<'v>)) -> Lookup {
        match pod::address(label) {
            Some(ip) => {
                let record = ServiceRecord::for_addresses(&[ip], Arc::clone(&self.nowhere));
                visit(Entry { label: "", record: Cow::Owned(record) });
                Lookup::Exists
            }
            // kube-dns answers NODATA for any label in the place of an address.
            None if self.zone.strict => Lookup::Missing,
            None => Lookup::Exists,
        }
    }
}

impl View for Snapshot {
    fn has_synced(&self) -> bool {
        self.synced
    }

    fn records<'v>(
        &'v self,
        path: &[&str],
        exact: bool,
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> Lookup {
        if let &["pod", namespace, label] = path
            && pod::may_be_pod(namespace)
            && pod::may_be_pod(label)
        {
            return self.pod(label, visit);
        }
        // The entries of a namespace are its ExternalName Services; strictly they are no records of its own name.
        if self.zone.strict && matches!(path, ["svc", _]) {
            return Lookup::Missing;
        }
        if let Some(lookup) = self.federation(path, visit) {
            return lookup;
        }
        let mut each = |label: &'v SmolStr, records: &'v Records| {
            for record in records {
                visit(Entry { label, record: Cow::Borrowed(record) });
            }
        };
        let found = match path {
            [parents @ .., label] if exact => {
                // An exact question is for the entry of that very label.
                self.tree
                    .node(parents)
                    .and_then(|node| node.entry_of(label))
                    .map(|(label, value)| each(label, value))
            }
            _ => self.tree.visit(path, steps, &mut each).then_some(()),
        };
        if found.is_some() { Lookup::Exists } else { Lookup::Missing }
    }

    fn has_descendants(&self, path: &[&str]) -> bool {
        match path {
            // Every namespace and every address exists below `pod`; `ns.dns` is the name server.
            ["pod" | "dns"] => true,
            // There is nothing below what is the namespace of no pod (RFC 8020).
            ["pod", namespace] => pod::may_be_pod(namespace),
            _ => self.tree.node(path).is_some(),
        }
    }

    fn reverse_record<'v>(&'v self, address: IpAddr, visit: &mut dyn FnMut(&'v Pointer)) {
        for pointer in self.reverse.get(&address).into_iter().flat_map(|owners| owners.iter()) {
            visit(pointer);
        }
    }

    fn zone(&self) -> &Zone {
        &self.zone
    }
}

/// Where readers find the current snapshot: one atomic load, no lock.
#[derive(Debug)]
pub struct Published(ArcSwap<Snapshot>);

impl Published {
    /// Publishes a first snapshot.
    pub fn new(snapshot: Snapshot) -> Self {
        Self(ArcSwap::from_pointee(snapshot))
    }

    /// Replaces the snapshot.
    pub fn set(&self, snapshot: Snapshot) {
        self.0.store(Arc::new(snapshot));
    }

    /// The current snapshot.
    pub fn get(&self) -> Arc<Snapshot> {
        self.0.load_full()
    }
}

impl Backend for Published {
    type View = Snapshot;
    type Guard = Reading;

    fn view(&self) -> Self::Guard {
        Reading(self.0.load())
    }
}

/// Holds the snapshot that a query reads.
pub struct Reading(arc_swap::Guard<Arc<Snapshot>>);

impl Deref for Reading {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.0
    }
}

#[cfg(test)]
mod tests;
