//! Looks up Services and endpoints in the published objects, on the thread that explains a name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cluster::index::ObjectsView;
use cluster::objects::{self, EndpointsSource, ObjectKey, Protocol};
use cluster::records::{EndpointMember, ServiceEndpoints};
use smol_str::SmolStr;

use crate::document::{
    ServiceObjects, ShownAddress, ShownEndpoints, ShownPort, ShownService, ShownServiceKind,
};
use crate::moment::Moment;

/// Maximum number of Services that each search of a look-up visits.
const MAX_LOOKED_AT: usize = 50_000;
/// Maximum number of Services that are described for one name.
pub(crate) const MAX_OBJECTS: usize = 4;
/// Maximum length of each list of objects, addresses, hostnames or ports of a Service's endpoints.
const MAX_SHOWN: usize = 8;

/// A look-up in the published objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectLookup {
    pub(crate) services: Vec<WantedService>,
    /// Services whose names may be misspelled. The result lists Services that share the name or the
    /// namespace of one of them.
    pub(crate) misspelled: Vec<ObjectKey>,
    /// An address without a PTR record. The result lists the Services that have the address among
    /// their endpoints.
    pub(crate) address: Option<IpAddr>,
}

/// A Service to describe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedService {
    pub(crate) key: ObjectKey,
    /// A hostname to find among the addresses of the Service.
    pub(crate) hostname: Option<String>,
}

/// The result of a look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundObjects {
    /// The kind of objects that endpoints are taken from.
    pub(crate) source: EndpointsSource,
    /// The wanted Services, in the order of the request.
    pub(crate) services: Vec<FoundService>,
    /// The Services that share the name or the namespace of a misspelled one.
    pub(crate) neighbours: Vec<ObjectKey>,
    /// For each namespace of `services`, whether the namespace has a Service. The map has no entry
    /// for a namespace if this is unknown, because only the first [`MAX_LOOKED_AT`] Services are
    /// visited.
    pub(crate) namespaces: BTreeMap<SmolStr, bool>,
    /// Whether `neighbours` may be incomplete, because there are more than [`MAX_LOOKED_AT`]
    /// Services.
    pub(crate) cut: bool,
    /// Services that have the requested address among their endpoints; at most [`MAX_OBJECTS`].
    pub(crate) backed_by_address: Vec<BackedService>,
}

/// The result for a Service. If kubedns does not know the Service, `object.service` is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundService {
    pub(crate) object: ServiceObjects,
    /// The address that has the requested hostname.
    pub(crate) member: Option<FoundMember>,
    /// Hostnames of addresses that have DNS records, if a hostname was requested; eight at most.
    pub(crate) hostnames: Vec<String>,
    /// The number of hostnames left out.
    pub(crate) more_hostnames: usize,
    /// Time at which kubedns saw the deletion of the Service. `None` if the Service exists, or if
    /// it is not among the recently deleted Services.
    pub(crate) deleted: Option<Moment>,
}

/// An address of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundMember {
    pub(crate) ip: IpAddr,
    pub(crate) ready: bool,
}

/// A Service with the requested address among its endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BackedService {
    pub(crate) service: FoundService,
    /// Whether the address is ready in this Service.
    pub(crate) ready: bool,
}

/// The Services that share a name or a namespace with the misspelled ones.
struct Neighbours {
    keys: Vec<ObjectKey>,
    /// See [`FoundObjects::cut`].
    cut: bool,
}

impl ObjectLookup {
    pub(crate) fn look_up(&self, view: &ObjectsView) -> FoundObjects {
        let mut services = Vec::with_capacity(self.services.len());
        for wanted in &self.services {
            let hostname = wanted.hostname.as_deref();
            services.push(FoundService::find(view, &wanted.key, hostname));
        }
        let neighbours = self.find_neighbours(view);

        FoundObjects {
            source: view.source(),
            services,
            neighbours: neighbours.keys,
            namespaces: self.find_namespaces(view),
            cut: neighbours.cut,
            backed_by_address: self.find_backed_services(view),
        }
    }

    fn find_namespaces(&self, view: &ObjectsView) -> BTreeMap<SmolStr, bool> {
        let mut open: BTreeSet<SmolStr> = self
            .services
            .iter()
            .map(|wanted| wanted.key.namespace.clone())
            .collect();

        let mut found = BTreeMap::new();
        let mut keys = view.objects().service_keys();
        for key in keys.by_ref().take(MAX_LOOKED_AT) {
            found.extend(open.take(&key.namespace).map(|namespace| (namespace, true)));
            if open.is_empty() {
                return found;
            }
        }

        if keys.next().is_none() {
            // All Services have been visited, so the namespaces in `open` have none.
            found.extend(open.into_iter().map(|namespace| (namespace, false)));
        }
        found
    }

    fn find_backed_services(&self, view: &ObjectsView) -> Vec<BackedService> {
        let Some(address) = self.address else {
            return Vec::new();
        };

        // The objects have no index by address: Services are visited one by one, up to a bound.
        let mut found = Vec::new();
        for service in view.objects().services().take(MAX_LOOKED_AT) {
            if found.len() == MAX_OBJECTS {
                break;
            }
            // The user asks about an address without a PTR record. Such an address is often not
            // ready, so addresses that are not ready are included.
            let endpoints = view.service_endpoints(&service.key);
            let members = all_members(&endpoints);
            // An address may be in several subsets or slices. It counts as ready if it is ready in
            // one of them.
            let of_address = members.iter().filter(|member| member.ip == address);
            let Some(ready) = of_address.map(|member| member.ready).max() else {
                continue;
            };
            found.push(BackedService {
                service: FoundService::find(view, &service.key, None),
                ready,
            });
        }
        found.sort_by(|a, b| a.service.object.key.cmp(&b.service.object.key));
        found
    }

    fn find_neighbours(&self, view: &ObjectsView) -> Neighbours {
        // Without misspelled Services, there are no neighbours to find, so the Services are not
        // visited.
        if self.misspelled.is_empty() {
            return Neighbours {
                keys: Vec::new(),
                cut: false,
            };
        }

        let mut all = view.objects().service_keys();
        let keys = all
            .by_ref()
            .take(MAX_LOOKED_AT)
            .filter(|key| self.is_neighbour(key))
            .collect();
        Neighbours {
            keys,
            cut: all.next().is_some(),
        }
    }

    fn is_neighbour(&self, key: &ObjectKey) -> bool {
        self.misspelled
            .iter()
            .any(|wanted| wanted.namespace == key.namespace || wanted.name == key.name)
    }
}

impl FoundService {
    fn find(view: &ObjectsView, key: &ObjectKey, hostname: Option<&str>) -> Self {
        let endpoints = view.service_endpoints(key);
        let service = view.service(key);
        // A Service that was created again does not count as deleted.
        let deleted = view.deleted(key).filter(|_| service.is_none());
        let members = all_members(&endpoints);

        let mut member = None;
        let mut hostnames = Vec::new();
        if let Some(hostname) = hostname {
            member = member_with_hostname(&members, hostname);
            hostnames = hostnames_with_records(&members, service.as_ref());
        }

        Self {
            object: ServiceObjects {
                key: key.clone(),
                service: service.as_ref().map(show_service),
                endpoints: show_endpoints(&endpoints),
            },
            member,
            more_hostnames: hostnames.len().saturating_sub(MAX_SHOWN),
            hostnames: hostnames
                .into_iter()
                .take(MAX_SHOWN)
                .map(ToString::to_string)
                .collect(),
            deleted: deleted.map(Moment::from),
        }
    }
}

/// The address with this hostname. Several addresses can have the same hostname; a ready one is
/// preferred.
fn member_with_hostname(members: &[EndpointMember<'_>], hostname: &str) -> Option<FoundMember> {
    members
        .iter()
        .filter(|member| member.hostname.is_some_and(|known| known == hostname))
        .map(|member| FoundMember {
            ip: member.ip,
            ready: member.ready,
        })
        .max_by_key(|member| member.ready)
}

/// The hostnames of addresses that have DNS records, sorted.
fn hostnames_with_records<'o>(
    members: &[EndpointMember<'o>],
    service: Option<&objects::Service>,
) -> Vec<&'o SmolStr> {
    // The hostnames are suggestions, so each of them must have records.
    let publishes_all = service.is_some_and(|service| service.publish_not_ready);
    let hostnames: BTreeSet<&SmolStr> = members
        .iter()
        .filter(|member| member.ready || publishes_all)
        .filter_map(|member| member.hostname)
        .collect();
    hostnames.into_iter().collect()
}

fn show_service(service: &objects::Service) -> ShownService {
    let mut cluster_ips = Vec::new();
    let mut external_name = None;
    let kind = match &service.kind {
        objects::ServiceKind::ClusterIp(ips) => {
            cluster_ips = ips.to_vec();
            ShownServiceKind::ClusterIp
        }
        objects::ServiceKind::Headless => ShownServiceKind::Headless,
        objects::ServiceKind::ExternalName(target) => {
            external_name = Some(target.to_string());
            ShownServiceKind::ExternalName
        }
        objects::ServiceKind::WithoutIp => ShownServiceKind::WithoutIp,
    };

    ShownService {
        kind,
        cluster_ips,
        external_name,
        ports: service
            .ports
            .iter()
            .map(|port| show_port(&port.name, &port.protocol, port.port))
            .collect(),
        publish_not_ready_addresses: service.publish_not_ready,
        created: Moment::of_creation(service.created),
    }
}

fn show_port(name: &SmolStr, protocol: &Protocol, number: u16) -> ShownPort {
    ShownPort {
        name: name.to_string(),
        protocol: protocol.as_str().to_owned(),
        number,
    }
}

/// All addresses, ready and not ready.
fn all_members(endpoints: &ServiceEndpoints) -> Vec<EndpointMember<'_>> {
    endpoints
        .groups(true)
        .into_iter()
        .flat_map(|group| group.members)
        .collect()
}

fn show_endpoints(endpoints: &ServiceEndpoints) -> Option<ShownEndpoints> {
    let kind;
    let mut names: Vec<&SmolStr>;
    let mut over_capacity = false;
    let changed;
    match endpoints {
        ServiceEndpoints::None => return None,
        ServiceEndpoints::Slices(slices) if slices.is_empty() => return None,
        ServiceEndpoints::Endpoints(one) => {
            kind = "Endpoints";
            names = vec![&one.key.name];
            over_capacity = one.over_capacity;
            changed = one.last_change;
        }
        ServiceEndpoints::Slices(slices) => {
            kind = "EndpointSlice";
            names = slices.iter().map(|slice| &slice.key.name).collect();
            changed = slices.iter().filter_map(|slice| slice.last_change).max();
        }
    }
    names.sort_unstable();

    // An address can be in several subsets or slices, with different ports.
    let mut members = all_members(endpoints);
    members.sort_unstable_by_key(|member| (member.ready, member.ip, member.hostname));
    members.dedup();
    // Members that are not ready come first in this order.
    let (not_ready, ready) = members.split_at(members.partition_point(|member| !member.ready));

    Some(ShownEndpoints {
        kind: kind.to_owned(),
        objects: names
            .iter()
            .take(MAX_SHOWN)
            .map(ToString::to_string)
            .collect(),
        object_count: names.len(),
        ready: ready.len(),
        not_ready: not_ready.len(),
        ready_addresses: show_addresses(ready),
        not_ready_addresses: show_addresses(not_ready),
        ports: show_endpoint_ports(endpoints),
        over_capacity,
        changed: changed.map(Moment::from),
    })
}

fn show_addresses(members: &[EndpointMember<'_>]) -> Vec<ShownAddress> {
    let mut addresses = Vec::new();
    for member in members.iter().take(MAX_SHOWN) {
        addresses.push(ShownAddress {
            ip: member.ip,
            hostname: member.hostname.map(ToString::to_string),
        });
    }
    addresses
}

fn show_endpoint_ports(endpoints: &ServiceEndpoints) -> Vec<ShownPort> {
    let mut ports = Vec::new();
    for port in endpoints.groups(true).iter().flat_map(|group| group.ports) {
        let port = show_port(&port.name, &port.protocol, port.port);
        if ports.len() < MAX_SHOWN && !ports.contains(&port) {
            ports.push(port);
        }
    }
    ports
}
