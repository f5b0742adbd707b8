//! The records at a Service's name and at the names below it: addresses under their labels, and the
//! SRV records of the Service's ports.
//!
//! Records are built while a query visits them, so little is stored for each Service: its
//! addresses, and a list of ports. Services with equal ports share one list.
//!
//! With `--prefer-zone`, the answers for the name of a headless Service and for the names of its
//! ports may leave out addresses that are not preferred.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use skydns::{Entry, Host, ServiceRecord};
use smol_str::SmolStr;
use treecache::ANY;

use super::{EndpointGroup, PreferredZone};
use crate::one_or_many::OneOrMany;

/// Number of addresses that must serve the preferred zone before answers leave out other addresses.
/// If fewer addresses serve the zone, the failure of one of them affects at least half of the
/// clients in the zone.
const SAFE_COUNT: usize = 3;

/// The records at the name of a Service and at the names below it. There is at least one member.
/// The exception is a node in the external zone (`--external-zone`): if the load balancers of a
/// Service have only host names, its node has no members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceNode {
    /// See [`ServiceRecord::base`].
    pub base: Arc<[u8]>,
    /// Whether the targets of SRV records are the names of the members, instead of the Service's
    /// own name.
    pub headless: bool,
    /// The number of preferred members. Without `--prefer-zone`, all members are preferred. The
    /// answer for the Service's own name contains only the preferred members.
    pub preferred_count: u32,
    /// Members with unique labels. The preferred members come first, followed by the others. Both
    /// parts are sorted by label.
    pub members: OneOrMany<LabelledAddresses>,
    /// The ports, sorted and unique.
    pub ports: Arc<[PortRecords]>,
}

/// Addresses under one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelledAddresses {
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

    /// Whether the member at `position` has this port.
    pub(super) fn has_member(&self, position: usize) -> bool {
        let Some(members) = &self.members else {
            return true;
        };
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        members.binary_search(&position).is_ok()
    }
}

impl ServiceNode {
    /// Visits the records at `path`, which holds the labels below the Service's name. Returns
    /// whether there are records.
    ///
    /// A wildcard in place of a member's label matches every member. With `exact` there are no
    /// wildcards, and the last label must be the label of a member. For `steps` see
    /// [`skydns::EntryVisit::steps`].
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

        let Some(port) = port else {
            let positions = self.matching_positions(label, exact, None);
            return self.visit_entries(positions, None, steps, visit);
        };
        let mut found = false;
        for port in self.ports_of(port) {
            let positions = self.matching_positions(label, exact, Some(port));
            found |= self.visit_entries(positions, Some(port), steps, visit);
        }
        found
    }

    /// The positions of the members that `label` matches; without a label, see
    /// [`Self::preferred_positions`].
    fn matching_positions(
        &self,
        label: Option<&str>,
        exact: bool,
        port: Option<&PortRecords>,
    ) -> Range<usize> {
        match label {
            None => self.preferred_positions(port),
            Some(ANY) if !exact => 0..self.members.len(),
            Some(label) => self.positions_of(label),
        }
    }

    /// The positions to visit at the Service's name or at a port's name: those of the preferred
    /// members, or of all members if too few preferred members have the port. The positions may
    /// include members without the port, which [`Self::visit_entries`] skips.
    fn preferred_positions(&self, port: Option<&PortRecords>) -> Range<usize> {
        let members = port.and_then(|port| port.members.as_deref());
        let members = members.unwrap_or_default();
        let preferred = members.partition_point(|position| *position < self.preferred_count);

        if !members.is_empty() && !is_safe_count(preferred, members.len()) {
            0..self.members.len()
        } else {
            0..self.preferred_count as usize
        }
    }

    /// Visits the entries of the members at `positions`. If `port` is `None`, each member has one
    /// entry with its addresses. Otherwise each member with this port has one SRV entry. Returns
    /// whether there are entries, even if no step is left to visit them.
    fn visit_entries<'v>(
        &'v self,
        positions: Range<usize>,
        port: Option<&'v PortRecords>,
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let mut found = false;
        for position in
            positions.filter(|position| port.is_none_or(|port| port.has_member(*position)))
        {
            // `found` is set before the limit applies, because a name exists even if no step is
            // left.
            found = true;
            let Some(member) = self.members.get(position).filter(|_| *steps > 0) else {
                break;
            };

            *steps -= 1;
            visit(Entry {
                label: &member.label,
                record: self.member_record(member, port),
                synthesized: false,
            });
        }
        found
    }

    fn member_record<'v>(
        &'v self,
        member: &'v LabelledAddresses,
        port: Option<&PortRecords>,
    ) -> ServiceRecord<'v> {
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

    /// The position of the member with this label, as a range. The range is empty if there is no
    /// such member.
    pub(super) fn positions_of(&self, label: &str) -> Range<usize> {
        // The preferred members and the others are each sorted by label.
        let preferred_count = self.members.len().min(self.preferred_count as usize);
        let (preferred, others) = self.members.split_at(preferred_count);
        if let Ok(position) = find_label(preferred, label) {
            return position..position + 1;
        }

        match find_label(others, label) {
            Ok(position) => {
                let position = preferred_count + position;
                position..position + 1
            }
            Err(_) => 0..0,
        }
    }

    pub(super) fn ports_of(&self, path: [&str; 2]) -> &[PortRecords] {
        let ports = &*self.ports;
        let begin = ports.partition_point(|port| port.compare(path).is_lt());
        let end = ports.partition_point(|port| port.compare(path).is_le());

        ports.get(begin..end).unwrap_or_default()
    }

    /// Whether `path` is the Service's name, or the name of a protocol or a port. Such a name
    /// exists even without records (RFC 8020). Wildcards match nothing here.
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
        for member in &self.members {
            visit(&[&member.label]);
        }

        let mut last = None;
        for port in self.ports.iter() {
            let [protocol, name] = &port.path;
            // Ports with the same `path` and different numbers are adjacent.
            if last.replace(&port.path) != Some(&port.path) {
                visit(&[protocol, name]);
            }
            for (position, member) in self.members.iter().enumerate() {
                if self.is_first_with(port, position) {
                    visit(&[protocol, name, &member.label]);
                }
            }
        }
    }

    /// Whether the member at `position` has `port`, and has no earlier port with the same `path`.
    fn is_first_with(&self, port: &PortRecords, position: usize) -> bool {
        let [protocol, name] = &port.path;
        let mut ports = self.ports_of([protocol, name]).iter();
        let first = ports.find(|port| port.has_member(position));

        first.is_some_and(|first| std::ptr::eq(first, port))
    }

    /// The number of entries.
    pub fn entry_count(&self) -> usize {
        let mut count = self.members.len();
        for port in self.ports.iter() {
            count += match &port.members {
                Some(members) => members.len(),
                None => self.members.len(),
            };
        }
        count
    }

    /// Visits the entries of all members. If `port` is `None`, each member has one entry with its
    /// addresses. Otherwise each member with this port has one SRV entry.
    pub fn visit_members<'v>(
        &'v self,
        port: Option<&'v PortRecords>,
        visit: &mut dyn FnMut(Entry<'v>),
    ) {
        let mut steps = usize::MAX;
        self.visit_entries(0..self.members.len(), port, &mut steps, visit);
    }
}

fn find_label(members: &[LabelledAddresses], label: &str) -> Result<usize, usize> {
    members.binary_search_by(|member| member.label.as_str().cmp(label))
}

/// Whether `preferred` of `all` addresses or members are enough for an answer: at least
/// [`SAFE_COUNT`], or all.
fn is_safe_count(preferred: usize, all: usize) -> bool {
    preferred >= SAFE_COUNT.min(all)
}

/// Whether answers may leave out the addresses without a hint for `node` (KEP-3015). In each IP
/// family that has addresses, at least one ready address must have the hint.
pub(super) fn has_hint_for_node(node: &str, groups: &[EndpointGroup<'_>]) -> bool {
    let mut has_hint = [false; 2];
    let mut has_address = [false; 2];
    for member in groups.iter().flat_map(|group| &group.members) {
        let family = usize::from(member.ip.is_ipv6());
        has_address[family] = true;
        has_hint[family] |= member.ready && member.serves_node(node);
    }
    has_hint == has_address && has_hint.contains(&true)
}

/// Whether answers may leave out the addresses that do not serve `zone`. In each IP family, enough
/// ready addresses must serve the zone, see [`is_safe_count`].
pub(super) fn has_enough_in_zone(zone: &PreferredZone, groups: &[EndpointGroup<'_>]) -> bool {
    for is_of_family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
        // These are sets, because an address may be in several groups.
        let mut preferred = BTreeSet::new();
        let mut all = BTreeSet::new();
        for member in groups.iter().flat_map(|group| &group.members) {
            if !is_of_family(&member.ip) {
                continue;
            }
            all.insert(member.ip);
            if member.ready && member.serves_zone(zone) {
                preferred.insert(member.ip);
            }
        }

        if !is_safe_count(preferred.len(), all.len()) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod preferred_zone_tests;
#[cfg(test)]
mod tests;
