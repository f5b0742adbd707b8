//! What the labels of a name mean, who is responsible for it, and which Services its records come from.

use skydns::{Name, View, Zone, name};

use crate::document::{Place, Route};
use crate::request::reverse_address;
use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;

/// The wildcard.
pub(crate) const ANY: &str = treecache::ANY;
/// How many Services are collected for a name.
const MAX_SOURCES: usize = 256;

/// The labels of a name in lower case, from the left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Labels(Vec<String>);

impl Labels {
    pub(crate) fn new(name: &Name) -> Self {
        let text = |label: &[u8]| String::from_utf8_lossy(label).to_ascii_lowercase();
        Self(name::labels(name.wire()).map(text).collect())
    }

    /// The labels.
    pub(crate) fn all(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    /// Those to the left of `domain`, if the name is in it.
    pub(crate) fn below(&self, domain: &Self) -> Option<Vec<&str>> {
        let left = self.0.strip_suffix(domain.0.as_slice())?;
        Some(left.iter().map(String::as_str).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The path of a name from the cluster domain downwards, as the tree has it; `None` for names that are not ours: those
/// outside the cluster domain, and in a stub domain below it.
pub(crate) fn path<'l>(labels: &'l Labels, zone: &Zone) -> Option<Vec<&'l str>> {
    let domain = Labels::new(&zone.domain);
    let mut path = labels.below(&domain)?;
    let takes = |stub: &Labels| stub.len() > domain.len() && labels.below(stub).is_some();
    if zone.stub_domains().iter().any(|(stub, _)| takes(&Labels::new(stub))) {
        return None;
    }
    path.reverse();
    Some(path)
}

/// What a name means.
pub(crate) fn of(snapshot: &Snapshot, labels: &Labels) -> Place {
    match path(labels, &snapshot.zone) {
        Some(path) => below_domain(snapshot, &path),
        None => match reverse_address(&labels.all()) {
            Some(address) => Place::Reverse { address },
            None => Place::Outside,
        },
    }
}

fn below_domain(snapshot: &Snapshot, path: &[&str]) -> Place {
    if let Some(place) = federated(snapshot, path) {
        return place;
    }
    let own = |label: &&str| (*label).to_owned();
    match path {
        [] => Place::Apex,
        ["svc", rest @ ..] => below_svc(rest),
        ["pod", namespace, label] => {
            Place::Pod { namespace: own(namespace), address: pod(snapshot, path, label) }
        }
        ["dns-version"] | ["dns", "ns"] => Place::WellKnown,
        _ => Place::Formless,
    }
}

fn federated(snapshot: &Snapshot, path: &[&str]) -> Option<Place> {
    let &["svc", federation, namespace, name] = path else { return None };
    let domain = snapshot.federation.as_ref()?.domains.get(federation)?;
    Some(Place::Federation {
        federation: federation.to_owned(),
        domain: domain.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

fn below_svc(path: &[&str]) -> Place {
    let own = |label: &&str| (*label).to_owned();
    let bare = |label: &&str| label.trim_start_matches('_').to_owned();
    match path {
        [] => Place::Namespace { namespace: None },
        [namespace] => Place::Namespace { namespace: Some(own(namespace)) },
        [namespace, name] => Place::Service { namespace: own(namespace), name: own(name) },
        [namespace, name, protocol] if protocol.starts_with('_') => Place::Port {
            namespace: own(namespace),
            name: own(name),
            port: String::new(),
            protocol: bare(protocol),
        },
        [namespace, name, label] => {
            Place::Member { namespace: own(namespace), name: own(name), label: own(label) }
        }
        [namespace, name, protocol, port] | [namespace, name, protocol, port, _]
            if protocol.starts_with('_') && port.starts_with('_') =>
        {
            Place::Port {
                namespace: own(namespace),
                name: own(name),
                port: bare(port),
                protocol: bare(protocol),
            }
        }
        _ => Place::Formless,
    }
}

fn pod(snapshot: &Snapshot, path: &[&str], label: &str) -> Option<std::net::IpAddr> {
    let mut address = None;
    if label != ANY {
        snapshot.records(path, false, &mut { usize::MAX }, &mut |entry| {
            address = entry.record.addresses().next();
        });
    }
    address
}

/// The Service that a place is about, if it is about one that is named.
pub(crate) fn service_of(place: &Place) -> Option<ObjectKey> {
    match place {
        Place::Service { namespace, name }
        | Place::Port { namespace, name, .. }
        | Place::Member { namespace, name, .. }
        | Place::Federation { namespace, name, .. }
            if namespace != ANY && name != ANY =>
        {
            Some(ObjectKey::new(namespace.as_str(), name.as_str()))
        }
        _ => None,
    }
}

/// The Services that the records of a name come from, sorted, and how many more there are.
pub(crate) fn sources(snapshot: &Snapshot, labels: &Labels, place: &Place) -> (Vec<ObjectKey>, usize) {
    let mut keys = Vec::new();
    match place {
        Place::Reverse { address } => {
            snapshot.reverse_record(*address, &mut |pointer| keys.extend(key_of(&pointer.name, None)));
        }
        _ => {
            if let Some(path) = path(labels, &snapshot.zone) {
                snapshot.records(&path, false, &mut { usize::MAX }, &mut |entry| {
                    keys.extend(key_of(&entry.record.base, Some(entry.label)));
                });
            }
        }
    }
    keys.sort();
    keys.dedup();
    let more = keys.len().saturating_sub(MAX_SOURCES);
    keys.truncate(MAX_SOURCES);
    (keys, more)
}

/// The Service whose records stand at a name below the zone: `[..] service namespace svc`, or, for an ExternalName,
/// the entry of its own name at `namespace svc`.
fn key_of(base: &[u8], entry: Option<&str>) -> Option<ObjectKey> {
    let labels: Vec<&str> = name::labels(base).map(std::str::from_utf8).collect::<Result<_, _>>().ok()?;
    match (labels.as_slice(), entry) {
        ([namespace, "svc"], Some(name)) => Some(ObjectKey::new(*namespace, name)),
        ([.., name, namespace, "svc"], _) => Some(ObjectKey::new(*namespace, *name)),
        _ => None,
    }
}

/// Who is responsible for a name, as the engine decides it for questions that are asked for addresses.
pub(crate) fn route(snapshot: &Snapshot, name: &Name, labels: &Labels, place: &Place) -> Route {
    let zone = &snapshot.zone;
    let (servers, _) = zone.servers_for(name.to_lowercase().wire());
    let servers = servers.to_vec();
    match place {
        Place::Reverse { address } => Route::Reverse { address: *address, servers },
        Place::Outside => match stub_domain(zone, labels) {
            Some(domain) => Route::StubDomain { domain, servers },
            None if labels.len() < 2 => Route::SingleLabel,
            None => Route::Upstreams { servers },
        },
        _ => Route::ClusterDomain { domain: zone.domain.to_string() },
    }
}

/// The longest stub domain that a name is in.
fn stub_domain(zone: &Zone, labels: &Labels) -> Option<String> {
    let mut domains = zone.stub_domains().iter();
    let found = domains.find(|(domain, _)| labels.below(&Labels::new(domain)).is_some());
    found.map(|(domain, _)| domain.to_string())
}
