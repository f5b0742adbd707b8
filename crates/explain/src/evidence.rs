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
    /// Upstream servers are known, whether or not they are asked.
    pub(crate) has_upstreams: bool,
    pub(crate) now: Moment,
}

impl<'e> Evidence<'e> {
    /// The answer of the index about a Service.
    pub(crate) fn object(self, key: &ObjectKey) -> Option<&'e FoundObject> {
        self.reply?.objects.iter().find(|found| found.object.key == *key)
    }

    /// The Service that a name is about, if there is one.
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

    /// Whether a name is one of a Service that is there, and of a member that is not.
    pub(crate) fn lacks_member(self, candidate: &Candidate) -> bool {
        let found = candidate.kind.service().and_then(|key| self.object(key));
        matches!(candidate.kind, NameKind::Member { .. })
            && found.is_some_and(|found| found.object.service.is_some() && found.member.is_none())
    }

    /// Whether the namespace of a name has a Service, or had one until lately: the last one of its namespace is
    /// remembered, and tells more than who is asked instead.
    pub(crate) fn has_had_namespace(self, key: &ObjectKey) -> bool {
        let is_deleted = || self.object(key).is_some_and(|found| found.deleted.is_some());
        self.has_namespace(&key.namespace) == Some(true) || is_deleted()
    }
}
