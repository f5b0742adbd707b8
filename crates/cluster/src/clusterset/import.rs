//! The records of one `ServiceImport`, at the import's name and at the names below it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use skydns::{Entry, Host, ServiceRecord};
use smol_str::SmolStr;
use wire::name;

use crate::objects::{ImportedSlice, ObjectKey, Protocol, Service, ServiceKind};
use crate::one_or_many::OneOrMany;
use crate::records::{EndpointGroup, dashed_label, port_path, visit_bounded};

/// The records of a `ServiceImport`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportNode {
    /// The addresses of the import itself; `None` if the import is headless.
    own: Option<MemberGroup>,
    /// The endpoints of each cluster, sorted by cluster.
    clusters: OneOrMany<SourceCluster>,
}

/// The endpoints of one cluster of the set.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceCluster {
    id: SmolStr,
    members: MemberGroup,
}

/// Members whose names have the same parent name. A member is the import itself, or the endpoints
/// of one cluster that share a label.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MemberGroup {
    /// The parent name of the members, see [`ServiceRecord::base`].
    base: Arc<[u8]>,
    /// Members sorted by label; labels are unique.
    labelled: OneOrMany<ImportMember>,
    /// The labels of all named ports of the members, sorted.
    ports: OneOrMany<[SmolStr; 2]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ImportMember {
    label: SmolStr,
    addresses: OneOrMany<IpAddr>,
    ports: OneOrMany<MemberPort>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct MemberPort {
    /// The labels of protocol and name, such as `_tcp` and `_http`; `None` for a port without a
    /// name.
    path: Option<[SmolStr; 2]>,
    number: u16,
}

impl MemberPort {
    fn new(protocol: &Protocol, name: &SmolStr, number: u16) -> Self {
        Self {
            path: port_path(protocol, name),
            number,
        }
    }
}

/// The endpoints that share a label in the slices of one cluster.
#[derive(Default)]
struct CollectedEndpoints {
    addresses: Vec<IpAddr>,
    ports: Vec<MemberPort>,
}

impl ImportNode {
    /// Builds the records. Returns `None` for a headless import if no endpoint has records, as in
    /// CoreDNS. Returns `None` for any other import if the import's name is not a label.
    pub(super) fn build<'o>(
        import: &Service,
        slices: impl Iterator<Item = &'o ImportedSlice>,
    ) -> Option<Self> {
        let own = match &import.kind {
            ServiceKind::ClusterIp(addresses) => Some(MemberGroup::of_import(import, addresses)?),
            ServiceKind::Headless => None,
            // The name exists, but has no addresses yet.
            ServiceKind::WithoutIp | ServiceKind::ExternalName(_) => {
                Some(MemberGroup::of_import(import, &[])?)
            }
        };
        let clusters = build_clusters(&import.key, slices);

        (own.is_some() || !clusters.is_empty()).then_some(Self { own, clusters })
    }

    /// Visits the records of a name. `path` has the labels below the import's name; the label next
    /// to that name comes first. Returns false if the name does not exist, or exists only because
    /// of the names below it. Wildcards are not supported. For `steps` see
    /// [`skydns::EntryVisit::steps`].
    pub(super) fn visit_records<'v>(
        &'v self,
        path: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        match path {
            [] => {
                for members in self.groups_at_name() {
                    members.visit_members(steps, visit);
                }
                true
            }
            // A cluster's name is an RFC 1123 label, which never begins with `_`.
            [protocol, name] if protocol.starts_with('_') => {
                let mut found = false;
                for members in self.groups_at_name() {
                    found |= members.visit_port([*protocol, *name], steps, visit);
                }
                found
            }
            [cluster, label] => {
                let Some(members) = self.members_of(cluster) else {
                    return false;
                };
                let Some(member) = members.find_member(label) else {
                    return false;
                };
                member.visit_addresses(&members.base, steps, visit);
                true
            }
            _ => false,
        }
    }

    /// Whether there are names at `path` or below it (RFC 8020).
    pub(super) fn has_descendants(&self, path: &[&str]) -> bool {
        match path {
            [] => true,
            [protocol] if protocol.starts_with('_') => self
                .groups_at_name()
                .flat_map(|members| members.ports.iter())
                .any(|[own, _]| own == protocol),
            [cluster] => self.members_of(cluster).is_some(),
            // One step is enough to learn whether the name exists.
            path => self.visit_records(path, &mut 1, &mut |_| {}),
        }
    }

    /// Visits each owner name once, as the labels below the import's name.
    pub fn owner_names(&self, visit: &mut dyn FnMut(&[&str])) {
        visit(&[]);

        let ports = self.groups_at_name().flat_map(|members| &members.ports);
        // Several clusters may have the same port. The name of such a port is visited only once.
        let ports: BTreeSet<&[SmolStr; 2]> = ports.collect();
        for [protocol, name] in ports {
            visit(&[protocol, name]);
        }

        for cluster in &self.clusters {
            for member in &cluster.members.labelled {
                visit(&[&cluster.id, &member.label]);
            }
        }
    }

    /// The groups whose members are in the answers for the import's own name and for the names of
    /// the import's ports.
    fn groups_at_name(&self) -> impl Iterator<Item = &MemberGroup> {
        // At these names, only a headless import answers with its endpoints (KEP-1645).
        let clusters = if self.own.is_some() {
            &[][..]
        } else {
            &self.clusters
        };
        let of_clusters = clusters.iter().map(|cluster| &cluster.members);

        self.own.iter().chain(of_clusters)
    }

    fn members_of(&self, cluster: &str) -> Option<&MemberGroup> {
        let at = self
            .clusters
            .binary_search_by(|own| own.id.as_str().cmp(cluster))
            .ok()?;
        self.clusters.get(at).map(|cluster| &cluster.members)
    }
}

impl MemberGroup {
    fn new(base: Arc<[u8]>, labelled: OneOrMany<ImportMember>) -> Self {
        let ports = labelled.iter().flat_map(|member| member.ports.iter());
        let ports: BTreeSet<&[SmolStr; 2]> = ports.filter_map(|port| port.path.as_ref()).collect();
        let ports = ports.into_iter().cloned().collect();
        Self {
            base,
            labelled,
            ports,
        }
    }

    /// The import's own addresses as a single member; no member if there is no address. The
    /// member's name is the import's own name, which is the target of the SRV records.
    fn of_import(import: &Service, addresses: &[IpAddr]) -> Option<Self> {
        let ObjectKey { namespace, name } = &import.key;
        let base: Arc<[u8]> = name::parse_labels(&format!("{namespace}.svc")).ok()?.into();
        // A name that is not a label has no records.
        name::child_labels(name, &base)?;
        if addresses.is_empty() {
            return Some(Self::new(base, OneOrMany::default()));
        }

        let ports = import.ports.iter();
        let mut ports: Vec<_> = ports
            .map(|port| MemberPort::new(&port.protocol, &port.name, port.port))
            .collect();
        ports.sort_unstable();
        ports.dedup();

        let member = ImportMember {
            label: name.clone(),
            addresses: addresses.iter().copied().collect(),
            ports: ports.into(),
        };
        Some(Self::new(base, OneOrMany::one(member)))
    }

    fn find_member(&self, label: &str) -> Option<&ImportMember> {
        let at = self
            .labelled
            .binary_search_by(|member| member.label.as_str().cmp(label))
            .ok()?;
        self.labelled.get(at)
    }

    fn visit_members<'v>(&'v self, steps: &mut usize, visit: &mut dyn FnMut(Entry<'v>)) {
        for member in &self.labelled {
            member.visit_addresses(&self.base, steps, visit);
        }
    }

    /// Visits the SRV records of a port. Returns whether the port exists.
    fn visit_port<'v>(
        &'v self,
        path: [&str; 2],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let is_at_path = |own: &[SmolStr; 2]| own.each_ref().map(SmolStr::as_str) == path;
        // The port exists even if no step is left for its records.
        if !self.ports.iter().any(is_at_path) {
            return false;
        }

        for member in &self.labelled {
            if *steps == 0 {
                break;
            }
            for port in &member.ports {
                if port.path.as_ref().is_some_and(is_at_path) {
                    let record =
                        ServiceRecord::new(Host::Member, &self.base).with_port(port.number);
                    visit_bounded(&member.label, record, steps, visit);
                }
            }
        }
        true
    }
}

impl ImportMember {
    /// Visits the addresses once for each port, because an SRV answer at the import's name lists
    /// all ports. Without ports, visits the addresses once.
    fn visit_addresses<'v>(
        &'v self,
        base: &'v [u8],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) {
        let record = ServiceRecord::for_addresses(&self.addresses, base);
        if self.ports.is_empty() {
            visit_bounded(&self.label, record.clone(), steps, visit);
        }

        for port in &self.ports {
            let record = record.clone().with_port(port.number);
            visit_bounded(&self.label, record, steps, visit);
        }
    }
}

/// The ready endpoints of each cluster. As in CoreDNS, the label of an endpoint without a hostname
/// is the address with dashes.
fn build_clusters<'o>(
    key: &ObjectKey,
    slices: impl Iterator<Item = &'o ImportedSlice>,
) -> OneOrMany<SourceCluster> {
    let mut clusters: BTreeMap<&SmolStr, BTreeMap<SmolStr, CollectedEndpoints>> = BTreeMap::new();
    for ImportedSlice { cluster, slice } in slices {
        // Only ready endpoints have records: an import has no field that publishes unready ones.
        let group = EndpointGroup::of_slice(slice, false);
        let ports = group.ports.iter();
        let ports: Vec<_> = ports
            .map(|port| MemberPort::new(&port.protocol, &port.name, port.port))
            .collect();

        for member in group.members {
            let label = match member.hostname {
                Some(hostname) => hostname.clone(),
                None => dashed_label(member.ip),
            };
            let labels = clusters.entry(cluster).or_default();
            let collected = labels.entry(label).or_default();
            collected.addresses.push(member.ip);
            collected.ports.extend(ports.iter().cloned());
        }
    }

    let mut built = Vec::new();
    for (id, labels) in clusters {
        if let Some(members) = build_cluster(key, id, labels) {
            let id = id.clone();
            built.push(SourceCluster { id, members });
        }
    }
    built.into()
}

/// The endpoints of one cluster. `None` if the cluster's name is not a valid label, or if no
/// endpoint has a valid owner name.
fn build_cluster(
    key: &ObjectKey,
    id: &SmolStr,
    labels: BTreeMap<SmolStr, CollectedEndpoints>,
) -> Option<MemberGroup> {
    // `id` is empty if the slices lack the Kubernetes label with the name of their cluster. Their
    // endpoints then have no owner names.
    if id.is_empty() {
        return None;
    }
    let import = name::parse_labels(&format!("{}.{}.svc", key.name, key.namespace)).ok()?;
    let base: Arc<[u8]> = name::child_labels(id, &import)?.into();

    let mut members = Vec::new();
    for (label, mut collected) in labels {
        if name::child_labels(&label, &base).is_none() {
            continue;
        }
        // Slices may repeat an endpoint while it moves from one slice to another.
        collected.addresses.sort_unstable();
        collected.addresses.dedup();
        collected.ports.sort_unstable();
        collected.ports.dedup();
        members.push(ImportMember {
            label,
            addresses: collected.addresses.into(),
            ports: collected.ports.into(),
        });
    }
    (!members.is_empty()).then(|| MemberGroup::new(base, members.into()))
}
