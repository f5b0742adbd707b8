//! Everything that an explanation is made from, besides the names tried.

use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;

use crate::candidate::Candidate;
use crate::document::{NameKind, Service};
use crate::moment::Moment;
use crate::objects::{FoundObject, IndexReply};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence<'e> {
    /// The records.
    pub(crate) snapshot: &'e Snapshot,
    /// The objects, if the index has answered.
    pub(crate) reply: Option<&'e IndexReply>,
    /// Whether there are upstream servers, used or not.
    pub(crate) has_upstreams: bool,
    pub(crate) now: Moment,
}

impl<'e> Evidence<'e> {
    /// The answer of the index about a Service.
    pub(crate) fn object(self, key: &ObjectKey) -> Option<&'e FoundObject> {
        self.reply?.objects.iter().find(|found| found.object.key == *key)
    }

    /// The Service of a name, if it exists.
    pub(crate) fn service(self, candidate: &Candidate) -> Option<&'e Service> {
        self.object(candidate.kind.service()?)?.object.service.as_ref()
    }

    /// Whether there is a Service in the namespace, if that is known. Namespaces themselves are not watched.
    pub(crate) fn has_namespace(self, namespace: &str) -> Option<bool> {
        if self.snapshot.has_namespace(namespace) {
            return Some(true);
        }
        self.reply?.namespaces.get(namespace).copied()
    }

    /// Whether the Service of a member's name exists, and the member does not.
    pub(crate) fn lacks_member(self, candidate: &Candidate) -> bool {
        let found = candidate.kind.service().and_then(|key| self.object(key));
        matches!(candidate.kind, NameKind::Member { .. })
            && found.is_some_and(|found| found.object.service.is_some() && found.member.is_none())
    }

    /// Whether the namespace of `key` has a Service, or the Service `key` itself was deleted recently. Such a
    /// Service explains a missing name better than the servers that are asked instead.
    pub(crate) fn has_had_namespace(self, key: &ObjectKey) -> bool {
        let is_deleted = || self.object(key).is_some_and(|found| found.deleted.is_some());
        self.has_namespace(&key.namespace) == Some(true) || is_deleted()
    }
}
