//! Whether all sources of a zone's records are loaded. Otherwise the zone gets no new version,
//! because secondaries would delete the missing records.

use super::{holds_name, transferable_authority};
use crate::answer::NAME_SERVER;
use crate::backend::zones::Authority;
use crate::backend::{EntryVisit, View};
use crate::engine::MAX_STEPS;
use crate::own_names::OwnTarget;
use wire::Name;

/// Whether the records of zone `domain` are complete. All of these conditions are necessary:
/// - The zone can be transferred.
/// - The configuration is known. Its hosts and aliases may be in the zone.
/// - The first lists from the source of the zone (the API server or etcd) are complete.
/// - At least one of these is true: the first lists from the API server are complete
///   (`has_listed`, always true without a cluster); the zone has an address of its own for
///   its name server.
/// - The condition of [`are_alias_targets_listed`] is true.
pub(super) fn is_complete<V: View>(view: &V, domain: &Name) -> bool {
    let Some(authority) = transferable_authority(view, domain) else {
        return false;
    };

    view.zone().is_configured
        && authority.records.has_listed()
        && (view.has_listed() || has_own_name_server_address(view, authority))
        && are_alias_targets_listed(view, domain)
}

/// Whether the zone has an address of its own for its name server. Without one, the name server may
/// have the addresses of the DNS Service.
fn has_own_name_server_address<V: View>(view: &V, authority: Authority<'_>) -> bool {
    let name = [NAME_SERVER, authority.domain.wire()].concat();
    if let Some(target) = view.zone().own(&name) {
        return matches!(target, OwnTarget::Addresses(_));
    }
    if !holds_name(view, authority.domain, &name) {
        return false;
    }

    let mut has_address = false;
    authority.records.visit_entries(EntryVisit {
        path: &["dns", "ns"],
        exact: false,
        steps: &mut { MAX_STEPS },
        on_entry: &mut |entry| has_address |= entry.record.addresses().next().is_some(),
    });
    has_address
}

/// Checks the aliases of the configuration whose names are in zone `domain`. Returns whether each
/// of their targets is outside our zones, or in a zone whose records come from a complete list. An
/// alias in a loop has no target, so the zone does not wait for one.
fn are_alias_targets_listed<V: View>(view: &V, domain: &Name) -> bool {
    let Some(own_names) = view.zone().own_names.as_deref() else {
        return true;
    };

    for (name, _) in own_names.iter() {
        if let Some(OwnTarget::Name(target)) = own_names.find(name)
            && let Some(holder) = Authority::of(view, target.wire())
            && !holder.records.has_listed()
            && holds_name(view, domain, name)
        {
            return false;
        }
    }
    true
}
