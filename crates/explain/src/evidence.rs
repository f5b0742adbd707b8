//! The data of an explanation: records, objects and the time.

use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;

use crate::candidate::Candidate;
use crate::document::{NameKind, Service};
use crate::moment::Moment;
use crate::objects::{FoundObject, FoundObjects};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence<'e> {
    pub(crate) snapshot: &'e Snapshot,
    /// The objects; `None` until the first lists are complete.
    pub(crate) found: Option<&'e FoundObjects>,
    /// Whether any upstream server is configured, even one that is not in use.
    pub(crate) has_upstreams: bool,
    pub(crate) now: Moment,
}

impl<'e> Evidence<'e> {
    /// The object of a Service.
    pub(crate) fn object(self, key: &ObjectKey) -> Option<&'e FoundObject> {
        self.found?
            .objects
            .iter()
            .find(|found| found.object.key == *key)
    }

    /// The Service that a name denotes, if the Service exists.
    pub(crate) fn service(self, candidate: &Candidate) -> Option<&'e Service> {
        self.object(candidate.kind.service()?)?
            .object
            .service
            .as_ref()
    }

    /// Whether the namespace has a Service; `None` if that is unknown. kubedns does not know of
    /// namespaces without Services.
    pub(crate) fn has_namespace(self, namespace: &str) -> Option<bool> {
        if self.snapshot.has_namespace(namespace) {
            return Some(true);
        }
        self.found?.namespaces.get(namespace).copied()
    }

    /// Whether the name denotes a missing member of an existing Service.
    pub(crate) fn lacks_member(self, candidate: &Candidate) -> bool {
        let found = candidate.kind.service().and_then(|key| self.object(key));
        matches!(candidate.kind, NameKind::Member { .. })
            && found.is_some_and(|found| found.object.service.is_some() && found.member.is_none())
    }

    /// Whether the namespace of `key` has a Service, or Service `key` was deleted recently. In both
    /// cases the name was probably meant as a name of this cluster.
    pub(crate) fn has_had_namespace(self, key: &ObjectKey) -> bool {
        let is_deleted = || {
            self.object(key)
                .is_some_and(|found| found.deleted.is_some())
        };
        self.has_namespace(&key.namespace) == Some(true) || is_deleted()
    }
}
