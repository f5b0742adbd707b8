//! The kind of a name, the servers responsible for the name, and the Services of its records.

use std::net::IpAddr;

use cluster::objects::ObjectKey;
use cluster::records::{ZonalName, ZoneDirective};
use cluster::snapshot::{Snapshot, parse_pod_address};
use skydns::own_names::OwnTarget;
use skydns::{Authority, EntryVisit, FurtherZone, Records as _, View as _, Zone};
use treecache::ANY;
use wire::reverse;
use wire::{Name, name};

use crate::document::{NameKind, NameRoute};

/// The labels of a name (in lower case) below its cluster domain, from right to left; `None` if the
/// name is not in the cluster's zone.
pub(crate) fn labels_below_domain(zone: &Zone, name: &Name) -> Option<Vec<String>> {
    let domain = zone
        .domain_of(name.wire())
        .filter(|_| zone.owns(name.wire()))?;

    let mut labels = name.labels();
    labels.truncate(labels.len() - domain.label_count());
    labels.reverse();
    Some(labels)
}

/// The further zone (of `--etcd-zone`, `--external-zone` or `--clusterset-domain`) that is
/// responsible for a name (in lower case).
pub(crate) fn further_zone<'s>(snapshot: &'s Snapshot, name: &Name) -> Option<&'s FurtherZone> {
    Authority::of(snapshot, name.wire()).and_then(|authority| authority.further)
}

/// The kind of a name (in lower case). `path` has the labels of the name below its cluster domain,
/// from right to left. `path` is `None` unless the cluster's zone is responsible for the name.
pub(crate) fn classify_name(snapshot: &Snapshot, name: &Name, path: Option<&[&str]>) -> NameKind {
    // As when kubedns answers a query, hosts and aliases of the configuration come before all
    // zones.
    if let Some(own) = snapshot.zone.own(name.wire()) {
        let target = if let OwnTarget::Name(target) = own {
            Some(target.to_string())
        } else {
            None
        };
        return NameKind::OwnName { target };
    }
    if let Some(zone) = further_zone(snapshot, name) {
        return NameKind::Zone {
            domain: zone.domain.to_string(),
            synced: zone.records.has_synced(),
            service: external_service(snapshot, &zone.domain, name),
        };
    }

    match (path, reverse::address_of_name(name.wire())) {
        (Some(path), _) => classify_cluster_name(snapshot, path),
        (None, Some(address)) => NameKind::Reverse { address },
        (None, None) => NameKind::External,
    }
}

/// The Service that a name in the zone of `--external-zone` denotes. `None` if the name denotes no
/// Service, or if `domain` is another zone.
fn external_service(snapshot: &Snapshot, domain: &Name, name: &Name) -> Option<ObjectKey> {
    if snapshot.external.as_ref() != Some(domain) {
        return None;
    }

    let mut labels = name.labels();
    labels.truncate(labels.len() - domain.label_count());
    match labels.as_slice() {
        [.., service, namespace] if namespace != "dns" => {
            Some(ObjectKey::new(namespace.as_str(), service.as_str()))
        }
        _ => None,
    }
}

fn classify_cluster_name(snapshot: &Snapshot, path: &[&str]) -> NameKind {
    // A name in a federation has as many labels as the name of one endpoint of a Service. The
    // federation takes precedence.
    if let Some(kind) = classify_federation_name(snapshot, path) {
        return kind;
    }

    match *path {
        [] => NameKind::Apex,
        ["svc"] => NameKind::Namespace { namespace: None },
        ["svc", namespace] => NameKind::Namespace {
            namespace: Some(namespace.to_owned()),
        },
        ["svc", namespace, name, ref labels @ ..] => {
            classify_service_name(ObjectKey::new(namespace, name), labels)
        }
        ["pod", namespace, label] => NameKind::Pod {
            namespace: namespace.to_owned(),
            address: address_of_pod_name(namespace, label),
        },
        ["dns-version"] | ["dns", "ns"] => NameKind::WellKnown,
        _ => NameKind::Formless,
    }
}

fn classify_federation_name(snapshot: &Snapshot, path: &[&str]) -> Option<NameKind> {
    let &["svc", federation, namespace, name] = path else {
        return None;
    };
    let domains = &snapshot.federation.as_ref()?.domains;

    Some(NameKind::Federation {
        federation: federation.to_owned(),
        domain: domains.get(federation)?.clone(),
        key: ObjectKey::new(namespace, name),
    })
}

/// The kind of a name that consists of `labels` below the Service `key`.
fn classify_service_name(key: ObjectKey, labels: &[&str]) -> NameKind {
    if let Some(name) = ZonalName::read(labels) {
        return NameKind::Zonal {
            key,
            zone: name.zone_text(),
            prefer: name.directive == ZoneDirective::Prefer,
        };
    }
    match *labels {
        [] => NameKind::Service(key),
        // `_tcp.web` has no records. The name of a port has one more label, as in `_http._tcp.web`.
        [protocol] if protocol.starts_with('_') => NameKind::Port {
            key,
            port: String::new(),
            protocol: without_underscore(protocol),
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
                port: without_underscore(port),
                protocol: without_underscore(protocol),
            }
        }
        _ => NameKind::Formless,
    }
}

fn without_underscore(label: &str) -> String {
    label.trim_start_matches('_').to_owned()
}

/// The address in the name of a pod, even if no pod has the address.
fn address_of_pod_name(namespace: &str, label: &str) -> Option<IpAddr> {
    parse_pod_address(label).filter(|_| is_single_label(namespace) && is_single_label(label))
}

fn is_single_label(label: &str) -> bool {
    label != ANY && !label.contains('.')
}

/// The route of queries for a name (in lower case).
pub(crate) fn select_route(zone: &Zone, name: &Name, kind: &NameKind) -> NameRoute {
    // The servers matter only for names that are forwarded.
    let (servers, stub_domain) = zone.servers_for(name.wire());
    let servers = servers.iter().map(ToString::to_string).collect();

    match (kind, stub_domain) {
        (NameKind::OwnName { .. }, _) => NameRoute::OwnName,
        (NameKind::Zone { domain, .. }, _) => NameRoute::Zone {
            domain: domain.clone(),
        },
        (NameKind::Reverse { address }, _) => NameRoute::Reverse {
            address: *address,
            servers,
        },
        (NameKind::External, Some(domain)) => NameRoute::StubDomain {
            domain: domain.to_string(),
            servers,
        },
        (NameKind::External, None) if zone.must_not_forward(name.wire()) => NameRoute::SingleLabel,
        (NameKind::External, None) => NameRoute::Upstreams { servers },
        _ => {
            let domain = zone.domain_of(name.wire()).unwrap_or(&zone.domain);
            NameRoute::ClusterDomain {
                domain: domain.to_string(),
            }
        }
    }
}

/// The Services that the records of a name come from, sorted.
pub(crate) fn source_services(
    snapshot: &Snapshot,
    kind: &NameKind,
    path: Option<&[&str]>,
) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    if let NameKind::Reverse { address } = kind {
        snapshot.reverse_record(*address, &mut |pointer| {
            keys.extend(service_of_base(&pointer.name, None));
        });
    } else if let Some(path) = path {
        snapshot.visit_entries(EntryVisit {
            path,
            exact: false,
            steps: &mut { usize::MAX },
            on_entry: &mut |entry| {
                keys.extend(service_of_base(entry.record.base, Some(entry.label)));
            },
        });
    }

    // A Service is found once for each of its records.
    keys.sort();
    keys.dedup();
    keys
}

/// The Service of a record. `base` is [`ServiceRecord::base`](skydns::ServiceRecord::base), or the
/// target of a PTR record without the cluster domain. The last three labels of `base` are the
/// Service, the namespace and `svc`. For an ExternalName Service, `base` has only the namespace and
/// `svc`, and the label of the entry is the name of the Service.
fn service_of_base(base: &[u8], label: Option<&str>) -> Option<ObjectKey> {
    let base = name::to_text(base);
    let labels: Vec<&str> = base.split_terminator('.').collect();

    match (labels.as_slice(), label) {
        ([namespace, "svc"], Some(name)) => Some(ObjectKey::new(*namespace, name)),
        ([.., name, namespace, "svc"], _) => Some(ObjectKey::new(*namespace, *name)),
        _ => None,
    }
}
