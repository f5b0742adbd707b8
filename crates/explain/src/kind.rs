//! The kind of a name, the servers responsible for the name, and the Services of its records.

use std::net::IpAddr;

use cluster::objects::ObjectKey;
use cluster::snapshot::{Snapshot, pod_address};
use skydns::own_names::OwnTarget;
use skydns::{Authority, FurtherZone, Records as _, View as _, Zone};
use treecache::ANY;
use wire::reverse;
use wire::{Name, name};

use crate::document::{NameKind, Route};

/// The labels of a name (in lower case) below the cluster domain, from right to left; `None` for
/// other names.
pub(crate) fn path(zone: &Zone, name: &Name) -> Option<Vec<String>> {
    let domain = zone
        .domain_of(name.wire())
        .filter(|_| zone.owns(name.wire()))?;
    let mut labels = name.labels();
    labels.truncate(labels.len() - domain.label_count());
    labels.reverse();
    Some(labels)
}

/// The further zone (etcd, external, cluster set) that contains a name (in lower case).
pub(crate) fn further<'s>(snapshot: &'s Snapshot, name: &Name) -> Option<&'s FurtherZone> {
    Authority::of(snapshot, name.wire()).and_then(|authority| authority.further)
}

/// The kind of a name (in lower case), whose labels below the cluster domain are `path`.
pub(crate) fn of(snapshot: &Snapshot, name: &Name, path: Option<&[&str]>) -> NameKind {
    if let Some(led) = snapshot.zone.own(name.wire()) {
        let target = if let OwnTarget::Name(target) = led {
            Some(target.to_string())
        } else {
            None
        };
        return NameKind::OwnName { target };
    }
    if let Some(FurtherZone {
        domain, records, ..
    }) = further(snapshot, name)
    {
        let service = exposed(snapshot, domain, name);
        return NameKind::Zone {
            domain: domain.to_string(),
            synced: records.has_synced(),
            service,
        };
    }
    match (path, reverse::address_of_name(name.wire())) {
        (Some(path), _) => below_domain(snapshot, path),
        (None, Some(address)) => NameKind::Reverse { address },
        (None, None) => NameKind::External,
    }
}

/// The Service of a name in the external zone; `None` if `domain` is another zone.
fn exposed(snapshot: &Snapshot, domain: &Name, name: &Name) -> Option<ObjectKey> {
    snapshot
        .external
        .as_ref()
        .filter(|external| *external == domain)?;
    let mut labels = name.labels();
    labels.truncate(labels.len() - domain.label_count());
    match labels.as_slice() {
        [.., service, namespace] if namespace != "dns" => {
            Some(ObjectKey::new(namespace.as_str(), service.as_str()))
        }
        _ => None,
    }
}

fn below_domain(snapshot: &Snapshot, path: &[&str]) -> NameKind {
    if let Some(kind) = federated(snapshot, path) {
        return kind;
    }
    match *path {
        [] => NameKind::Apex,
        ["svc"] => NameKind::Namespace { namespace: None },
        ["svc", namespace] => NameKind::Namespace {
            namespace: Some(namespace.to_owned()),
        },
        ["svc", namespace, name, ref labels @ ..] => {
            of_service(ObjectKey::new(namespace, name), labels)
        }
        ["pod", namespace, label] => NameKind::Pod {
            namespace: namespace.to_owned(),
            address: pod(namespace, label),
        },
        ["dns-version"] | ["dns", "ns"] => NameKind::WellKnown,
        _ => NameKind::Formless,
    }
}

fn federated(snapshot: &Snapshot, path: &[&str]) -> Option<NameKind> {
    let &["svc", federation, namespace, name] = path else {
        return None;
    };
    let domain = snapshot
        .federation
        .as_ref()?
        .domains
        .get(federation)?
        .clone();
    let key = ObjectKey::new(namespace, name);
    Some(NameKind::Federation {
        federation: federation.to_owned(),
        domain,
        key,
    })
}

/// The kind of a name that consists of `labels` below the Service `key`.
fn of_service(key: ObjectKey, labels: &[&str]) -> NameKind {
    let bare = |label: &str| label.trim_start_matches('_').to_owned();
    match *labels {
        [] => NameKind::Service(key),
        [protocol] if protocol.starts_with('_') => NameKind::Port {
            key,
            port: String::new(),
            protocol: bare(protocol),
        },
        [label] => NameKind::Member {
            key,
            label: label.to_owned(),
        },
        [protocol, port] | [protocol, port, _]
            if protocol.starts_with('_') && port.starts_with('_') =>
        {
            NameKind::Port {
                key,
                port: bare(port),
                protocol: bare(protocol),
            }
        }
        _ => NameKind::Formless,
    }
}

/// The address in the name of a pod, even if no pod has the address.
fn pod(namespace: &str, label: &str) -> Option<IpAddr> {
    let is_single = |label: &str| label != ANY && !label.contains('.');
    pod_address(label).filter(|_| is_single(namespace) && is_single(label))
}

/// The route of address queries for a name (in lower case).
pub(crate) fn route(zone: &Zone, name: &Name, kind: &NameKind) -> Route {
    let (servers, stub_domain) = zone.servers_for(name.wire());
    let servers = servers.iter().map(ToString::to_string).collect();
    match (kind, stub_domain) {
        (NameKind::OwnName { .. }, _) => Route::OwnName,
        (NameKind::Zone { domain, .. }, _) => Route::Zone {
            domain: domain.clone(),
        },
        (NameKind::Reverse { address }, _) => Route::Reverse {
            address: *address,
            servers,
        },
        (NameKind::External, Some(domain)) => Route::StubDomain {
            domain: domain.to_string(),
            servers,
        },
        (NameKind::External, None) if zone.must_not_forward(name.wire()) => Route::SingleLabel,
        (NameKind::External, None) => Route::Upstreams { servers },
        _ => {
            let domain = zone.domain_of(name.wire()).unwrap_or(&zone.domain);
            Route::ClusterDomain {
                domain: domain.to_string(),
            }
        }
    }
}

/// The Services that the records of a name come from, sorted.
pub(crate) fn sources(
    snapshot: &Snapshot,
    kind: &NameKind,
    path: Option<&[&str]>,
) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    if let NameKind::Reverse { address } = kind {
        snapshot.reverse_record(*address, &mut |pointer| {
            keys.extend(key_of(&pointer.name, None));
        });
    } else if let Some(path) = path {
        snapshot.records(path, false, &mut { usize::MAX }, &mut |entry| {
            keys.extend(key_of(entry.record.base, Some(entry.label)));
        });
    }
    keys.sort();
    keys.dedup();
    keys
}

/// The Service of a record. The owner domain `base` is `[..] service namespace svc`. For an
/// ExternalName, `base` is `namespace svc`, and the label of the entry is the name of the Service.
fn key_of(base: &[u8], entry: Option<&str>) -> Option<ObjectKey> {
    let base = name::to_text(base);
    let labels: Vec<&str> = base.split_terminator('.').collect();
    match (labels.as_slice(), entry) {
        ([namespace, "svc"], Some(name)) => Some(ObjectKey::new(*namespace, name)),
        ([.., name, namespace, "svc"], _) => Some(ObjectKey::new(*namespace, *name)),
        _ => None,
    }
}
