//! The records of one Service in the external zone. The external addresses are at `name.namespace`,
//! and SRV records are at that name and at the names of the ports. With `--external-headless`, a
//! headless Service without external addresses has the addresses of its endpoints there, and a name
//! for each endpoint. There are no wildcards.

use std::borrow::Cow;
use std::sync::Arc;

use skydns::{Entry, Host, ServiceRecord};
use smol_str::SmolStr;
use wire::{Name, name};

use super::{ExternalRecords, LabelledAddresses, PortRecords, ServiceNode, port_label, port_path};
use crate::objects::{ExternalAddress, ObjectKey, Service, ServiceKind, ServicePort};
use crate::one_or_many::OneOrMany;

/// The records of a Service in the external zone, at the Service's name and at the names below it.
/// There is at least one address or host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalNode {
    /// All external addresses of the Service are in one member, whose label is the Service's name.
    /// For a headless Service without external addresses, the members are the endpoints.
    node: ServiceNode,
    /// The host names of load balancers.
    names: OneOrMany<Name>,
}

impl ExternalRecords {
    /// Builds the records of `service`. `node` holds the Service's records in the cluster's zone.
    pub(super) fn build_node(
        self,
        service: &Service,
        node: Option<&ServiceNode>,
    ) -> Option<ExternalNode> {
        if self == Self::Off {
            return None;
        }
        // External addresses take precedence over endpoints, even for a headless Service.
        if !service.external.is_empty() {
            return exposed_node(service);
        }

        let has_members = self == Self::AndHeadless && service.kind == ServiceKind::Headless;
        if has_members {
            headless_node(&service.key, node?)
        } else {
            None
        }
    }
}

fn exposed_node(service: &Service) -> Option<ExternalNode> {
    let base = name::parse_labels(&service.key.namespace).ok()?.into();

    let mut addresses = Vec::new();
    let mut names = Vec::new();
    for external in &service.external {
        match external {
            ExternalAddress::Ip(ip) => addresses.push(*ip),
            ExternalAddress::Name(text) => names.extend(load_balancer_name(&service.key, text)),
        }
    }
    // The same address may be in `externalIPs` and at the load balancer.
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() && names.is_empty() {
        return None;
    }

    let members = if addresses.is_empty() {
        OneOrMany::default()
    } else {
        OneOrMany::one(LabelledAddresses {
            label: service.key.name.clone(),
            addresses: addresses.into(),
        })
    };
    Some(ExternalNode {
        node: ServiceNode {
            base,
            headless: false,
            preferred_count: u32::try_from(members.len()).unwrap_or(u32::MAX),
            members,
            ports: exposed_ports(&service.ports),
        },
        names: names.into(),
    })
}

/// The ports of the Service. A port without a name has SRV records only at the name of the Service.
fn exposed_ports(ports: &[ServicePort]) -> Arc<[PortRecords]> {
    let mut records = Vec::with_capacity(ports.len());
    for port in ports {
        let path = port_path(&port.protocol, &port.name);
        let unnamed = || [port_label(port.protocol.as_str()), SmolStr::default()];
        records.push(PortRecords {
            path: path.unwrap_or_else(unnamed),
            port: port.port,
            members: None,
        });
    }
    // `ServiceNode::ports_of` finds ports by binary search.
    records.sort_unstable();
    records.dedup();
    records.into()
}

fn load_balancer_name(service: &ObjectKey, text: &str) -> Option<Name> {
    let name = Name::parse(text).ok().filter(|name| name.label_count() > 0);
    if name.is_none() {
        tracing::warn!(%service, hostname = text, "hostname of a load balancer is not a domain name");
    }
    name
}

fn headless_node(key: &ObjectKey, node: &ServiceNode) -> Option<ExternalNode> {
    let base = name::parse_labels(&format!("{}.{}", key.name, key.namespace)).ok()?;
    // Only `base`, the parent name of the members, differs from the records in the cluster's zone.
    let node = ServiceNode {
        base: base.into(),
        ..node.clone()
    };

    Some(ExternalNode {
        node,
        names: OneOrMany::default(),
    })
}

impl ExternalNode {
    /// Visits every owner name, as labels below the Service's name.
    pub fn owner_names<'v>(&'v self, visit: &mut dyn FnMut(&[&'v str])) {
        self.node.owner_names(&mut |below| {
            // `self.node` also visits names that do not exist in the external zone: names of
            // members below the name of a port, the label of the member with the external
            // addresses, and names with the empty label of an unnamed port.
            let is_name = below.iter().all(|label| !label.is_empty());
            if is_name && self.visit(below, &mut 0, &mut |_| {}) {
                visit(below);
            }
        });
    }

    /// The addresses and ports.
    pub(crate) fn node_mut(&mut self) -> &mut ServiceNode {
        &mut self.node
    }

    /// Visits the records at `path`, which holds the labels below the Service's name. Returns
    /// whether there are records. For `steps` see [`skydns::EntryVisit::steps`].
    pub fn visit<'v>(
        &'v self,
        path: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let all = 0..self.node.members.len();
        let (ports, positions) = match path {
            [] => (&*self.node.ports, all),
            [label] if self.node.headless => (&*self.node.ports, self.node.positions_of(label)),
            [protocol, name] => (self.node.ports_of([protocol, name]), all),
            _ => return false,
        };
        let is_port = path.len() == 2;

        let mut found = false;
        for position in positions {
            let Some(member) = self.node.members.get(position) else {
                break;
            };
            let target = ExternalTarget {
                label: &member.label,
                record: ServiceRecord::for_addresses(&member.addresses, &self.node.base),
            };
            let ports = ports.iter().filter(|port| port.has_member(position));
            found |= target.visit_ports(ports, is_port, steps, visit);
            if found && *steps == 0 {
                return true;
            }
        }

        // A path of one label is the label of an endpoint, and load balancers have no labels.
        if path.len() != 1 {
            for name in &self.names {
                let target = ExternalTarget {
                    label: "",
                    record: ServiceRecord::new(Host::Name(Cow::Borrowed(name)), &[]),
                };
                found |= target.visit_ports(ports.iter(), is_port, steps, visit);
            }
        }
        found
    }

    /// See [`ServiceNode::has_descendants`].
    pub fn has_descendants(&self, path: &[&str]) -> bool {
        self.node.has_descendants(path)
    }
}

/// A member or a load balancer, with the label of its entries.
struct ExternalTarget<'v> {
    label: &'v str,
    record: ServiceRecord<'v>,
}

impl<'v> ExternalTarget<'v> {
    /// Visits one entry for each of `ports`. If `ports` is empty, visits one entry without a port,
    /// unless the visited name is the name of a port (`is_port`). Returns whether there are
    /// entries, even if no step is left to visit them.
    fn visit_ports<'p>(
        &self,
        ports: impl Iterator<Item = &'p PortRecords>,
        is_port: bool,
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let mut has_ports = false;
        for port in ports {
            if *steps == 0 {
                return true;
            }
            has_ports = true;
            let record = self.record.clone().with_port(port.port);
            visit_bounded(self.label, record, steps, visit);
        }
        if has_ports || is_port {
            return has_ports;
        }

        visit_bounded(self.label, self.record.clone(), steps, visit);
        true
    }
}

/// Visits an entry and takes one step. Does nothing if no step is left.
pub(crate) fn visit_bounded<'v>(
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

#[cfg(test)]
mod tests;
