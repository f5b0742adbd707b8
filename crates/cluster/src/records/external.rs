//! The records of one Service in the external zone. The external addresses are at `name.namespace`,
//! and SRV records are at that name and at the names of the ports. There are no wildcards.

use std::borrow::Cow;
use std::net::IpAddr;

use skydns::{Entry, Host, ServiceRecord};
use smol_str::SmolStr;
use wire::{Name, name};

use super::{ExternalRecords, Labelled, PortRecords, ServiceNode, label_of, port_path};
use crate::objects::{ExternalAddress, ObjectKey, Service, ServiceKind};
use crate::one_or_many::OneOrMany;

/// The records of a Service in the external zone, at the Service's name and at the names below.
/// There is at least one address or host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalNode {
    /// The members are the external addresses of the Service, labelled with the Service's name. For
    /// a headless Service without external addresses, the members are the endpoints.
    node: ServiceNode,
    /// The host names of load balancers.
    names: OneOrMany<Name>,
}

impl ExternalRecords {
    /// Builds the records of `service`. `node` holds the Service's records in the cluster's zone.
    pub(super) fn node(
        self,
        service: &Service,
        node: Option<&ServiceNode>,
    ) -> Option<ExternalNode> {
        if self == Self::Off {
            return None;
        }
        if !service.external.is_empty() {
            return exposed(service);
        }
        let has_members = self == Self::AndHeadless && service.kind == ServiceKind::Headless;
        node.filter(|_| has_members)
            .and_then(|node| headless(&service.key, node))
    }
}

fn exposed(service: &Service) -> Option<ExternalNode> {
    let base = name::parse_labels(&service.key.namespace).ok()?.into();
    let (mut addresses, mut names): (Vec<IpAddr>, Vec<Name>) = (Vec::new(), Vec::new());
    for external in &*service.external {
        match external {
            ExternalAddress::Ip(ip) => addresses.push(*ip),
            ExternalAddress::Name(text) => names.extend(load_balancer(&service.key, text)),
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    let label = service.key.name.clone();
    let members: OneOrMany<Labelled> = Some(addresses)
        .filter(|all| !all.is_empty())
        .map(|all| Labelled {
            label,
            addresses: all.into(),
        })
        .into_iter()
        .collect();
    if members.is_empty() && names.is_empty() {
        return None;
    }
    let near = u32::try_from(members.len()).unwrap_or(u32::MAX);
    let node = ServiceNode {
        base,
        headless: false,
        near,
        members,
        ports: ports(service),
    };
    Some(ExternalNode {
        node,
        names: names.into(),
    })
}

/// The ports of the Service. A port without a name has SRV records only at the name of the Service.
fn ports(service: &Service) -> std::sync::Arc<[PortRecords]> {
    let path = |port: &crate::objects::ServicePort| {
        port_path(&port.protocol, &port.name)
            .unwrap_or_else(|| [label_of(port.protocol.as_str()), SmolStr::default()])
    };
    let mut ports: Vec<_> = service
        .ports
        .iter()
        .map(|port| PortRecords {
            path: path(port),
            port: port.port,
            members: None,
        })
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports.into()
}

fn load_balancer(service: &ObjectKey, text: &str) -> Option<Name> {
    let name = Name::parse(text).ok().filter(|name| name.label_count() > 0);
    if name.is_none() {
        tracing::warn!(%service, hostname = text, "hostname of a load balancer is not a domain name");
    }
    name
}

fn headless(key: &ObjectKey, node: &ServiceNode) -> Option<ExternalNode> {
    let base = name::parse_labels(&format!("{}.{}", key.name, key.namespace))
        .ok()?
        .into();
    Some(ExternalNode {
        node: ServiceNode {
            base,
            ..node.clone()
        },
        names: OneOrMany::default(),
    })
}

impl ExternalNode {
    /// Visits every owner name, as labels below the Service's name, see
    /// [`ServiceNode::owner_names`].
    pub fn owner_names<'v>(&'v self, visit: &mut dyn FnMut(&[&'v str])) {
        self.node.owner_names(visit);
    }

    /// The addresses and ports.
    pub(crate) fn node_mut(&mut self) -> &mut ServiceNode {
        &mut self.node
    }

    /// Visits the records at `path`, which holds the labels below the Service's name. Returns
    /// whether there are records. For `steps` see [`skydns::Records::visit_entries`].
    pub fn visit<'v>(
        &'v self,
        path: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let (ports, positions) = match path {
            [] => (&*self.node.ports, 0..self.node.members.len()),
            [label] if self.node.headless => (&*self.node.ports, self.node.positions_of(label)),
            [protocol, name] => (
                self.node.ports_of([protocol, name]),
                0..self.node.members.len(),
            ),
            _ => return false,
        };
        let (is_port, mut found) = (path.len() == 2, false);
        let names = if path.len() == 1 {
            &[][..]
        } else {
            &self.names
        };
        let members = positions
            .clone()
            .zip(self.node.members.get(positions).unwrap_or_default());
        let targets = members
            .map(|(position, member)| (Some(position), &*member.label, self.to_member(member)))
            .chain(names.iter().map(|name| {
                (
                    None,
                    "",
                    ServiceRecord::new(Host::Name(Cow::Borrowed(name)), &[]),
                )
            }));
        for (position, label, record) in targets {
            let mut ports = ports
                .iter()
                .filter(|port| position.is_none_or(|position| port.is_of(position)))
                .peekable();
            // A Service without ports only has addresses.
            let bare = !is_port && ports.peek().is_none();
            let with_ports = ports.map(|port| record.clone().with_port(port.port));
            for record in with_ports.chain(bare.then(|| record.clone())) {
                found = true;
                if *steps == 0 {
                    return true;
                }
                *steps -= 1;
                visit(Entry {
                    label,
                    record,
                    synthesized: false,
                });
            }
        }
        found
    }

    fn to_member<'v>(&'v self, member: &'v Labelled) -> ServiceRecord<'v> {
        ServiceRecord::for_addresses(&member.addresses, &self.node.base)
    }

    /// Whether there are names at `path` or below it (RFC 8020).
    pub fn has_descendants(&self, path: &[&str]) -> bool {
        self.node.has_descendants(path)
    }
}

#[cfg(test)]
mod tests;
