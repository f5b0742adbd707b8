//! From objects to records: pure functions, one Service at a time.
//!
//! The records follow kube-dns: a ClusterIP Service has an entry for each cluster IP and SRV entries for its named
//! ports; a headless one has an entry for each address of its endpoints, under the address's hostname or a hash; an
//! ExternalName Service is an entry of its namespace's node.

mod label;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use skydns::{Host, Name, Pointer, ServiceRecord, name};
use smol_str::SmolStr;
use treecache::Node;

use crate::few::Few;
use crate::objects::{
    Address, EndpointPort, EndpointSlice, Endpoints, ObjectKey, Protocol, Service, ServiceKind, Subset,
};

/// What stands under one label: several records differ in their ports.
pub type Records = Few<ServiceRecord>;

/// The records of one Service.
#[derive(Debug, Default)]
pub struct ServiceRecords {
    /// What stands at the Service's node; empty for none.
    pub node: Node<Records>,
    /// The entry in the namespace's node.
    pub entry: Option<Records>,
    /// The reverse records, sorted and each only once.
    pub pointers: Vec<(IpAddr, Pointer)>,
}

/// What is known of the endpoints of a Service, whichever objects it came from.
#[derive(Debug, Clone)]
pub enum Backing {
    /// Nothing.
    None,
    /// An Endpoints object.
    Endpoints(Endpoints),
    /// Slices.
    Slices(Vec<EndpointSlice>),
}

/// Addresses that share ports.
pub struct Group<'o> {
    /// The addresses.
    pub members: Vec<Member<'o>>,
    /// Their ports.
    pub ports: &'o [EndpointPort],
}

/// One address behind a Service. Ordered so that those that are ready come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member<'o> {
    /// Traffic is sent to it.
    pub ready: bool,
    /// The address.
    pub ip: IpAddr,
    /// The hostname, if it has one.
    pub hostname: Option<&'o SmolStr>,
}

impl Backing {
    /// True when there is an address that traffic is sent to.
    pub fn has_ready_addresses(&self) -> bool {
        self.groups(false).iter().any(|group| !group.members.is_empty())
    }

    /// The addresses that are ready, or all of them.
    pub fn groups(&self, not_ready_too: bool) -> Vec<Group<'_>> {
        match self {
            Self::None => Vec::new(),
            Self::Endpoints(endpoints) => {
                endpoints.subsets.iter().map(|subset| Group::of_subset(subset, not_ready_too)).collect()
            }
            Self::Slices(slices) => {
                slices.iter().map(|slice| Group::of_slice(slice, not_ready_too)).collect()
            }
        }
    }
}

impl<'o> Group<'o> {
    fn of_subset(subset: &'o Subset, not_ready_too: bool) -> Self {
        let not_ready: &[Address] = if not_ready_too { &subset.not_ready } else { &[] };
        let member = |ready: bool| {
            move |address: &'o Address| Member { ready, ip: address.ip, hostname: address.hostname.as_ref() }
        };
        let members = subset.ready.iter().map(member(true)).chain(not_ready.iter().map(member(false)));
        Group { members: members.collect(), ports: &subset.ports }
    }

    fn of_slice(slice: &'o EndpointSlice, not_ready_too: bool) -> Self {
        let members = slice.endpoints.iter().flat_map(|endpoint| {
            // An unknown readiness counts as ready (EndpointConditions in the Kubernetes API).
            let (ready, hostname) = (endpoint.ready != Some(false), endpoint.hostname.as_ref());
            endpoint.addresses.iter().map(move |ip| Member { ready, ip: *ip, hostname })
        });
        let published = members.filter(|member| member.ready || not_ready_too);
        Group { members: published.collect(), ports: &slice.ports }
    }
}

/// Builds the records of `service`, whose endpoints are `backing`.
pub fn build(service: &Service, backing: &Backing) -> ServiceRecords {
    let mut records = match &service.kind {
        ServiceKind::ClusterIp(addresses) => cluster_ip(service, addresses),
        // kube-dns treats a Service without an address yet like a headless one.
        ServiceKind::Headless | ServiceKind::WithoutIp => headless(service, backing),
        ServiceKind::ExternalName(target) => external_name(service, target),
    };
    sort(&mut records.pointers);
    records
}

/// The reverse records that [`build`] gives, without the others.
pub fn pointers(service: &Service, backing: &Backing) -> Vec<(IpAddr, Pointer)> {
    let Some(base) = base(&service.key) else { return Vec::new() };
    let mut pointers: Vec<_> = match &service.kind {
        ServiceKind::ClusterIp(addresses) => {
            addresses.iter().map(|ip| (*ip, own_pointer(service, &base))).collect()
        }
        ServiceKind::Headless | ServiceKind::WithoutIp => {
            let groups = backing.groups(service.publish_not_ready);
            let members = groups.iter().flat_map(|group| &group.members);
            members.filter_map(|member| Some((member.ip, member.labelled(service, &base)?.1))).collect()
        }
        ServiceKind::ExternalName(_) => Vec::new(),
    };
    sort(&mut pointers);
    pointers
}

fn sort(pointers: &mut Vec<(IpAddr, Pointer)>) {
    pointers.sort_unstable();
    pointers.dedup();
}

/// True when the records of `service` depend on its endpoints.
pub fn show_endpoints(service: &Service) -> bool {
    match service.kind {
        ServiceKind::Headless | ServiceKind::WithoutIp => true,
        ServiceKind::ClusterIp(_) | ServiceKind::ExternalName(_) => false,
    }
}

/// The path of a Service's node.
pub fn path(key: &ObjectKey) -> [&str; 3] {
    ["svc", &key.namespace, &key.name]
}

/// The name of a Service's node below the zone, in wire format.
fn base(key: &ObjectKey) -> Option<Arc<[u8]>> {
    name::relative(&format!("{}.{}.svc", key.name, key.namespace)).ok().map(Into::into)
}

/// The node's labels of a port: `_tcp`, `_http`. Ports without a name have no SRV records.
fn port_path(protocol: &Protocol, name: &SmolStr) -> Option<[SmolStr; 2]> {
    if name.is_empty() || protocol.as_str().is_empty() {
        return None;
    }
    let label = |text: &str| smol_str::format_smolstr!("_{}", text.to_ascii_lowercase());
    Some([label(protocol.as_str()), label(name)])
}

fn cluster_ip(service: &Service, addresses: &[IpAddr]) -> ServiceRecords {
    let mut records = ServiceRecords::default();
    let Some(base) = base(&service.key) else { return records };
    let mut entries: BTreeMap<SmolStr, Vec<IpAddr>> = BTreeMap::new();
    for ip in addresses {
        entries.entry(label::of_address(*ip)).or_default().push(*ip);
        records.pointers.push((*ip, own_pointer(service, &base)));
    }
    for (label, addresses) in entries {
        for port in service.ports.iter() {
            let Some([protocol, name]) = port_path(&port.protocol, &port.name) else { continue };
            let record = ServiceRecord::new(Host::Base, Arc::clone(&base)).with_port(port.port);
            let node = records.node.child_mut(&protocol).child_mut(&name);
            node.set_entry(label.clone(), Few::one(record));
        }
        let record = ServiceRecord::for_addresses(&addresses, Arc::clone(&base));
        records.node.set_entry(label, Few::one(record));
    }
    records
}

/// What the addresses of one label add up to.
#[derive(Default)]
struct Labelled {
    addresses: Vec<IpAddr>,
    ports: Vec<([SmolStr; 2], u16)>,
}

fn headless(service: &Service, backing: &Backing) -> ServiceRecords {
    let mut records = ServiceRecords::default();
    let Some(base) = base(&service.key) else { return records };
    let mut labels: BTreeMap<SmolStr, Labelled> = BTreeMap::new();
    for group in backing.groups(service.publish_not_ready) {
        let ports: Vec<_> = group
            .ports
            .iter()
            .filter_map(|port| Some((port_path(&port.protocol, &port.name)?, port.port)))
            .collect();
        for member in &group.members {
            let Some((label, pointer)) = member.labelled(service, &base) else { continue };
            records.pointers.push((member.ip, pointer));
            let labelled = labels.entry(label).or_default();
            labelled.addresses.push(member.ip);
            labelled.ports.extend(ports.iter().cloned());
        }
    }
    for (label, labelled) in labels {
        add_labelled(&mut records.node, &label, labelled, &base);
    }
    records
}

/// The reverse record of a cluster IP.
fn own_pointer(service: &Service, base: &Arc<[u8]>) -> Pointer {
    Pointer { created: service.created, name: Arc::clone(base), named: true }
}

impl Member<'_> {
    /// Its label and its reverse record; `None` when the label cannot stand in a name. A hostname is one label: one with
    /// dots in it, which the API server refuses, would be none, or too long for one.
    fn labelled(&self, service: &Service, base: &[u8]) -> Option<(SmolStr, Pointer)> {
        let label = self.hostname.cloned().unwrap_or_else(|| label::of_address(self.ip));
        let mut wire = name::relative(&label).ok().filter(|_| !label.contains('.'))?;
        wire.extend_from_slice(base);
        let named = self.hostname.is_some();
        Some((label, Pointer { created: service.created, name: wire.into(), named }))
    }
}

fn add_labelled(node: &mut Node<Records>, label: &SmolStr, labelled: Labelled, base: &Arc<[u8]>) {
    let Labelled { mut addresses, mut ports } = labelled;
    addresses.sort_unstable();
    addresses.dedup();
    node.set_entry(label.clone(), Few::one(ServiceRecord::for_addresses(&addresses, Arc::clone(base))));
    ports.sort_unstable();
    ports.dedup();
    for same_name in ports.chunk_by(|a, b| a.0 == b.0) {
        let Some(([protocol, name], _)) = same_name.first() else { continue };
        let record = |port: u16| ServiceRecord::new(Host::Member, Arc::clone(base)).with_port(port);
        let records = same_name.iter().map(|(_, port)| record(*port)).collect();
        node.child_mut(protocol).child_mut(name).set_entry(label.clone(), records);
    }
}

fn external_name(service: &Service, target: &str) -> ServiceRecords {
    let mut records = ServiceRecords::default();
    let Ok(base) = name::relative(&format!("{}.svc", service.key.namespace)) else { return records };
    // An address in the place of a name is answered as one.
    let host = match target.parse() {
        Ok(IpAddr::V4(ip)) => Host::V4(ip),
        Ok(IpAddr::V6(ip)) => Host::V6(ip),
        Err(_) => match Name::parse(target) {
            Ok(name) if name.label_count() > 0 => Host::Name(name),
            Ok(_) | Err(_) => {
                tracing::warn!(service = %service.key, externalName = target, "externalName is not a domain name");
                return records;
            }
        },
    };
    records.entry = Some(Few::one(ServiceRecord::new(host, base.into())));
    records
}
