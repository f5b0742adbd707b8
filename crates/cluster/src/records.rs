//! Records of a Service, built from its objects by pure functions.
//!
//! The records follow kube-dns:
//! - A ClusterIP Service has an entry for each cluster IP, and SRV entries for its named ports.
//! - A headless Service has an entry for each label of its endpoints, and SRV entries for their
//!   named ports. The label is the hostname; without a hostname, it is made from the address (see
//!   [`EndpointNames`]).
//! - An ExternalName Service has one entry, directly below the name of its namespace. The label of
//!   the entry is the Service's name. No names exist below the Service's name.

mod endpoints;
mod external;
mod label;
mod node;
mod zonal;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use skydns::{Host, Pointer};
use smol_str::SmolStr;
use wire::{Name, name};

use crate::objects::{EndpointPort, ObjectKey, Protocol, Service, ServiceKind, ServicePort};

pub use endpoints::{EndpointGroup, EndpointMember, ServiceEndpoints};
pub use external::ExternalNode;
pub(crate) use external::visit_bounded;
pub(crate) use label::dashed_label;
use label::hashed_label;
pub use node::{LabelledAddresses, PortRecords, ServiceNode};
pub use zonal::{ZONE_LABEL, ZonalName, ZonalNode, ZoneDirective, is_above_zonal_names};

/// The records of one Service.
#[derive(Debug, Default)]
pub struct ServiceRecords {
    /// Records at the Service's name and at the names below it.
    pub node: Option<ServiceNode>,
    /// Target of an ExternalName Service.
    pub alias: Option<ExternalName>,
    /// Records in the external zone, at the Service's name and at the names below it.
    pub external: Option<ExternalNode>,
    /// The addresses at the names of topology zones (`ZONE.pin._zone.SERVICE` and the like). `None`
    /// without `--zonal-names`, and for ClusterIP and ExternalName Services.
    pub zonal: Option<ZonalNode>,
    /// The reverse records, sorted and unique.
    pub pointers: Vec<(IpAddr, Pointer)>,
}

/// The entry of an ExternalName Service, directly below the name of its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalName {
    /// The target name, or the address if `spec.externalName` is an address.
    pub host: Host<'static>,
    /// See [`skydns::ServiceRecord::base`].
    pub base: Box<[u8]>,
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
    /// not a label. The watch stores the pod's name as the hostname of the endpoint.
    Pod,
}

/// Options of the records. The default is the behaviour of kube-dns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordOptions {
    /// The names of endpoints without a hostname.
    pub endpoint_names: EndpointNames,
    /// Whether a ClusterIP Service without ready endpoints has no names in the cluster's zone
    /// (`--ignore-empty-services`). Its reverse records stay.
    pub ignore_empty_services: bool,
    /// The preferred zone (`--prefer-zone`). If enough addresses serve this zone, the answers for
    /// the names of a headless Service and of its ports may leave out the other addresses.
    pub preferred_zone: Option<PreferredZone>,
    /// The node of this server (`--prefer-zone=auto` or `hints`). The answers for the names of a
    /// headless Service and of its ports may leave out the addresses without a hint for this node.
    /// For this, each IP family that has addresses must have a ready address with the hint. This
    /// rule comes before the preferred zone.
    pub preferred_node: Option<SmolStr>,
    /// Whether headless Services have zonal names (`--zonal-names`).
    pub zonal_names: bool,
    /// The content of the external zone.
    pub external: ExternalRecords,
}

/// A topology zone whose addresses are preferred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreferredZone {
    /// The name of the zone.
    pub name: SmolStr,
    /// Whether an endpoint serves the zone only if it has a hint for the zone. If this is false, an
    /// endpoint without zone hints serves its own zone.
    pub hints_only: bool,
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
            ServiceKind::ClusterIp(addresses) => cluster_ip_records(service, addresses),
            // kube-dns treats a Service that has no address yet as headless.
            ServiceKind::Headless | ServiceKind::WithoutIp => {
                self.headless_records(service, endpoints)
            }
            ServiceKind::ExternalName(target) => external_name_records(service, target),
        };
        if self.hides_empty_service(service, endpoints) {
            records.node = None;
        }

        let external = self.external;
        records.external = external.build_node(service, records.node.as_ref());
        sort_pointers(&mut records.pointers);
        records
    }

    /// Whether the records at the name of `service` and below are left out because no endpoint is
    /// ready. The reverse records stay, as in CoreDNS.
    fn hides_empty_service(&self, service: &Service, endpoints: &ServiceEndpoints) -> bool {
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

    /// Builds the same reverse records as [`build`](Self::build), and nothing else.
    pub fn pointers(
        &self,
        service: &Service,
        endpoints: &ServiceEndpoints,
    ) -> Vec<(IpAddr, Pointer)> {
        let Some(base) = service_base(&service.key) else {
            return Vec::new();
        };

        let mut pointers = Vec::new();
        match &service.kind {
            ServiceKind::ClusterIp(addresses) => {
                pointers.extend(
                    addresses
                        .iter()
                        .map(|ip| (*ip, own_pointer(service, &base))),
                );
            }
            ServiceKind::Headless | ServiceKind::WithoutIp => {
                for group in endpoints.groups(service.publish_not_ready) {
                    for member in &group.members {
                        let named = member.name_in(service, &base, self.endpoint_names);
                        pointers.extend(named.map(|named| (member.ip, named.pointer)));
                    }
                }
            }
            // ExternalName Services have no reverse records, even if the target is an address.
            ServiceKind::ExternalName(_) => {}
        }
        sort_pointers(&mut pointers);
        pointers
    }

    fn headless_records(&self, service: &Service, endpoints: &ServiceEndpoints) -> ServiceRecords {
        let mut records = ServiceRecords::default();
        let Some(base) = service_base(&service.key) else {
            return records;
        };

        let groups = endpoints.groups(service.publish_not_ready);
        // The preference depends on all groups, because each slice has only a part of the
        // endpoints.
        let preference = self.preference_among(&groups);

        let mut zonal = zonal::ZonalAddresses::default();
        let mut labels: BTreeMap<SmolStr, CollectedLabel> = BTreeMap::new();
        for group in groups {
            let ports = named_endpoint_ports(group.ports);
            for member in &group.members {
                let Some(named) = member.name_in(service, &base, self.endpoint_names) else {
                    continue;
                };
                // Every address has its reverse record, whether it is preferred or not.
                records.pointers.push((member.ip, named.pointer));

                if let Some(zone) = member.zone().filter(|_| self.zonal_names) {
                    zonal.add(zone, &named.label, member.ip);
                }
                let is_preferred = preference.holds(member);
                let collected = labels.entry(named.label).or_default();
                collected.is_preferred |= is_preferred;
                // Several addresses may have the same hostname. All of them are kept. kube-dns
                // would keep only the last address.
                collected.addresses.push(member.ip);
                collected.ports.extend(ports.iter().cloned());
            }
        }

        records.node = (!labels.is_empty()).then(|| headless_node(labels, base));
        // The zonal names exist even without addresses.
        records.zonal = self.zonal_names.then(|| zonal.into_node());
        records
    }

    /// The endpoints that the clients of this server should use. The first of these rules that
    /// applies decides:
    /// - The endpoints with a hint for the server's node, if each IP family that has endpoints has
    ///   a ready endpoint with this hint.
    /// - The endpoints that serve the preferred zone, if there are enough.
    /// - All endpoints.
    fn preference_among(&self, groups: &[EndpointGroup<'_>]) -> Preference<'_> {
        if let Some(node) = &self.preferred_node
            && node::has_hint_for_node(node, groups)
        {
            return Preference::Node(node);
        }

        match &self.preferred_zone {
            Some(zone) if node::has_enough_in_zone(zone, groups) => Preference::Zone(zone),
            Some(_) | None => Preference::All,
        }
    }
}

/// The preferred endpoints of a headless Service.
#[derive(Debug, Clone, Copy)]
enum Preference<'o> {
    All,
    /// The endpoints with a hint for the node.
    Node(&'o SmolStr),
    /// The endpoints that serve the zone.
    Zone(&'o PreferredZone),
}

impl Preference<'_> {
    fn holds(self, member: &EndpointMember<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Node(node) => member.serves_node(node),
            Self::Zone(zone) => member.serves_zone(zone),
        }
    }
}

fn sort_pointers(pointers: &mut Vec<(IpAddr, Pointer)>) {
    pointers.sort_unstable();
    pointers.dedup();
}

/// The name of a Service below the zone, in wire format.
fn service_base(key: &ObjectKey) -> Option<Arc<[u8]>> {
    let base = name::parse_labels(&format!("{}.{}.svc", key.name, key.namespace)).ok()?;
    Some(base.into())
}

/// The reverse record of a cluster IP.
fn own_pointer(service: &Service, base: &Arc<[u8]>) -> Pointer {
    Pointer {
        created: service.created,
        name: Arc::clone(base),
        named: true,
    }
}

/// The labels of a port, such as `_tcp` and `_http`; `None` without a name or without a protocol.
pub(crate) fn port_path(protocol: &Protocol, name: &SmolStr) -> Option<[SmolStr; 2]> {
    if name.is_empty() || protocol.as_str().is_empty() {
        return None;
    }
    Some([port_label(protocol.as_str()), port_label(name)])
}

fn port_label(text: &str) -> SmolStr {
    smol_str::format_smolstr!("_{}", text.to_ascii_lowercase())
}

/// A port with a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NamedPort {
    path: [SmolStr; 2],
    port: u16,
}

fn named_endpoint_ports(ports: &[EndpointPort]) -> Vec<NamedPort> {
    let named = ports.iter().filter_map(|port| {
        Some(NamedPort {
            path: port_path(&port.protocol, &port.name)?,
            port: port.port,
        })
    });
    named.collect()
}

fn cluster_ip_records(service: &Service, addresses: &[IpAddr]) -> ServiceRecords {
    let mut records = ServiceRecords::default();
    let Some(base) = service_base(&service.key) else {
        return records;
    };

    let mut labels: BTreeMap<SmolStr, Vec<IpAddr>> = BTreeMap::new();
    for ip in addresses {
        // Two addresses may have the same hash.
        labels.entry(hashed_label(*ip)).or_default().push(*ip);
        records.pointers.push((*ip, own_pointer(service, &base)));
    }
    if labels.is_empty() {
        return records;
    }

    let mut members = Vec::with_capacity(labels.len());
    for (label, addresses) in labels {
        members.push(LabelledAddresses {
            label,
            addresses: addresses.into(),
        });
    }
    records.node = Some(ServiceNode {
        base,
        headless: false,
        preferred_count: u32::try_from(members.len()).unwrap_or(u32::MAX),
        members: members.into(),
        ports: cluster_ip_ports(&service.ports),
    });
    records
}

/// The ports of a cluster IP. If two ports have the same labels, the last port wins.
fn cluster_ip_ports(ports: &[ServicePort]) -> Arc<[PortRecords]> {
    let mut by_path = BTreeMap::new();
    for port in ports {
        if let Some(path) = port_path(&port.protocol, &port.name) {
            by_path.insert(path, port.port);
        }
    }

    let records = by_path.into_iter().map(|(path, port)| PortRecords {
        path,
        port,
        members: None,
    });
    records.collect()
}

/// The addresses and ports of one label.
#[derive(Default)]
struct CollectedLabel {
    /// Whether the answers for the name of the Service contain the addresses.
    is_preferred: bool,
    addresses: Vec<IpAddr>,
    ports: Vec<NamedPort>,
}

fn headless_node(labels: BTreeMap<SmolStr, CollectedLabel>, base: Arc<[u8]>) -> ServiceNode {
    let count = labels.len();
    // Preferred members come first, so that their number is enough to tell them from the others.
    let (preferred, others): (Vec<_>, Vec<_>) = labels
        .into_iter()
        .partition(|(_, collected)| collected.is_preferred);
    let preferred_count = u32::try_from(preferred.len()).unwrap_or(u32::MAX);

    let mut members = Vec::with_capacity(count);
    let mut positions: BTreeMap<NamedPort, Vec<u32>> = BTreeMap::new();
    for (position, (label, mut collected)) in (0..).zip(preferred.into_iter().chain(others)) {
        // Slices may repeat an endpoint while it moves from one slice to another.
        collected.addresses.sort_unstable();
        collected.addresses.dedup();
        members.push(LabelledAddresses {
            label,
            addresses: collected.addresses.into(),
        });

        collected.ports.sort_unstable();
        collected.ports.dedup();
        for port in collected.ports {
            positions.entry(port).or_default().push(position);
        }
    }

    // A port that all members have needs no list of members.
    let ports = positions.into_iter().map(|(named, members)| PortRecords {
        path: named.path,
        port: named.port,
        members: (members.len() < count).then(|| members.into()),
    });
    ServiceNode {
        base,
        headless: true,
        preferred_count,
        members: members.into(),
        ports: ports.collect(),
    }
}

impl EndpointNames {
    fn label_of(self, ip: IpAddr) -> SmolStr {
        match self {
            Self::Hash => hashed_label(ip),
            Self::Address | Self::Pod => dashed_label(ip),
        }
    }
}

/// The label and the reverse record of an endpoint address.
struct NamedMember {
    label: SmolStr,
    pointer: Pointer,
}

impl EndpointMember<'_> {
    /// The label and the reverse record of the address; `None` if the hostname is not a valid
    /// label. The API server accepts only valid labels as hostnames.
    fn name_in(&self, service: &Service, base: &[u8], names: EndpointNames) -> Option<NamedMember> {
        let label = match self.hostname {
            Some(hostname) => hostname.clone(),
            None => names.label_of(self.ip),
        };
        let name = name::child_labels(&label, base)?.into();

        let pointer = Pointer {
            created: service.created,
            name,
            // False for a label that is a hash of the address. As in kube-dns, PTR answers leave
            // out such a name, except with `--strict-dns`.
            named: self.hostname.is_some() || names != EndpointNames::Hash,
        };
        Some(NamedMember { label, pointer })
    }
}

fn external_name_records(service: &Service, target: &str) -> ServiceRecords {
    let mut records = ServiceRecords::default();
    let Ok(base) = name::parse_labels(&format!("{}.svc", service.key.namespace)) else {
        return records;
    };
    let Some(host) = external_host(target) else {
        tracing::warn!(service = %service.key, externalName = target, "externalName is neither a domain name nor an IP address");
        return records;
    };

    records.alias = Some(ExternalName {
        host,
        base: base.into(),
    });
    records
}

/// The target of an ExternalName Service: an address, or else a domain name.
fn external_host(target: &str) -> Option<Host<'static>> {
    if let Ok(ip) = target.parse() {
        return Some(Host::Address(ip));
    }

    let name = Name::parse(target).ok()?;
    (name.label_count() > 0).then_some(Host::Name(Cow::Owned(name)))
}
