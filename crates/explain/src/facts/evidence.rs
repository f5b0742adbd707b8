//! The records, objects and settings from which the module `reasoning` concludes why a name
//! resolves or does not.

use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;

use super::candidate::NameCandidate;
use super::dnsmasq_path::DnsFront;
use super::objects::{FoundObjects, FoundService};
use crate::document::{NameKind, ShownService};
use crate::moment::Moment;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence<'e> {
    pub(crate) snapshot: &'e Snapshot,
    /// The server that pods query.
    pub(crate) front: &'e DnsFront,
    /// The objects; `None` until the first lists are complete or a snapshot file is restored.
    pub(crate) found: Option<&'e FoundObjects>,
    /// Whether kubedns has upstream servers for external names. Servers that kubedns does not query
    /// now, such as those of a forwarding loop, count, too.
    pub(crate) has_upstreams: bool,
    pub(crate) now: Moment,
}

impl<'e> Evidence<'e> {
    /// The look-up's result for a Service; `None` if the Service was not looked up.
    pub(crate) fn found_service(self, key: &ObjectKey) -> Option<&'e FoundService> {
        self.found?
            .services
            .iter()
            .find(|found| found.object.key == *key)
    }

    /// The look-up's result for the Service that a name denotes.
    pub(crate) fn denoted_service(self, candidate: &NameCandidate) -> Option<&'e FoundService> {
        self.found_service(candidate.kind.service()?)
    }

    /// The Service that a name denotes, if the Service exists.
    pub(crate) fn existing_service(self, candidate: &NameCandidate) -> Option<&'e ShownService> {
        self.denoted_service(candidate)?.object.service.as_ref()
    }

    /// Whether the namespace has a Service; `None` if that is unknown. To kubedns, a namespace
    /// without Services looks like a missing namespace.
    pub(crate) fn has_namespace(self, namespace: &str) -> Option<bool> {
        if self.snapshot.has_namespace(namespace) {
            return Some(true);
        }
        self.found?.namespaces.get(namespace).copied()
    }

    /// Whether the name is a [`NameKind::Member`] of an existing Service, but no address of the
    /// Service has the label in the name.
    pub(crate) fn lacks_member(self, candidate: &NameCandidate) -> bool {
        let NameKind::Member { .. } = candidate.kind else {
            return false;
        };
        self.denoted_service(candidate)
            .is_some_and(|found| found.object.service.is_some() && found.member.is_none())
    }

    /// Whether the namespace of `key` has a Service, or Service `key` was deleted recently. If so,
    /// a query for the name of the Service was probably meant for this cluster.
    pub(crate) fn has_had_namespace(self, key: &ObjectKey) -> bool {
        if self.has_namespace(&key.namespace) == Some(true) {
            return true;
        }
        self.found_service(key)
            .is_some_and(|found| found.deleted.is_some())
    }
}
