//! The published records: an immutable [`Snapshot`], and [`Published`], from which readers load the
//! current snapshot.

mod external;
mod label;
mod pod;

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use skydns::{
    Backend, Entry, EntryVisit, Host, Lookup, Pointer, Records, ServiceRecord, View, Zone, Zones,
};
use smol_str::SmolStr;
use tokio::sync::watch;
use treecache::{ANY, Map, TreeCache};
use wire::Name;
use wire::rfc1123::is_label;

use crate::objects::ObjectKey;
use crate::one_or_many::OneOrMany;
use crate::records::{ExternalName, ServiceNode, dashed};
pub use external::ExternalZone;
pub use pod::address as pod_address;

/// Cost in steps of each Service that a wildcard matches. A Service costs more than an entry,
/// because Services are scattered in memory.
const SERVICE: usize = 32;

/// All records at one point in time. `clone` only increments reference counts.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The zone, its upstreams and stub domains.
    pub zone: Zone,
    /// The zones beside the cluster's.
    pub zones: Zones,
    /// The domain of the external zone; `None` if there is no external zone.
    pub external: Option<Name>,
    /// Whether the first lists are complete or a snapshot file was loaded.
    pub synced: bool,
    /// The records of Services, by namespace and name.
    pub services: TreeCache<Arc<ServiceNode>>,
    /// The entries of ExternalName Services, by namespace and name.
    pub aliases: TreeCache<Arc<ExternalName>>,
    /// The PTR names of each address. The name of the oldest Service comes first.
    pub reverse: Map<IpAddr, OneOrMany<Pointer>>,
    /// The answers to pod names.
    pub pods: PodNames,
    /// The namespaces that are served; `None` for all.
    pub served: Option<Map<SmolStr, ()>>,
    /// Federations, if any are configured.
    pub federation: Option<Arc<Federation>>,
    /// Services that are answered locally at their federated names: those with ready endpoints, and
    /// ExternalName Services. Only filled while federations are configured.
    pub backed: Map<ObjectKey, ()>,
}

/// The answers to pod names.
#[derive(Debug, Clone, Default)]
pub enum PodNames {
    /// Answers with the address in the name, without checking that a pod has the address.
    #[default]
    Insecure,
    /// Pod names do not exist.
    Disabled,
    /// Answers with the address in the name if a pod of the namespace has the address. Maps each
    /// address to the sorted namespaces of its pods. An address has several namespaces only in the
    /// host network, or briefly while the address moves to another pod.
    Verified(Map<IpAddr, Arc<[SmolStr]>>),
}

/// Configuration of federated names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Federation {
    /// The domain of each federation, by its name.
    pub domains: std::collections::BTreeMap<String, String>,
    /// Zone and region of this cluster; `None` until a Node with both labels is known.
    pub topology: Option<Topology>,
}

/// Zone and region of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The zone.
    pub zone: SmolStr,
    /// The region.
    pub region: SmolStr,
}

impl Snapshot {
    /// An empty snapshot that has not synced.
    pub fn new(zone: Zone) -> Self {
        Self {
            zone,
            zones: Zones::none(),
            external: None,
            synced: false,
            services: TreeCache::default(),
            aliases: TreeCache::default(),
            reverse: Map::default(),
            pods: PodNames::Insecure,
            served: None,
            federation: None,
            backed: Map::default(),
        }
    }

    /// The record of a federated name. The target is the local Service if that has ready endpoints,
    /// otherwise the name in the federation.
    fn federated(
        &self,
        domain: &str,
        federation: &str,
        key: &ObjectKey,
    ) -> Option<ServiceRecord<'static>> {
        let ObjectKey { namespace, name } = key;
        let target = if self.backed.get(key).is_some() {
            format!("{name}.{namespace}.svc.{}", self.zone.domain)
        } else {
            let topology = self.federation.as_ref()?.topology.as_ref()?;
            format!(
                "{name}.{namespace}.{federation}.svc.{}.{}.{domain}.",
                topology.zone, topology.region
            )
        };
        let record = ServiceRecord::new(Host::Name(Cow::Owned(Name::parse(&target).ok()?)), &[]);
        Some(ServiceRecord {
            ttl: 0,
            priority: 0,
            weight: 0,
            ..record
        })
    }

    /// Looks up a federated name; `None` if `path` is not a federated name.
    fn federation<'v>(&'v self, path: &[&str], visit: &mut dyn FnMut(Entry<'v>)) -> Option<Lookup> {
        let &["svc", federation, namespace, name] = path else {
            return None;
        };
        let domain = self.federation.as_ref()?.domains.get(federation)?;
        if !label::is_service_name(name) || !is_label(namespace) {
            return None;
        }
        Some(
            match self.federated(domain, federation, &ObjectKey::new(namespace, name)) {
                Some(record) => {
                    visit(Entry {
                        label: "",
                        record,
                        synthesized: true,
                    });
                    Lookup::Exists
                }
                None => Lookup::TargetUnknown,
            },
        )
    }

    /// Whether a namespace is served.
    pub fn serves(&self, namespace: &str) -> bool {
        self.served
            .as_ref()
            .is_none_or(|served| served.get(namespace).is_some())
    }

    /// The selected namespaces; empty if all namespaces are served. The name of a selected
    /// namespace exists even without a Service.
    fn chosen(&self) -> impl Iterator<Item = &SmolStr> {
        self.served
            .iter()
            .flat_map(Map::iter)
            .map(|(name, ())| name)
    }

    /// The namespace of the pod with this address. `None` unless pod names are verified. `None`
    /// also if pods of several namespaces share the address, as in the host network.
    pub fn namespace_of_pod(&self, address: IpAddr) -> Option<&SmolStr> {
        match &self.pods {
            PodNames::Verified(pods) => match &**pods.get(&address)? {
                [namespace] => Some(namespace),
                _ => None,
            },
            PodNames::Insecure | PodNames::Disabled => None,
        }
    }

    /// Whether a pod of the namespace has the address. Always true with `PodNames::Insecure`.
    fn has_pod(&self, namespace: &str, address: IpAddr) -> bool {
        match &self.pods {
            PodNames::Insecure => true,
            PodNames::Disabled => false,
            PodNames::Verified(pods) => {
                let namespaces = pods
                    .get(&address)
                    .into_iter()
                    .flat_map(|namespaces| namespaces.iter());
                namespaces.into_iter().any(|other| other == namespace)
            }
        }
    }

    /// Whether names of pods in the namespace may exist.
    fn has_pod_names(&self, namespace: &str) -> bool {
        !matches!(self.pods, PodNames::Disabled)
            && self.serves(namespace)
            && pod::may_be_pod(namespace)
    }

    fn pod<'v>(&'v self, namespace: &str, label: &str, visit: &mut dyn FnMut(Entry<'v>)) -> Lookup {
        if !self.has_pod_names(namespace) {
            return Lookup::Missing;
        }
        match pod::address(label) {
            Some(ip) if !self.has_pod(namespace, ip) => Lookup::Missing,
            Some(ip) => {
                let record = ServiceRecord::new(Host::Address(ip), &[]);
                visit(Entry {
                    label: "",
                    record,
                    synthesized: true,
                });
                Lookup::Exists
            }
            // kube-dns answers NODATA to any label that is not an address.
            None if self.zone.strict || !matches!(self.pods, PodNames::Insecure) => Lookup::Missing,
            None => Lookup::Exists,
        }
    }
}

impl ExternalName {
    /// The record with the target of the Service.
    pub fn record(&self) -> ServiceRecord<'_> {
        let host = match &self.host {
            Host::Name(name) => Host::Name(Cow::Borrowed(name)),
            other => other.clone(),
        };
        ServiceRecord::new(host, &self.base)
    }
}

/// Lookups of names below `svc`.
impl Snapshot {
    /// The namespaces that have a Service.
    pub fn namespaces(&self) -> impl Iterator<Item = &SmolStr> {
        let services = self
            .services
            .root()
            .children()
            .map(|(namespace, _)| namespace);
        let aliases = self
            .aliases
            .root()
            .children()
            .map(|(namespace, _)| namespace);
        services.chain(aliases.filter(|namespace| self.services.node(&[namespace]).is_none()))
    }

    /// Whether a namespace has a Service.
    pub fn has_namespace(&self, namespace: &str) -> bool {
        self.services.node(&[namespace]).is_some() || self.aliases.node(&[namespace]).is_some()
    }

    /// Visits the entry whose own label is the last label of `path`, as `exact` of
    /// [`Records::visit_entries`] requires.
    fn find_exactly<'v>(
        &'v self,
        path: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let ["svc", namespace, name, below @ ..] = path else {
            return false;
        };
        if !below.is_empty() {
            let service = self.services.entry(&[namespace], name);
            return service.is_some_and(|service| service.visit(below, true, steps, visit));
        }
        let alias = self
            .aliases
            .node(&[namespace])
            .and_then(|aliases| aliases.entry_of(name));
        alias
            .map(|(label, alias)| {
                visit(Entry {
                    label,
                    record: alias.record(),
                    synthesized: false,
                });
            })
            .is_some()
    }

    /// Visits all entries that a path with or without wildcards matches, see [`Records::visit_entries`].
    fn find<'v>(
        &'v self,
        path: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let ["svc" | ANY, path @ ..] = path else {
            return false;
        };
        let mut found = false;
        if let [_, _] | [_] = path {
            found = self.aliases.visit(path, steps, &mut |label, alias| {
                visit(Entry {
                    label,
                    record: alias.record(),
                    synthesized: false,
                });
            });
        }
        match path {
            // A wildcard in place of the Service name matches only ExternalName Services, which are
            // entries of the namespace's node. Other Services have their entries one level deeper.
            [_, ANY] => found,
            [namespace, name, below @ ..] => {
                self.find_service([namespace, name], below, steps, visit) || found
            }
            _ => found,
        }
    }

    /// Visits the entries at the labels `below` of each Service that matches namespace and name.
    fn find_service<'v>(
        &'v self,
        [namespace, name]: [&str; 2],
        below: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let (mut found, before, left) = (false, *steps, Cell::new(*steps));
        let mut each = |label: &'v SmolStr, service: &'v Arc<ServiceNode>| {
            let mut steps = left.get();
            if name == ANY {
                steps = steps.saturating_sub(SERVICE);
            }
            if name != ANY || !label.starts_with('_') {
                found |= service.visit(below, false, &mut steps, visit);
            }
            left.set(steps);
        };
        self.services.visit(&[namespace, name], steps, &mut each);
        *steps = steps.saturating_sub(before - left.get());
        found
    }
}

impl Records for Snapshot {
    fn has_synced(&self) -> bool {
        self.synced
    }

    fn visit_entries<'v>(&'v self, visit: EntryVisit<'_, 'v>) -> Lookup {
        let EntryVisit {
            path,
            exact,
            steps,
            on_entry: visit,
        } = visit;
        if let &["pod", namespace, label] = path
            && pod::may_be_pod(namespace)
            && pod::may_be_pod(label)
        {
            return self.pod(namespace, label, visit);
        }
        // ExternalName Services are entries at the namespace's own name. In strict mode, that name
        // has no records.
        if self.zone.strict && matches!(path, ["svc", _]) {
            return Lookup::Missing;
        }
        if let Some(lookup) = self.federation(path, visit) {
            return lookup;
        }
        let found = if exact {
            self.find_exactly(path, steps, visit)
        } else {
            self.find(path, steps, visit)
        };
        if found {
            Lookup::Exists
        } else {
            Lookup::Missing
        }
    }

    fn is_enumerable(&self) -> bool {
        true
    }

    fn owner_names(&self, unlike: Option<&dyn Records>, visit: &mut dyn FnMut(&[&str])) {
        let other = unlike.and_then(|other| (other as &dyn Any).downcast_ref::<Self>());
        let other = other.filter(|other| !self.hides_services() && !other.hides_services());
        visit(&["dns-version"]);
        each_entry(
            &self.services,
            other.map(|other| &other.services),
            &mut |namespace, name, service| {
                names_of_service([namespace, name], service, &mut |path| {
                    // Federated names are in no list.
                    if !self.is_federated(path) {
                        visit(path);
                    }
                });
            },
        );
        each_entry(
            &self.aliases,
            other.map(|other| &other.aliases),
            &mut |namespace, name, _| {
                visit(&["svc", namespace, name]);
            },
        );
        self.pod_names(other, visit);
    }

    fn has_descendants(&self, path: &[&str]) -> bool {
        match path {
            // `pod` always exists: by default, names below exist for every address in every
            // namespace. `dns` exists because of the name server `ns.dns`.
            [] | ["pod" | "dns"] => true,
            // The name of a namespace without pod names does not exist (RFC 8020).
            ["pod", namespace] => self.has_pod_names(namespace),
            ["svc"] => self.namespaces().next().is_some() || self.chosen().next().is_some(),
            ["svc", namespace] => {
                self.has_namespace(namespace) || self.served.is_some() && self.serves(namespace)
            }
            ["svc", namespace, name, below @ ..] => self
                .services
                .entry(&[namespace], name)
                .is_some_and(|service| service.has_descendants(below)),
            _ => false,
        }
    }
}

impl View for Snapshot {
    fn reverse_record<'v>(&'v self, address: IpAddr, visit: &mut dyn FnMut(&'v Pointer)) {
        for pointer in self
            .reverse
            .get(&address)
            .into_iter()
            .flat_map(|owners| owners.iter())
        {
            visit(pointer);
        }
    }

    fn namespace_of(&self, client: IpAddr) -> Option<&str> {
        self.namespace_of_pod(client).map(SmolStr::as_str)
    }

    fn zone(&self) -> &Zone {
        &self.zone
    }

    fn zones(&self) -> &Zones {
        &self.zones
    }
}

/// Names for zone transfers.
impl Snapshot {
    /// Visits the names of pods. Those that `other` answers in the same way may be left out.
    fn pod_names(&self, other: Option<&Self>, visit: &mut dyn FnMut(&[&str])) {
        let PodNames::Verified(pods) = &self.pods else {
            return;
        };
        let comparable = other
            .filter(|other| self.serves_like(other))
            .map(|other| &other.pods);
        match comparable {
            Some(PodNames::Verified(others)) => {
                pods.differences(
                    others,
                    |ours, theirs| ours == theirs,
                    &mut |address, ours, _| {
                        if let Some(namespaces) = ours {
                            names_of_pods(*address, namespaces, visit);
                        }
                    },
                );
            }
            _ => pods
                .iter()
                .for_each(|(address, namespaces)| names_of_pods(*address, namespaces, visit)),
        }
    }

    /// Whether a path is answered as a federated name, see [`Self::federation`].
    fn is_federated(&self, path: &[&str]) -> bool {
        let &["svc", federation, namespace, name] = path else {
            return false;
        };
        let is_known = |known: &Arc<Federation>| known.domains.contains_key(federation);
        self.federation.as_ref().is_some_and(is_known)
            && label::is_service_name(name)
            && is_label(namespace)
    }

    /// Whether a federation has the name of a namespace. Federated names then override names of the
    /// namespace, and depend on other Services and on the nodes.
    fn hides_services(&self) -> bool {
        let federations = self
            .federation
            .iter()
            .flat_map(|federation| federation.domains.keys());
        federations.into_iter().any(|name| self.has_namespace(name))
    }

    /// Whether both snapshots serve the same namespaces.
    fn serves_like(&self, other: &Self) -> bool {
        match (&self.served, &other.served) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => {
                let mut is_same = true;
                ours.differences(theirs, |(), ()| true, &mut |_, _, _| is_same = false);
                is_same
            }
            _ => false,
        }
    }
}

/// Visits the entries of a tree of namespaces, with namespace and name. With `other`, only those
/// entries that `other` does not have in the same form.
pub(crate) fn each_entry<V: Clone + PartialEq>(
    tree: &TreeCache<V>,
    other: Option<&TreeCache<V>>,
    visit: &mut dyn FnMut(&str, &str, &V),
) {
    let Some(other) = other else {
        for (namespace, node) in tree.root().children() {
            node.entries()
                .for_each(|(name, value)| visit(namespace, name, value));
        }
        return;
    };
    let is_same = |ours: &V, theirs: &V| ours == theirs;
    tree.differences(other, &is_same, &mut |path, name| {
        if let ([namespace], Some(value)) = (path, tree.entry(path, name)) {
            visit(namespace, name, value);
        }
    });
}

/// Visits the owner names of a Service.
fn names_of_service(
    [namespace, name]: [&str; 2],
    service: &ServiceNode,
    visit: &mut dyn FnMut(&[&str]),
) {
    service.owner_names(&mut |below| match *below {
        [] => visit(&["svc", namespace, name]),
        [label] => visit(&["svc", namespace, name, label]),
        [protocol, port] => visit(&["svc", namespace, name, protocol, port]),
        [protocol, port, label] => visit(&["svc", namespace, name, protocol, port, label]),
        _ => {}
    });
}

/// Visits the names of the pods with an address.
fn names_of_pods(address: IpAddr, namespaces: &[SmolStr], visit: &mut dyn FnMut(&[&str])) {
    let label = dashed(address);
    for namespace in namespaces {
        visit(&["pod", namespace, &label]);
    }
}

/// The current snapshot. Readers load it atomically, without a lock.
#[derive(Debug)]
pub struct Published {
    current: ArcSwap<Snapshot>,
    /// Signals each new snapshot.
    changes: watch::Sender<()>,
}

impl Published {
    /// Publishes the first snapshot.
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            current: ArcSwap::from_pointee(snapshot),
            changes: watch::Sender::new(()),
        }
    }

    /// Replaces the snapshot.
    pub fn set(&self, snapshot: Snapshot) {
        self.current.store(Arc::new(snapshot));
        self.changes.send_replace(());
    }

    /// Subscribes to replacements of the snapshot.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The current snapshot.
    pub fn get(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }
}

impl Backend for Published {
    type View = Snapshot;
    type Guard = Reading;

    fn view(&self) -> Self::Guard {
        Reading(self.current.load())
    }

    fn keep(guard: Self::Guard) -> Arc<Snapshot> {
        arc_swap::Guard::into_inner(guard.0)
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
pub(crate) mod tests;
