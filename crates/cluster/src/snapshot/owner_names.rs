//! The owner names of a snapshot, for zone transfers.

use std::net::IpAddr;
use std::sync::Arc;

use smol_str::SmolStr;
use treecache::TreeCache;
use wire::rfc1123::is_label;

use super::{PodNames, Snapshot, label};
use crate::records::{ServiceNode, dashed_label};

impl Snapshot {
    /// Visits the owner names, except federated names, the names of `--zonal-names`, and unverified
    /// pod names. A name may be left out if its records in `other` are the same.
    pub(super) fn visit_owner_names(&self, other: Option<&Self>, visit: &mut dyn FnMut(&[&str])) {
        // If federated names hide names of Services, the snapshots may answer a name differently
        // although their entries for the name are equal. Then no name is skipped.
        let other = other.filter(|other| !self.hides_services() && !other.hides_services());
        visit(&["dns-version"]);

        let services = other.map(|other| &other.services);
        each_entry(&self.services, services, &mut |namespace, name, service| {
            visit_service_names([namespace, name], service, &mut |path| {
                // Federated names are not listed.
                if !self.is_federated(path) {
                    visit(path);
                }
            });
        });
        let aliases = other.map(|other| &other.aliases);
        each_entry(&self.aliases, aliases, &mut |namespace, name, _| {
            visit(&["svc", namespace, name]);
        });
        self.visit_pod_names(other, visit);
    }

    /// Visits the names of pods. Names that `other` answers in the same way may be left out.
    fn visit_pod_names(&self, other: Option<&Self>, visit: &mut dyn FnMut(&[&str])) {
        let PodNames::Verified(pods) = &self.pods else {
            return;
        };

        // The name of a pod exists only while its namespace is served. So no name is skipped if the
        // snapshots serve different namespaces.
        let comparable = other.filter(|other| self.serves_like(other));
        let Some(PodNames::Verified(others)) = comparable.map(|other| &other.pods) else {
            for (address, namespaces) in pods {
                visit_names_of_pods(*address, namespaces, visit);
            }
            return;
        };
        let is_same = |ours: &Arc<[SmolStr]>, theirs: &Arc<[SmolStr]>| ours == theirs;
        pods.differences(others, is_same, &mut |address, ours, _| {
            if let Some(namespaces) = ours {
                visit_names_of_pods(*address, namespaces, visit);
            }
        });
    }

    /// Whether a path is answered as a federated name, see [`Self::find_federated`].
    fn is_federated(&self, path: &[&str]) -> bool {
        let &["svc", federation, namespace, name] = path else {
            return false;
        };
        let Some(known) = &self.federation else {
            return false;
        };

        known.domains.contains_key(federation)
            && label::is_service_name(name)
            && is_label(namespace)
    }

    /// Whether a federation has the same name as a namespace with Services. Federated names then
    /// hide names in this namespace. The answer to a federated name depends on the Nodes, and on a
    /// Service that may be in another namespace.
    fn hides_services(&self) -> bool {
        let Some(federation) = &self.federation else {
            return false;
        };

        let mut names = federation.domains.keys();
        names.any(|name| self.has_namespace(name))
    }

    /// Whether both snapshots serve the same namespaces.
    fn serves_like(&self, other: &Self) -> bool {
        match (&self.served, &other.served) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => {
                let mut is_same = true;
                ours.differences(theirs, |(), ()| true, &mut |_, _, _| is_same = false);
                is_same
            }
            _ => false,
        }
    }
}

/// Visits each entry of `tree`, with its namespace and name. If `other` is given, skips entries
/// that are equal in `other`.
pub(crate) fn each_entry<V: Clone + PartialEq>(
    tree: &TreeCache<V>,
    other: Option<&TreeCache<V>>,
    visit: &mut dyn FnMut(&str, &str, &V),
) {
    let Some(other) = other else {
        for (namespace, node) in tree.root().children() {
            for (name, value) in node.entries() {
                visit(namespace, name, value);
            }
        }
        return;
    };

    let is_same = |ours: &V, theirs: &V| ours == theirs;
    tree.differences(other, &is_same, &mut |path, name| {
        if let ([namespace], Some(value)) = (path, tree.entry(path, name)) {
            visit(namespace, name, value);
        }
    });
}

/// Visits the owner names of a Service.
fn visit_service_names(
    [namespace, name]: [&str; 2],
    service: &ServiceNode,
    visit: &mut dyn FnMut(&[&str]),
) {
    service.owner_names(&mut |below| match *below {
        [] => visit(&["svc", namespace, name]),
        [label] => visit(&["svc", namespace, name, label]),
        [protocol, port] => visit(&["svc", namespace, name, protocol, port]),
        [protocol, port, label] => visit(&["svc", namespace, name, protocol, port, label]),
        _ => {}
    });
}

/// Visits the names of the pods that have `address`, one name in each of `namespaces`.
fn visit_names_of_pods(address: IpAddr, namespaces: &[SmolStr], visit: &mut dyn FnMut(&[&str])) {
    let label = dashed_label(address);
    for namespace in namespaces {
        visit(&["pod", namespace, &label]);
    }
}
