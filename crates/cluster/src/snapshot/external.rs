//! The external zone: Services with their external addresses (`--external-zone`), and headless
//! Services with the addresses of their endpoints (`--external-headless`).

use std::any::Any;
use std::sync::Arc;

use skydns::{EntryVisit, Lookup, Records};
use treecache::TreeCache;

use super::{RecordsFrom, each_entry};
use crate::records::ExternalNode;

/// The content of the external zone at one point in time.
#[derive(Debug, Clone)]
pub struct ExternalZone {
    records_from: RecordsFrom,
    /// Services by namespace and name.
    services: TreeCache<Arc<ExternalNode>>,
}

impl ExternalZone {
    /// Creates the zone of these Services. `records_from` is the source of the cluster's records.
    pub fn new(records_from: RecordsFrom, services: TreeCache<Arc<ExternalNode>>) -> Self {
        Self {
            records_from,
            services,
        }
    }
}

impl Records for ExternalZone {
    fn has_synced(&self) -> bool {
        self.records_from.has_synced()
    }

    fn has_listed(&self) -> bool {
        self.records_from.has_listed()
    }

    fn visit_entries<'v>(&'v self, visit: EntryVisit<'_, 'v>) -> Lookup {
        let EntryVisit {
            path,
            exact,
            steps,
            on_entry: visit,
        } = visit;
        let service = match path {
            // The name of the name server, `ns.dns`, has the external addresses of the DNS Service.
            // The name exists even if that Service has none: see `has_descendants`.
            ["dns", "ns"] => self
                .services
                .entry(&["kube-system"], "kube-dns")
                .map(|service| (service, &[][..])),
            // With `exact`, the caller only looks for aliases. The four labels are the name of a
            // port (`_http._tcp.web.apps`), which is never an alias.
            [_, _, _, _] if exact => None,
            [namespace, name, below @ ..] => self
                .services
                .entry(&[namespace], name)
                .map(|service| (service, below)),
            _ => None,
        };
        let found = service.is_some_and(|(service, below)| service.visit(below, steps, visit));
        Lookup::of_found(found)
    }

    fn is_enumerable(&self) -> bool {
        true
    }

    fn owner_names(&self, unlike: Option<&dyn Records>, visit: &mut dyn FnMut(&[&str])) {
        let other = unlike.and_then(|other| (other as &dyn Any).downcast_ref::<Self>());
        let services = other.map(|other| &other.services);
        each_entry(&self.services, services, &mut |namespace, name, service| {
            service.owner_names(&mut |below| visit(&[&[namespace, name], below].concat()));
        });
    }

    fn has_descendants(&self, path: &[&str]) -> bool {
        match path {
            [] | ["dns"] | ["dns", "ns"] => true,
            [namespace] => self.services.node(&[namespace]).is_some(),
            [namespace, name, below @ ..] => self
                .services
                .entry(&[namespace], name)
                .is_some_and(|service| service.has_descendants(below)),
        }
    }
}
