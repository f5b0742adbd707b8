//! The preferred zone. If the zone has enough addresses, answers contain only these addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Group;

/// Number of addresses that the preferred zone must have before answers leave out the other zones.
/// With fewer addresses, a single failure has too much effect.
pub(super) const SAFE: usize = 3;

/// Whether `near` of `all` addresses are enough for an answer: at least [`SAFE`], or all.
pub(super) fn is_safe(near: usize, all: usize) -> bool {
    near >= SAFE.min(all)
}

/// Whether answers may leave out the addresses outside `zone`. In each IP family, the ready
/// addresses of the zone must be enough.
pub(super) fn suffices(zone: &str, groups: &[Group<'_>]) -> bool {
    [IpAddr::is_ipv4, IpAddr::is_ipv6]
        .iter()
        .all(|is_of_family| {
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
