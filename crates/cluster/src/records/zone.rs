//! The preferred zone: if it has enough addresses, answers contain no others.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Group;

/// Smallest number of addresses in the preferred zone with which answers leave out the addresses of other zones. With
/// fewer, a single failure has too much effect.
pub(super) const SAFE: usize = 3;

/// Whether answers may leave out all but `near` out of `all` addresses.
pub(super) fn is_safe(near: usize, all: usize) -> bool {
    near >= SAFE.min(all)
}

/// Whether answers may leave out the ready addresses outside `zone`, in each IP family with addresses.
pub(super) fn suffices(zone: &str, groups: &[Group<'_>]) -> bool {
    [IpAddr::is_ipv4, IpAddr::is_ipv6].iter().all(|is_of_family| {
        let (mut near, mut all) = (BTreeSet::new(), BTreeSet::new());
        let members = groups.iter().flat_map(|group| &group.members);
        for member in members.filter(|member| is_of_family(&member.ip)) {
            all.insert(member.ip);
            if member.ready && member.zones.iter().any(|other| other == zone) {
                near.insert(member.ip);
            }
        }
        is_safe(near.len(), all.len())
    })
}

#[cfg(test)]
mod tests;
