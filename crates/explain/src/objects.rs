//! What only the index knows: the objects behind records. It is asked over a short queue and answers from what it has;
//! nothing is shared and nothing is changed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use smol_str::SmolStr;
use tokio::sync::{mpsc, oneshot};

use crate::candidate::MAX_OBJECTS;
use crate::document::{Address, Endpoints, Object, Port, Service, ServiceKind};
use crate::moment::Moment;
use cluster::index::{Index, Question};
use cluster::objects::{self, EndpointPort, EndpointsSource, ObjectKey, Protocol};
use cluster::records::Backing;

/// How many questions may wait for the index.
const QUEUE: usize = 4;
/// How long it may take to answer one.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many Services are looked at for names that are near.
const MAX_LOOKED_AT: usize = 50_000;
/// How many addresses, objects and ports are told of one Service.
const MAX_TOLD: usize = 8;

/// What is asked of the index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Services to be told of.
    pub(crate) objects: Vec<WantedObject>,
    /// Services of which those of the same name, and all of the same namespace, are to be named.
    pub(crate) near: Vec<ObjectKey>,
    /// Namespaces in which a Service is looked for.
    pub(crate) namespaces: Vec<String>,
    /// An address without a PTR record, behind which a Service is looked for.
    pub(crate) address: Option<IpAddr>,
}

/// A Service to be told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedObject {
    /// Namespace and name.
    pub(crate) key: ObjectKey,
    /// A hostname to look for among its addresses.
    pub(crate) hostname: Option<String>,
}

/// What the index answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Where endpoints come from.
    pub(crate) source: Option<EndpointsSource>,
    /// In the order they were asked for.
    pub(crate) objects: Vec<ToldObject>,
    /// Services near to what was asked for.
    pub(crate) near: Vec<ObjectKey>,
    /// Whether there is a Service in the namespaces that were asked for; those of which that is not known are absent.
    pub(crate) namespaces: BTreeMap<String, bool>,
    /// There are more Services than are looked at.
    pub(crate) cut: bool,
    /// Services that have the address among their endpoints, and whether it is ready there.
    pub(crate) behind: Vec<(ToldObject, bool)>,
}

/// A Service that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToldObject {
    /// Namespace and name.
    pub(crate) key: ObjectKey,
    /// What is known of it.
    pub(crate) object: Object,
    /// The address with the hostname that was looked for, and whether it is ready.
    pub(crate) member: Option<(IpAddr, bool)>,
    /// Hostnames of published addresses, if one was looked for; eight at most.
    pub(crate) hostnames: Vec<String>,
    /// How many more there are.
    pub(crate) more_hostnames: usize,
    /// When the Service was seen to be deleted, if it is gone and that was not long ago.
    pub(crate) deleted: Option<Moment>,
}

/// Asks the index.
#[derive(Clone)]
pub(crate) struct Asker(mpsc::Sender<Question>);

/// A way to ask, and where the questions arrive.
pub(crate) fn channel() -> (Asker, mpsc::Receiver<Question>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Asker(sender), receiver)
}

impl Asker {
    /// What the index knows; `None` when it is too busy or gone.
    pub(crate) async fn ask(&self, wanted: Wanted) -> Option<Told> {
        let (reply, told) = oneshot::channel();
        let question = move |index: &Index| {
            // Whoever asked may have given up.
            if !reply.is_closed() {
                let source = *index.source().borrow();
                let _ = reply.send(wanted.look_up(index, source));
            }
        };
        self.0.try_send(Box::new(question)).ok()?;
        tokio::time::timeout(PATIENCE, told).await.ok()?.ok()
    }
}

impl Wanted {
    /// What `index` knows of it.
    pub(crate) fn look_up(&self, index: &Index, source: Option<EndpointsSource>) -> Told {
        let objects = self.objects.iter().map(|wanted| wanted.look_up(index, source)).collect();
        let (near, cut) = self.near(index);
        let (namespaces, behind) = (self.namespaces(index), self.behind(index, source));
        Told { source, objects, near, namespaces, cut, behind }
    }

    fn namespaces(&self, index: &Index) -> BTreeMap<String, bool> {
        let mut open: Vec<&String> = self.namespaces.iter().collect();
        let mut found = BTreeMap::new();
        let mut services = index.store().services();
        for service in services.by_ref().take(MAX_LOOKED_AT) {
            if open.is_empty() {
                return found;
            }
            if let Some(at) = open.iter().position(|namespace| **namespace == *service.key.namespace) {
                found.insert(open.swap_remove(at).clone(), true);
            }
        }
        if services.next().is_none() {
            found.extend(open.into_iter().map(|namespace| (namespace.clone(), false)));
        }
        found
    }

    fn behind(&self, index: &Index, source: Option<EndpointsSource>) -> Vec<(ToldObject, bool)> {
        let Some(address) = self.address else { return Vec::new() };
        let ready = |key: &ObjectKey| {
            let mut of_service = members(index.store().backing(key, source));
            of_service.find(|member| member.ip == address).map(|member| member.ready)
        };
        let found = index.store().services().take(MAX_LOOKED_AT).filter_map(|service| {
            let wanted = WantedObject { key: service.key.clone(), hostname: None };
            ready(&service.key).map(|ready| (wanted.look_up(index, source), ready))
        });
        let mut behind: Vec<(ToldObject, bool)> = found.take(MAX_OBJECTS).collect();
        behind.sort_by(|(a, _), (b, _)| a.key.cmp(&b.key));
        behind
    }

    fn near(&self, index: &Index) -> (Vec<ObjectKey>, bool) {
        if self.near.is_empty() {
            return (Vec::new(), false);
        }
        let is_near = |key: &&ObjectKey| {
            self.near.iter().any(|wanted| wanted.namespace == key.namespace || wanted.name == key.name)
        };
        let mut services = index.store().services().map(|service| &service.key);
        let near = services.by_ref().take(MAX_LOOKED_AT).filter(is_near).cloned().collect();
        (near, services.next().is_some())
    }
}

impl WantedObject {
    fn look_up(&self, index: &Index, source: Option<EndpointsSource>) -> ToldObject {
        let Self { key, hostname } = self;
        let backing = index.store().backing(key, source);
        let has_hostname = |member: &Member<'_>| {
            hostname.as_deref().is_some_and(|wanted| member.hostname.is_some_and(|known| known == wanted))
        };
        let object = Object {
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            service: index.store().service(key).map(service),
            endpoints: endpoints(backing),
        };
        let member = members(backing).filter(has_hostname).map(|member| (member.ip, member.ready));
        let deleted = index.store().deleted(key).filter(|_| object.service.is_none()).map(Moment::from);
        let hostnames = if hostname.is_some() { hostnames(backing, &object) } else { Vec::new() };
        ToldObject {
            key: key.clone(),
            object,
            // Where several have it, one that is ready decides.
            member: member.max_by_key(|(_, ready)| *ready),
            more_hostnames: hostnames.len().saturating_sub(MAX_TOLD),
            hostnames: hostnames.into_iter().take(MAX_TOLD).map(ToString::to_string).collect(),
            deleted,
        }
    }
}

/// The hostnames of addresses that are published, sorted.
fn hostnames<'o>(backing: Backing<'o>, object: &Object) -> Vec<&'o SmolStr> {
    let all = object.service.as_ref().is_some_and(|service| service.publish_not_ready_addresses);
    let published = members(backing).filter(|member| member.ready || all);
    let mut hostnames: Vec<&SmolStr> = published.filter_map(|member| member.hostname).collect();
    hostnames.sort_unstable();
    hostnames.dedup();
    hostnames
}

fn service(service: &objects::Service) -> Service {
    let (kind, cluster_ips, external_name) = match &service.kind {
        objects::ServiceKind::ClusterIp(ips) => (ServiceKind::ClusterIp, ips.to_vec(), None),
        objects::ServiceKind::Headless => (ServiceKind::Headless, Vec::new(), None),
        objects::ServiceKind::ExternalName(target) => {
            (ServiceKind::ExternalName, Vec::new(), Some(target.to_string()))
        }
        objects::ServiceKind::WithoutIp => (ServiceKind::WithoutIp, Vec::new(), None),
    };
    Service {
        kind,
        cluster_ips,
        external_name,
        ports: service.ports.iter().map(|p| port(&p.name, &p.protocol, p.port)).collect(),
        publish_not_ready_addresses: service.publish_not_ready,
        created: Moment::of_creation(service.created),
    }
}

fn port(name: &SmolStr, protocol: &Protocol, port: u16) -> Port {
    Port { name: name.to_string(), protocol: protocol.as_str().to_owned(), port }
}

/// One address behind a Service. Ordered so that those that are ready come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Member<'o> {
    ready: bool,
    ip: IpAddr,
    hostname: Option<&'o SmolStr>,
}

fn members(backing: Backing<'_>) -> impl Iterator<Item = Member<'_>> {
    let (endpoints, slices): (_, &[objects::EndpointSlice]) = match backing {
        Backing::None => (None, &[]),
        Backing::Endpoints(endpoints) => (Some(endpoints), &[]),
        Backing::Slices(slices) => (None, slices),
    };
    let in_subsets = endpoints.into_iter().flat_map(|endpoints| &endpoints.subsets).flat_map(|subset| {
        let ready = subset.ready.iter().map(|address| (address, true));
        let not_ready = subset.not_ready.iter().map(|address| (address, false));
        ready.chain(not_ready).map(|(address, ready)| Member {
            ready,
            ip: address.ip,
            hostname: address.hostname.as_ref(),
        })
    });
    let in_slices = slices.iter().flat_map(|slice| &slice.endpoints).flat_map(|endpoint| {
        // An unknown readiness counts as ready (EndpointConditions in the Kubernetes API).
        let (hostname, ready) = (endpoint.hostname.as_ref(), endpoint.ready != Some(false));
        endpoint.addresses.iter().map(move |ip| Member { ready, ip: *ip, hostname })
    });
    in_subsets.chain(in_slices)
}

fn endpoints(backing: Backing<'_>) -> Option<Endpoints> {
    let (kind, names, over_capacity, changed): (_, Vec<&SmolStr>, _, _) = match backing {
        Backing::None | Backing::Slices([]) => return None,
        Backing::Endpoints(one) => ("Endpoints", vec![&one.key.name], one.over_capacity, one.last_change),
        Backing::Slices(slices) => (
            "EndpointSlice",
            slices.iter().map(|slice| &slice.key.name).collect(),
            false,
            slices.iter().filter_map(|slice| slice.last_change).max(),
        ),
    };
    // An address can stand in several subsets or slices, with different ports.
    let mut all: Vec<Member<'_>> = members(backing).collect();
    all.sort_unstable();
    all.dedup();
    let (not_ready, ready) = all.split_at(all.partition_point(|member| !member.ready));
    Some(Endpoints {
        kind: kind.to_owned(),
        objects: first_of(names.iter().map(ToString::to_string).collect()),
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
    let address =
        |member: &Member<'_>| Address { ip: member.ip, hostname: member.hostname.map(ToString::to_string) };
    members.iter().take(MAX_TOLD).map(address).collect()
}

fn ports(backing: Backing<'_>) -> Vec<Port> {
    let all: Vec<&EndpointPort> = match backing {
        Backing::None => Vec::new(),
        Backing::Endpoints(endpoints) => {
            endpoints.subsets.iter().flat_map(|subset| subset.ports.iter()).collect()
        }
        Backing::Slices(slices) => slices.iter().flat_map(|slice| slice.ports.iter()).collect(),
    };
    let mut ports: Vec<Port> = Vec::new();
    for endpoint_port in all {
        let told = port(&endpoint_port.name, &endpoint_port.protocol, endpoint_port.port);
        if ports.len() < MAX_TOLD && !ports.contains(&told) {
            ports.push(told);
        }
    }
    ports
}

fn first_of(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.truncate(MAX_TOLD);
    names
}
