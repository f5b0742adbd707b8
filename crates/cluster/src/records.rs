//! Records of a Service, built from its objects by pure functions.
//!
//! The records follow kube-dns:
//! - A ClusterIP Service has an entry for each cluster IP, and SRV entries for its named ports.
//! - A headless Service has an entry for each address of its endpoints. The label is the hostname
//!   or a hash of the address.
//! - An ExternalName Service has no tree node of its own. It is an entry of the node of its
//!   namespace.

mod external;
mod label;
mod node;
mod zone;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use skydns::{Host, Pointer};
use smol_str::SmolStr;
use wire::{Name, name};

use crate::objects::{
    Address, EndpointPort, EndpointSlice, Endpoints, ObjectKey, Protocol, Service, ServiceKind,
    Subset,
};
use crate::one_or_many::OneOrMany;

pub use external::ExternalNode;
pub(crate) use label::dashed;
pub use node::{Labelled, PortRecords, ServiceNode};

/// The records of one Service.
#[derive(Debug, Default)]
pub struct ServiceRecords {
    /// Records at the Service's name and at the names below.
    pub node: Option<ServiceNode>,
    /// Target of an ExternalName Service.
    pub alias: Option<ExternalName>,
    /// Records in the external zone, at the Service's name and at the names below.
    pub external: Option<ExternalNode>,
    /// The reverse records, sorted and unique.
    pub pointers: Vec<(IpAddr, Pointer)>,
}

/// The entry of an ExternalName Service at the node of its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalName {
    /// The target name, or the address if `spec.externalName` is one.
    pub host: Host<'static>,
    /// See [`skydns::ServiceRecord::base`].
    pub base: Box<[u8]>,
}

/// The endpoints of a Service, from either source.
#[derive(Debug, Clone)]
pub enum ServiceEndpoints {
    /// No endpoints are known.
    None,
    /// An Endpoints object.
    Endpoints(Endpoints),
    /// All slices of the Service.
    Slices(Vec<EndpointSlice>),
}

/// Addresses that share ports.
pub struct Group<'o> {
    /// The addresses.
    pub members: Vec<Member<'o>>,
    /// The ports of all these addresses.
    pub ports: &'o [EndpointPort],
}

/// An endpoint address of a Service. Ready addresses are sorted last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member<'o> {
    /// Whether the address is ready.
    pub ready: bool,
    /// The address.
    pub ip: IpAddr,
    /// The hostname, if it has one.
    pub hostname: Option<&'o SmolStr>,
    /// The zones whose clients the endpoint serves. Empty if zones are not read (`--prefer-zone`).
    pub zones: &'o [SmolStr],
}

impl ServiceEndpoints {
    /// Whether there is a ready address.
    pub fn has_ready_addresses(&self) -> bool {
        self.groups(false)
            .iter()
            .any(|group| !group.members.is_empty())
    }

    /// The ready addresses, or all addresses with `not_ready_too`.
    pub fn groups(&self, not_ready_too: bool) -> Vec<Group<'_>> {
        match self {
            Self::None => Vec::new(),
            Self::Endpoints(endpoints) => endpoints
                .subsets
                .iter()
                .map(|subset| Group::of_subset(subset, not_ready_too))
                .collect(),
            Self::Slices(slices) => slices
                .iter()
                .map(|slice| Group::of_slice(slice, not_ready_too))
                .collect(),
        }
    }
}

impl<'o> Group<'o> {
    fn of_subset(subset: &'o Subset, not_ready_too: bool) -> Self {
        let not_ready: &[Address] = if not_ready_too {
            &subset.not_ready
        } else {
            &[]
        };
        let member = |ready: bool| {
            move |address: &'o Address| Member {
                ready,
                ip: address.ip,
                hostname: address.hostname.as_ref(),
                zones: &[],
            }
        };
        let members = subset
            .ready
            .iter()
            .map(member(true))
            .chain(not_ready.iter().map(member(false)));
        Group {
            members: members.collect(),
            ports: &subset.ports,
        }
    }

    pub(crate) fn of_slice(slice: &'o EndpointSlice, not_ready_too: bool) -> Self {
        let members = slice.endpoints.iter().flat_map(|endpoint| {
            // Unknown readiness counts as ready (EndpointConditions in the Kubernetes API).
            let (ready, hostname) = (endpoint.ready != Some(false), endpoint.hostname.as_ref());
            endpoint.addresses.iter().map(move |ip| Member {
                ready,
                ip: *ip,
                hostname,
                zones: &endpoint.zones,
            })
        });
        let published = members.filter(|member| member.ready || not_ready_too);
        Group {
            members: published.collect(),
            ports: &slice.ports,
        }
    }
}

/// The names of endpoints without a hostname (`--endpoint-names`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum EndpointNames {
    /// A hash of the address, as in kube-dns.
    #[default]
    Hash,
    /// The address with dashes, as in CoreDNS.
    Address,
    /// The name of the pod, as with `endpoint_pod_names` of CoreDNS, or the address if that name is
    /// not a label. The watch stores the pod's name as the hostname.
    Pod,
}

/// Options of the records. The default is the behaviour of kube-dns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordOptions {
    /// The names of endpoints without a hostname.
    pub endpoint_names: EndpointNames,
    /// Whether a ClusterIP Service without ready endpoints has no records at its name.
    pub ignore_empty_services: bool,
    /// The preferred zone (`--prefer-zone`). A headless Service answers only with the addresses of
    /// this zone, if there are enough.
    pub preferred_zone: Option<SmolStr>,
    /// The content of the external zone.
    pub external: ExternalRecords,
}

/// The content of the external zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExternalRecords {
    /// There is no external zone.
    #[default]
    Off,
    /// Services with external addresses (`--external-zone`).
    Exposed,
    /// Services with external addresses, and headless Services with the addresses of their
    /// endpoints (`--external-headless`).
    AndHeadless,
}

impl RecordOptions {
    /// Builds the records of `service` with its `endpoints`.
    pub fn build(&self, service: &Service, endpoints: &ServiceEndpoints) -> ServiceRecords {
        let mut records = match &service.kind {
            ServiceKind::ClusterIp(addresses) => cluster_ip(service, addresses),
            // kube-dns treats a Service that has no address yet as headless.
            ServiceKind::Headless | ServiceKind::WithoutIp => headless(service, endpoints, self),
            ServiceKind::ExternalName(target) => external_name(service, target),
        };
        if self.is_empty(service, endpoints) {
            records.node = None;
        }
        records.external = self.external.node(service, records.node.as_ref());
        sort(&mut records.pointers);
        records
    }

    /// Whether the records at the name of `service` are left out because no endpoint is ready. The
    /// reverse records stay, as in CoreDNS.
    fn is_empty(&self, service: &Service, endpoints: &ServiceEndpoints) -> bool {
        let by_ip = matches!(service.kind, ServiceKind::ClusterIp(_));
        self.ignore_empty_services && by_ip && !endpoints.has_ready_addresses()
    }

    /// Whether the records of `service` depend on its endpoints.
    pub fn depend_on_endpoints(&self, service: &Service) -> bool {
        match service.kind {
            ServiceKind::ClusterIp(_) => self.ignore_empty_services,
            ServiceKind::Headless | ServiceKind::WithoutIp => true,
            ServiceKind::ExternalName(_) => false,
        }
    }

    /// Builds only the reverse records of [`build`](Self::build).
    pub fn pointers(
        &self,
        service: &Service,
        endpoints: &ServiceEndpoints,
    ) -> Vec<(IpAddr, Pointer)> {
        let Some(base) = base(&service.key) else {
            return Vec::new();
        };
        let mut pointers: Vec<_> = match &service.kind {
            ServiceKind::ClusterIp(addresses) => addresses
                .iter()
                .map(|ip| (*ip, own_pointer(service, &base)))
                .collect(),
            ServiceKind::Headless | ServiceKind::WithoutIp => {
                let groups = endpoints.groups(service.publish_not_ready);
                let members = groups.iter().flat_map(|group| &group.members);
                let labelled =
                    |member: &Member<'_>| member.labelled(service, &base, self.endpoint_names);
                members
                    .filter_map(|member| Some((member.ip, labelled(member)?.1)))
                    .collect()
            }
            ServiceKind::ExternalName(_) => Vec::new(),
        };
        sort(&mut pointers);
        pointers
    }
}

fn sort(pointers: &mut Vec<(IpAddr, Pointer)>) {
    pointers.sort_unstable();
    pointers.dedup();
}

/// The name of a Service below the zone, in wire format.
fn base(key: &ObjectKey) -> Option<Arc<[u8]>> {
    name::parse_labels(&format!("{}.{}.svc", key.name, key.namespace))
        .ok()
        .map(Into::into)
}

/// The labels of a port, such as `_tcp` and `_http`. Ports without a name have no SRV records.
pub(crate) fn port_path(protocol: &Protocol, name: &SmolStr) -> Option<[SmolStr; 2]> {
    if name.is_empty() || protocol.as_str().is_empty() {
        return None;
    }
    Some([label_of(protocol.as_str()), label_of(name)])
}

fn label_of(text: &str) -> SmolStr {
    smol_str::format_smolstr!("_{}", text.to_ascii_lowercase())
}

fn cluster_ip(service: &Service, addresses: &[IpAddr]) -> ServiceRecords {
    let mut records = ServiceRecords::default();
    let Some(base) = base(&service.key) else {
        return records;
    };
    let mut labels: BTreeMap<SmolStr, Vec<IpAddr>> = BTreeMap::new();
    for ip in addresses {
        labels.entry(label::hash(*ip)).or_default().push(*ip);
        records.pointers.push((*ip, own_pointer(service, &base)));
    }
    // If two ports have the same labels, the last port wins.
    let ports: BTreeMap<[SmolStr; 2], u16> = service
        .ports
        .iter()
        .filter_map(|port| Some((port_path(&port.protocol, &port.name)?, port.port)))
        .collect();
    let ports = ports
        .into_iter()
        .map(|(path, port)| PortRecords {
            path,
            port,
            members: None,
        })
        .collect();
    let labelled = |(label, addresses): (SmolStr, Vec<IpAddr>)| Labelled {
        label,
        addresses: addresses.into(),
    };
    let members: OneOrMany<Labelled> = labels.into_iter().map(labelled).collect();
    let near = u32::try_from(members.len()).unwrap_or(u32::MAX);
    records.node = (!members.is_empty()).then_some(ServiceNode {
        base,
        headless: false,
        near,
        members,
        ports,
    });
    records
}

/// The addresses and ports of one label.
#[derive(Default)]
struct Collected {
    /// Whether the addresses are also answered at the name of the Service.
    near: bool,
    addresses: Vec<IpAddr>,
    ports: Vec<([SmolStr; 2], u16)>,
}

fn headless(
    service: &Service,
    endpoints: &ServiceEndpoints,
    options: &RecordOptions,
) -> ServiceRecords {
    let mut records = ServiceRecords::default();
    let Some(base) = base(&service.key) else {
        return records;
    };
    let mut labels: BTreeMap<SmolStr, Collected> = BTreeMap::new();
    let groups = endpoints.groups(service.publish_not_ready);
    let zone = options
        .preferred_zone
        .as_ref()
        .filter(|zone| zone::suffices(zone, &groups));
    for group in groups {
        let ports: Vec<_> = group
            .ports
            .iter()
            .filter_map(|port| Some((port_path(&port.protocol, &port.name)?, port.port)))
            .collect();
        for member in &group.members {
            let named = member.labelled(service, &base, options.endpoint_names);
            let Some((label, pointer)) = named else {
                continue;
            };
            records.pointers.push((member.ip, pointer));
            let collected = labels.entry(label).or_default();
            collected.near |= zone.is_none_or(|zone| member.zones.contains(zone));
            collected.addresses.push(member.ip);
            collected.ports.extend(ports.iter().cloned());
        }
    }
    records.node = (!labels.is_empty()).then(|| headless_node(labels, base));
    records
}

/// The reverse record of a cluster IP.
fn own_pointer(service: &Service, base: &Arc<[u8]>) -> Pointer {
    Pointer {
        created: service.created,
        name: Arc::clone(base),
        named: true,
    }
}

impl EndpointNames {
    fn of_address(self, ip: IpAddr) -> SmolStr {
        match self {
            Self::Hash => label::hash(ip),
            Self::Address | Self::Pod => label::dashed(ip),
        }
    }
}

impl Member<'_> {
    /// The label and the reverse record of the address; `None` if the hostname is not a valid
    /// label. The API server rejects hostnames with dots.
    fn labelled(
        &self,
        service: &Service,
        base: &[u8],
        mode: EndpointNames,
    ) -> Option<(SmolStr, Pointer)> {
        let label = self
            .hostname
            .cloned()
            .unwrap_or_else(|| mode.of_address(self.ip));
        let name = name::child_labels(&label, base)?.into();
        // kube-dns has no reverse records for generated names.
        let named = self.hostname.is_some() || mode != EndpointNames::Hash;
        Some((
            label,
            Pointer {
                created: service.created,
                name,
                named,
            },
        ))
    }
}

fn headless_node(labels: BTreeMap<SmolStr, Collected>, base: Arc<[u8]>) -> ServiceNode {
    let count = labels.len();
    let (labels, others): (Vec<_>, Vec<_>) = labels
        .into_iter()
        .partition(|(_, collected)| collected.near);
    let near = u32::try_from(labels.len()).unwrap_or(u32::MAX);
    let mut ports: BTreeMap<([SmolStr; 2], u16), Vec<u32>> = BTreeMap::new();
    let labelled = |(position, (label, collected)): (u32, (SmolStr, Collected))| {
        let Collected {
            mut addresses,
            ports: mut own,
            ..
        } = collected;
        addresses.sort_unstable();
        addresses.dedup();
        own.sort_unstable();
        own.dedup();
        for port in own {
            ports.entry(port).or_default().push(position);
        }
        Labelled {
            label,
            addresses: addresses.into(),
        }
    };
    let members = (0..)
        .zip(labels.into_iter().chain(others))
        .map(labelled)
        .collect();
    let port = |((path, port), members): (_, Vec<u32>)| {
        let members = (members.len() < count).then(|| members.into());
        PortRecords {
            path,
            port,
            members,
        }
    };
    ServiceNode {
        base,
        headless: true,
        near,
        members,
        ports: ports.into_iter().map(port).collect(),
    }
}

fn external_name(service: &Service, target: &str) -> ServiceRecords {
    let mut records = ServiceRecords::default();
    let Ok(base) = name::parse_labels(&format!("{}.svc", service.key.namespace)) else {
        return records;
    };
    // If `spec.externalName` is an address, the answer is that address.
    let host = match target.parse() {
        Ok(ip) => Host::Address(ip),
        Err(_) => match Name::parse(target) {
            Ok(name) if name.label_count() > 0 => Host::Name(Cow::Owned(name)),
            Ok(_) | Err(_) => {
                tracing::warn!(service = %service.key, externalName = target, "externalName is not a domain name");
                return records;
            }
        },
    };
    records.alias = Some(ExternalName {
        host,
        base: base.into(),
    });
    records
}
