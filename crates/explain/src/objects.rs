//! Looks up Services and endpoints in the published objects, on the thread of the reader.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cluster::index::ObjectsView;
use cluster::objects::{self, EndpointsSource, ObjectKey, Protocol};
use cluster::records::{Member, ServiceEndpoints};
use smol_str::SmolStr;

use crate::document::{Address, Endpoints, Object, Port, Service, ServiceKind};
use crate::moment::Moment;

/// Bound of the Services that one look-up visits.
const MAX_LOOKED_AT: usize = 50_000;
/// Bound of the Services in the detail of one name.
pub(crate) const MAX_OBJECTS: usize = 4;
/// Bound of each list of addresses, objects, ports or hostnames of one Service.
const MAX_SHOWN: usize = 8;

/// A look-up in the published objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectLookup {
    /// The Services to describe, each with a hostname to find among its addresses.
    pub(crate) objects: Vec<(ObjectKey, Option<String>)>,
    /// Services whose names may be misspelled. The reply lists all Services that share the name or
    /// the namespace of one of them.
    pub(crate) near: Vec<ObjectKey>,
    /// An address without a PTR record. The reply lists the Services that have the address among
    /// their endpoints.
    pub(crate) address: Option<IpAddr>,
}

/// The result of a look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundObjects {
    /// The kind of objects that endpoints are taken from.
    pub(crate) source: EndpointsSource,
    /// The objects, in the order of the request.
    pub(crate) objects: Vec<FoundObject>,
    pub(crate) near: Vec<ObjectKey>,
    /// Whether each namespace of `objects` has a Service. A namespace is absent if the bound of
    /// visited Services was reached first.
    pub(crate) namespaces: BTreeMap<SmolStr, bool>,
    /// Whether the bound of visited Services was reached, so `near` may be incomplete.
    pub(crate) cut: bool,
    /// Services that have the requested address among their endpoints, and whether the address is
    /// ready there.
    pub(crate) behind: Vec<(FoundObject, bool)>,
}

/// A requested Service; it may not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundObject {
    pub(crate) object: Object,
    /// The address that has the requested hostname, and whether the address is ready.
    pub(crate) member: Option<(IpAddr, bool)>,
    /// Hostnames of published addresses, if a hostname was requested; eight at most.
    pub(crate) hostnames: Vec<String>,
    /// The number of hostnames left out.
    pub(crate) more_hostnames: usize,
    /// Time at which kubedns saw the deletion of the Service, if recent.
    pub(crate) deleted: Option<Moment>,
}

impl ObjectLookup {
    pub(crate) fn look_up(&self, view: &ObjectsView) -> FoundObjects {
        let objects = self
            .objects
            .iter()
            .map(|(key, hostname)| FoundObject::new(view, key, hostname.as_deref()));
        let (near, cut) = self.near(view);

        FoundObjects {
            source: view.source(),
            objects: objects.collect(),
            near,
            namespaces: self.namespaces(view),
            cut,
            behind: self.behind(view),
        }
    }

    fn namespaces(&self, view: &ObjectsView) -> BTreeMap<SmolStr, bool> {
        let mut open: BTreeSet<SmolStr> = self
            .objects
            .iter()
            .map(|(key, _)| key.namespace.clone())
            .collect();
        let mut found = BTreeMap::new();
        let mut services = view.objects().service_keys();
        for key in services.by_ref().take(MAX_LOOKED_AT) {
            found.extend(open.take(&key.namespace).map(|namespace| (namespace, true)));
            if open.is_empty() {
                return found;
            }
        }
        if services.next().is_none() {
            found.extend(open.into_iter().map(|namespace| (namespace, false)));
        }
        found
    }

    fn behind(&self, view: &ObjectsView) -> Vec<(FoundObject, bool)> {
        let Some(address) = self.address else {
            return Vec::new();
        };
        let found = view
            .objects()
            .services()
            .take(MAX_LOOKED_AT)
            .filter_map(|service| {
                let backing = view.service_endpoints(&service.key);
                let ready = members(&backing)
                    .iter()
                    .find(|member| member.ip == address)?
                    .ready;
                Some((FoundObject::new(view, &service.key, None), ready))
            });
        let mut behind: Vec<_> = found.take(MAX_OBJECTS).collect();
        behind.sort_by(|(a, _), (b, _)| a.object.key.cmp(&b.object.key));
        behind
    }

    fn near(&self, view: &ObjectsView) -> (Vec<ObjectKey>, bool) {
        if self.near.is_empty() {
            return (Vec::new(), false);
        }
        let is_near = |key: &ObjectKey| {
            self.near
                .iter()
                .any(|wanted| wanted.namespace == key.namespace || wanted.name == key.name)
        };
        let mut services = view.objects().service_keys();
        let near = services
            .by_ref()
            .take(MAX_LOOKED_AT)
            .filter(is_near)
            .collect();
        (near, services.next().is_some())
    }
}

impl FoundObject {
    fn new(view: &ObjectsView, key: &ObjectKey, hostname: Option<&str>) -> Self {
        let backing = view.service_endpoints(key);
        let service = view.service(key);
        let deleted = view.deleted(key).filter(|_| service.is_none());
        let members = members(&backing);
        let of_hostname = members.iter().filter(|member| {
            hostname.is_some_and(|wanted| member.hostname.is_some_and(|known| known == wanted))
        });
        // Several addresses can have the same hostname; prefer a ready one.
        let member = of_hostname
            .map(|member| (member.ip, member.ready))
            .max_by_key(|(_, ready)| *ready);
        let hostnames = hostname
            .map(|_| hostnames(&members, service.as_ref()))
            .unwrap_or_default();
        Self {
            object: Object {
                key: key.clone(),
                service: service.as_ref().map(describe),
                endpoints: endpoints(&backing),
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

/// The hostnames of published addresses, sorted.
fn hostnames<'o>(members: &[Member<'o>], service: Option<&objects::Service>) -> Vec<&'o SmolStr> {
    let all = service.is_some_and(|service| service.publish_not_ready);
    let published = members.iter().filter(|member| member.ready || all);
    let hostnames: BTreeSet<&SmolStr> = published.filter_map(|member| member.hostname).collect();
    hostnames.into_iter().collect()
}

fn describe(service: &objects::Service) -> Service {
    let (kind, cluster_ips, external_name) = match &service.kind {
        objects::ServiceKind::ClusterIp(ips) => (ServiceKind::ClusterIp, ips.to_vec(), None),
        objects::ServiceKind::Headless => (ServiceKind::Headless, Vec::new(), None),
        objects::ServiceKind::ExternalName(target) => (
            ServiceKind::ExternalName,
            Vec::new(),
            Some(target.to_string()),
        ),
        objects::ServiceKind::WithoutIp => (ServiceKind::WithoutIp, Vec::new(), None),
    };
    Service {
        kind,
        cluster_ips,
        external_name,
        ports: service
            .ports
            .iter()
            .map(|p| port(&p.name, &p.protocol, p.port))
            .collect(),
        publish_not_ready_addresses: service.publish_not_ready,
        created: Moment::of_creation(service.created),
    }
}

fn port(name: &SmolStr, protocol: &Protocol, number: u16) -> Port {
    Port {
        name: name.to_string(),
        protocol: protocol.as_str().to_owned(),
        number,
    }
}

/// All addresses, ready and not ready.
fn members(backing: &ServiceEndpoints) -> Vec<Member<'_>> {
    backing
        .groups(true)
        .into_iter()
        .flat_map(|group| group.members)
        .collect()
}

fn endpoints(backing: &ServiceEndpoints) -> Option<Endpoints> {
    let (kind, mut names, over_capacity, changed): (_, Vec<&SmolStr>, _, _) = match backing {
        ServiceEndpoints::None => return None,
        ServiceEndpoints::Slices(slices) if slices.is_empty() => return None,
        ServiceEndpoints::Endpoints(one) => (
            "Endpoints",
            vec![&one.key.name],
            one.over_capacity,
            one.last_change,
        ),
        ServiceEndpoints::Slices(slices) => (
            "EndpointSlice",
            slices.iter().map(|slice| &slice.key.name).collect(),
            false,
            slices.iter().filter_map(|slice| slice.last_change).max(),
        ),
    };
    names.sort_unstable();
    // An address can be in several subsets or slices, with different ports.
    let mut all = members(backing);
    all.sort_unstable();
    all.dedup();
    let (not_ready, ready) = all.split_at(all.partition_point(|member| !member.ready));
    Some(Endpoints {
        kind: kind.to_owned(),
        objects: names
            .iter()
            .take(MAX_SHOWN)
            .map(ToString::to_string)
            .collect(),
        object_count: names.len(),
        ready: ready.len(),
        not_ready: not_ready.len(),
        ready_addresses: addresses(ready),
        not_ready_addresses: addresses(not_ready),
        ports: ports(backing),
        over_capacity,
        changed: changed.map(Moment::from),
    })
}

fn addresses(members: &[Member<'_>]) -> Vec<Address> {
    let address = |member: &Member<'_>| Address {
        ip: member.ip,
        hostname: member.hostname.map(ToString::to_string),
    };
    members.iter().take(MAX_SHOWN).map(address).collect()
}

fn ports(backing: &ServiceEndpoints) -> Vec<Port> {
    let mut ports = Vec::new();
    for p in backing.groups(true).iter().flat_map(|group| group.ports) {
        let port = port(&p.name, &p.protocol, p.port);
        if ports.len() < MAX_SHOWN && !ports.contains(&port) {
            ports.push(port);
        }
    }
    ports
}
