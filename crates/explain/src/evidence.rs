//! Everything that an explanation is made from, besides the names tried.

use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;

use crate::candidate::Candidate;
use crate::document::{NameKind, Service, ServiceKind};
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

/// The part that exists of the Service that a name is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exists {
    /// All that the name is about, although the name does not exist: the Service, and the member too if it is one's.
    Whole,
    /// A headless Service without the member.
    Headless,
    /// A Service that has no members, and the name is a member's.
    Memberless,
    /// The namespace.
    Namespace,
    Nothing,
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
        match self.snapshot.tree.node(&["svc", namespace]) {
            Some(_) => Some(true),
            None => self.reply?.namespaces.get(namespace).copied(),
        }
    }

    pub(crate) fn exists(self, candidate: &Candidate) -> Exists {
        let Some(key) = candidate.kind.service() else { return Exists::Nothing };
        let found = self.object(key);
        let has_member = found.is_some_and(|found| found.member.is_some());
        match (self.service(candidate), &candidate.kind) {
            (Some(service), NameKind::Member { .. }) if !has_member => match service.kind {
                ServiceKind::Headless | ServiceKind::WithoutIp => Exists::Headless,
                ServiceKind::ClusterIp | ServiceKind::ExternalName => Exists::Memberless,
            },
            (Some(_), _) => Exists::Whole,
            (None, _) if self.has_namespace(&key.namespace) == Some(true) => Exists::Namespace,
            // The last one of its namespace is remembered, and tells more than who is asked instead.
            (None, _) if found.is_some_and(|found| found.deleted.is_some()) => Exists::Namespace,
            (None, _) => Exists::Nothing,
        }
    }
}
