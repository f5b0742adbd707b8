//! The records of one `ServiceImport`, at the import's name and at the names below.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use skydns::{Entry, Host, ServiceRecord};
use smol_str::SmolStr;
use wire::name;

use crate::objects::{ImportedSlice, ObjectKey, Protocol, Service, ServiceKind};
use crate::one_or_many::OneOrMany;
use crate::records::{Group, dashed, port_path};

/// The records of a `ServiceImport`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The addresses of the import itself; `None` if it is headless.
    own: Option<Members>,
    /// The endpoints of each cluster, sorted by cluster.
    clusters: OneOrMany<(SmolStr, Members)>,
}

/// Members whose names have the same parent name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Members {
    /// The parent name of the members, see [`ServiceRecord::base`].
    base: Arc<[u8]>,
    /// Members sorted by label; labels are unique.
    labelled: OneOrMany<Member>,
    /// The labels of all named ports of the members, sorted.
    ports: OneOrMany<[SmolStr; 2]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    label: SmolStr,
    addresses: OneOrMany<IpAddr>,
    ports: OneOrMany<Port>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Port {
    /// The labels of protocol and name, such as `_tcp` and `_http`; `None` for a port without a
    /// name.
    path: Option<[SmolStr; 2]>,
    number: u16,
}

impl Port {
    fn new(protocol: &Protocol, name: &SmolStr, number: u16) -> Self {
        Self {
            path: port_path(protocol, name),
            number,
        }
    }
}

/// The endpoints that share a label in the slices of one cluster.
#[derive(Default)]
struct Collected {
    addresses: Vec<IpAddr>,
    ports: Vec<Port>,
}

impl Import {
    /// Builds the records; `None` for a headless import without endpoints, as in CoreDNS.
    pub(super) fn build<'o>(
        import: &Service,
        slices: impl Iterator<Item = &'o ImportedSlice>,
    ) -> Option<Self> {
        let own = match &import.kind {
            ServiceKind::ClusterIp(addresses) => Some(Members::own(import, addresses)?),
            ServiceKind::Headless => None,
            // The name exists, but has no addresses yet.
            ServiceKind::WithoutIp | ServiceKind::ExternalName(_) => {
                Some(Members::own(import, &[])?)
            }
        };
        let clusters = clusters(&import.key, slices);
        (own.is_some() || !clusters.is_empty()).then_some(Self { own, clusters })
    }

    /// Visits the records at `path`, which holds the labels below the import's name. Returns
    /// whether the name exists. Wildcards are not supported. For `steps` see
    /// [`skydns::Records::visit_entries`].
    pub(super) fn visit<'v>(
        &'v self,
        path: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        match path {
            [] => {
                self.named().for_each(|members| members.visit(steps, visit));
                true
            }
            [protocol, name] if protocol.starts_with('_') => {
                let port = [*protocol, *name];
                self.named()
                    .filter(|members| members.visit_port(port, steps, visit))
                    .count()
                    > 0
            }
            [cluster, label] => {
                let member = self
                    .cluster(cluster)
                    .and_then(|members| Some((members, members.find(label)?)));
                member
                    .map(|(members, member)| member.visit(&members.base, steps, visit))
                    .is_some()
            }
            _ => false,
        }
    }

    /// Whether there are names at `path` or below it (RFC 8020).
    pub(super) fn has_descendants(&self, path: &[&str]) -> bool {
        match path {
            [] => true,
            [protocol] if protocol.starts_with('_') => self
                .named()
                .flat_map(|members| members.ports.iter())
                .any(|[own, _]| own == protocol),
            [cluster] => self.cluster(cluster).is_some(),
            path => self.visit(path, &mut 1, &mut |_| {}),
        }
    }

    /// Visits each owner name once, as the labels below the import's name.
    pub fn owner_names(&self, visit: &mut dyn FnMut(&[&str])) {
        visit(&[]);
        let ports: BTreeSet<&[SmolStr; 2]> = self
            .named()
            .flat_map(|members| members.ports.iter())
            .collect();
        for [protocol, name] in ports {
            visit(&[protocol, name]);
        }
        for (cluster, members) in &*self.clusters {
            members
                .labelled
                .iter()
                .for_each(|member| visit(&[cluster, &member.label]));
        }
    }

    /// The members that are answered at the import's own name and at the names of the import's
    /// ports.
    fn named(&self) -> impl Iterator<Item = &Members> {
        let clusters = if self.own.is_some() {
            &[][..]
        } else {
            &self.clusters
        };
        self.own
            .iter()
            .chain(clusters.iter().map(|(_, members)| members))
    }

    fn cluster(&self, id: &str) -> Option<&Members> {
        let at = self
            .clusters
            .binary_search_by(|(own, _)| own.as_str().cmp(id))
            .ok()?;
        self.clusters.get(at).map(|(_, members)| members)
    }
}

impl Members {
    fn new(base: Arc<[u8]>, labelled: OneOrMany<Member>) -> Self {
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
    fn own(import: &Service, addresses: &[IpAddr]) -> Option<Self> {
        let ObjectKey { namespace, name } = &import.key;
        let base: Arc<[u8]> = name::parse_labels(&format!("{namespace}.svc")).ok()?.into();
        name::child_labels(name, &base)?;
        let ports = import.ports.iter();
        let mut ports: Vec<_> = ports
            .map(|port| Port::new(&port.protocol, &port.name, port.port))
            .collect();
        ports.sort_unstable();
        ports.dedup();
        let addresses: OneOrMany<IpAddr> = addresses.iter().copied().collect();
        let is_pending = addresses.is_empty();
        let member = Member {
            label: name.clone(),
            addresses,
            ports: ports.into(),
        };
        Some(Self::new(
            base,
            if is_pending {
                OneOrMany::default()
            } else {
                OneOrMany::one(member)
            },
        ))
    }

    fn find(&self, label: &str) -> Option<&Member> {
        let at = self
            .labelled
            .binary_search_by(|member| member.label.as_str().cmp(label))
            .ok()?;
        self.labelled.get(at)
    }

    fn visit<'v>(&'v self, steps: &mut usize, visit: &mut dyn FnMut(Entry<'v>)) {
        self.labelled
            .iter()
            .for_each(|member| member.visit(&self.base, steps, visit));
    }

    /// Visits the SRV records of a port. Returns whether the port exists.
    fn visit_port<'v>(
        &'v self,
        path: [&str; 2],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let is_of = |own: &[SmolStr; 2]| own.each_ref().map(SmolStr::as_str) == path;
        if !self.ports.iter().any(is_of) {
            return false;
        }
        for member in &*self.labelled {
            if *steps == 0 {
                break;
            }
            let ports = member
                .ports
                .iter()
                .filter(|port| port.path.as_ref().is_some_and(is_of));
            for port in ports {
                let record = ServiceRecord::new(Host::Member, &self.base).with_port(port.number);
                visit_bounded(&member.label, record, steps, visit);
            }
        }
        true
    }
}

impl Member {
    /// Visits the addresses once for each port, because an SRV answer at the import's name lists
    /// all ports.
    fn visit<'v>(&'v self, base: &'v [u8], steps: &mut usize, visit: &mut dyn FnMut(Entry<'v>)) {
        let record = ServiceRecord::for_addresses(&self.addresses, base);
        if self.ports.is_empty() {
            visit_bounded(&self.label, record.clone(), steps, visit);
        }
        for port in &*self.ports {
            visit_bounded(
                &self.label,
                record.clone().with_port(port.number),
                steps,
                visit,
            );
        }
    }
}

/// Visits an entry and takes one step. Does nothing if no step is left.
fn visit_bounded<'v>(
    label: &'v str,
    record: ServiceRecord<'v>,
    steps: &mut usize,
    visit: &mut dyn FnMut(Entry<'v>),
) {
    if *steps > 0 {
        *steps -= 1;
        visit(Entry {
            label,
            record,
            synthesized: false,
        });
    }
}

/// The ready endpoints of each cluster. As in CoreDNS, the label of an endpoint without a hostname
/// is the address with dashes.
fn clusters<'o>(
    key: &ObjectKey,
    slices: impl Iterator<Item = &'o ImportedSlice>,
) -> OneOrMany<(SmolStr, Members)> {
    let mut clusters: BTreeMap<&SmolStr, BTreeMap<SmolStr, Collected>> = BTreeMap::new();
    for ImportedSlice { cluster, slice } in slices {
        let group = Group::of_slice(slice, false);
        let ports = group.ports.iter();
        let ports: Vec<_> = ports
            .map(|port| Port::new(&port.protocol, &port.name, port.port))
            .collect();
        for member in group.members {
            let label = member
                .hostname
                .cloned()
                .unwrap_or_else(|| dashed(member.ip));
            let collected = clusters
                .entry(cluster)
                .or_default()
                .entry(label)
                .or_default();
            collected.addresses.push(member.ip);
            collected.ports.extend(ports.iter().cloned());
        }
    }
    let cluster = |(id, members): (&SmolStr, _)| Some((id.clone(), cluster(key, id, members)?));
    clusters.into_iter().filter_map(cluster).collect()
}

/// The endpoints of one cluster. `None` if the cluster's name is not a valid label, or if no
/// endpoint has a valid owner name.
fn cluster(
    key: &ObjectKey,
    id: &SmolStr,
    members: BTreeMap<SmolStr, Collected>,
) -> Option<Members> {
    let import = name::parse_labels(&format!("{}.{}.svc", key.name, key.namespace))
        .ok()
        .filter(|_| !id.is_empty())?;
    let base: Arc<[u8]> = name::child_labels(id, &import)?.into();
    let member = |(
        label,
        Collected {
            mut addresses,
            mut ports,
        },
    ): (SmolStr, Collected)| {
        name::child_labels(&label, &base)?;
        addresses.sort_unstable();
        addresses.dedup();
        ports.sort_unstable();
        ports.dedup();
        Some(Member {
            label,
            addresses: addresses.into(),
            ports: ports.into(),
        })
    };
    let members: OneOrMany<Member> = members.into_iter().filter_map(member).collect();
    (!members.is_empty()).then(|| Members::new(base, members))
}
