//! The records at a Service's name and below: addresses under their labels, and the SRV records of
//! its ports.
//!
//! Records are built while a query visits them. Only data that differ between Services are stored:
//! many Services have equal port lists, and most Services have a single address.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use skydns::{Entry, Host, ServiceRecord};
use smol_str::SmolStr;
use treecache::ANY;

use super::zone;
use crate::one_or_many::OneOrMany;

/// The records at the name of a Service and at the names below. There is at least one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceNode {
    /// See [`ServiceRecord::base`].
    pub base: Arc<[u8]>,
    /// Whether the targets of SRV records are the names of the members, instead of the Service's
    /// own name.
    pub headless: bool,
    /// The number of members, from the first, that are answered at the Service's own name. Other
    /// members are only answered at their own names.
    pub near: u32,
    /// Members with unique labels. The `near` members come first; both parts are sorted by label.
    pub members: OneOrMany<Labelled>,
    /// The ports, sorted and unique.
    pub ports: Arc<[PortRecords]>,
}

/// Addresses under one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labelled {
    /// The hostname, or a label generated from the address.
    pub label: SmolStr,
    /// The addresses.
    pub addresses: OneOrMany<IpAddr>,
}

/// The SRV records of a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRecords {
    /// The labels of protocol and name, such as `_tcp` and `_http`.
    pub path: [SmolStr; 2],
    /// The port.
    pub port: u16,
    /// The positions of the members with this port, in ascending order; `None` for all members.
    pub members: Option<Box<[u32]>>,
}

impl PortRecords {
    fn compare(&self, [protocol, name]: [&str; 2]) -> Ordering {
        let [own_protocol, own_name] = &self.path;
        own_protocol
            .as_str()
            .cmp(protocol)
            .then_with(|| own_name.as_str().cmp(name))
    }

    pub(super) fn is_of(&self, position: usize) -> bool {
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        self.members
            .as_ref()
            .is_none_or(|members| members.binary_search(&position).is_ok())
    }
}

impl ServiceNode {
    /// Visits the records at `path`, which holds the labels below the Service's name. Returns
    /// whether there are records.
    ///
    /// A wildcard in place of a member's label matches every member. With `exact` there are no
    /// wildcards, and the last label must be the label of a member. For `steps` see
    /// [`skydns::Records::visit_entries`].
    pub fn visit<'v>(
        &'v self,
        path: &[&str],
        exact: bool,
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let (port, label) = match path {
            [] if !exact => (None, None),
            [label] => (None, Some(*label)),
            [protocol, name] if !exact => (Some([*protocol, *name]), None),
            [protocol, name, label] => (Some([*protocol, *name]), Some(*label)),
            _ => return false,
        };
        let positions = |port| match label {
            None => self.positions_near(port),
            Some(ANY) if !exact => 0..self.members.len(),
            Some(label) => self.positions_of(label),
        };
        let Some(port) = port else {
            return self.visit_entries(positions(None), None, steps, visit);
        };
        let mut found = false;
        for port in self.ports_of(port) {
            found |= self.visit_entries(positions(Some(port)), Some(port), steps, visit);
        }
        found
    }

    /// The positions of the members that are answered at the Service's name or at a port's name.
    /// These are the `near` members, or all members if too few `near` members have the port.
    fn positions_near(&self, port: Option<&PortRecords>) -> Range<usize> {
        let some = port
            .and_then(|port| port.members.as_deref())
            .unwrap_or_default();
        let with_port = some.partition_point(|position| *position < self.near);
        let all = !some.is_empty() && !zone::is_safe(with_port, some.len());
        if all {
            0..self.members.len()
        } else {
            0..self.near as usize
        }
    }

    /// Visits one entry for each member at `positions`: the SRV entry of `port`, if the member has
    /// the port, or the addresses if `port` is `None`. Returns whether there are entries, even if
    /// no step is left.
    fn visit_entries<'v>(
        &'v self,
        positions: Range<usize>,
        port: Option<&'v PortRecords>,
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let mut found = false;
        for position in positions.filter(|position| port.is_none_or(|port| port.is_of(*position))) {
            found = true;
            let Some(member) = self.members.get(position).filter(|_| *steps > 0) else {
                break;
            };
            *steps -= 1;
            visit(Entry {
                label: &member.label,
                record: self.record(member, port),
                synthesized: false,
            });
        }
        found
    }

    fn record<'v>(&'v self, member: &'v Labelled, port: Option<&PortRecords>) -> ServiceRecord<'v> {
        let target = if self.headless {
            Host::Member
        } else {
            Host::Base
        };
        match port {
            Some(port) => ServiceRecord::new(target, &self.base).with_port(port.port),
            None => ServiceRecord::for_addresses(&member.addresses, &self.base),
        }
    }

    /// The position of the member with that label, as a range. The range is empty if there is no
    /// such member.
    pub(super) fn positions_of(&self, label: &str) -> Range<usize> {
        let (near, others) = self
            .members
            .split_at(self.members.len().min(self.near as usize));
        let find = |members: &[Labelled]| {
            members.binary_search_by(|member| member.label.as_str().cmp(label))
        };
        let found = find(near).or_else(|_| find(others).map(|position| near.len() + position));
        found.map_or(0..0, |position| position..position + 1)
    }

    pub(super) fn ports_of(&self, path: [&str; 2]) -> &[PortRecords] {
        let cut =
            |at: fn(Ordering) -> bool| self.ports.partition_point(|port| at(port.compare(path)));
        self.ports
            .get(cut(Ordering::is_lt)..cut(Ordering::is_le))
            .unwrap_or_default()
    }

    /// Whether there are names at `path` or below it (RFC 8020), without wildcards.
    pub fn has_descendants(&self, path: &[&str]) -> bool {
        match path {
            [] => true,
            [protocol] => self.ports.iter().any(|port| port.path[0] == *protocol),
            [protocol, name] => !self.ports_of([protocol, name]).is_empty(),
            _ => false,
        }
    }

    /// Visits every owner name, as labels below the Service's name. The first owner name is the
    /// Service's name itself.
    pub fn owner_names<'v>(&'v self, visit: &mut dyn FnMut(&[&'v str])) {
        visit(&[]);
        self.members
            .iter()
            .for_each(|member| visit(&[&member.label]));
        let mut last = None;
        for port in self.ports.iter() {
            let [protocol, name] = &port.path;
            // Ports with the same name and different numbers are adjacent.
            if last.replace(&port.path) != Some(&port.path) {
                visit(&[protocol, name]);
            }
            let of_port = |(position, _): &(usize, &Labelled)| self.is_first_with(port, *position);
            for (_, member) in self.members.iter().enumerate().filter(of_port) {
                visit(&[protocol, name, &member.label]);
            }
        }
    }

    /// Whether `port` is the member's first port with the labels of `port`.
    fn is_first_with(&self, port: &PortRecords, position: usize) -> bool {
        let [protocol, name] = &port.path;
        let first = self
            .ports_of([protocol, name])
            .iter()
            .find(|port| port.is_of(position));
        first.is_some_and(|first| std::ptr::eq(first, port))
    }

    /// The number of entries.
    pub fn entry_count(&self) -> usize {
        let of_port = |port: &PortRecords| {
            port.members
                .as_ref()
                .map_or(self.members.len(), |some| some.len())
        };
        self.members.len() + self.ports.iter().map(of_port).sum::<usize>()
    }

    /// Visits one entry for each member: the SRV entry of `port`, if the member has the port, or
    /// the addresses if `port` is `None`.
    pub fn visit_members<'v>(
        &'v self,
        port: Option<&'v PortRecords>,
        visit: &mut dyn FnMut(Entry<'v>),
    ) {
        let mut steps = usize::MAX;
        self.visit_entries(0..self.members.len(), port, &mut steps, visit);
    }
}

#[cfg(test)]
mod tests;
