//! The published objects, for readers outside the index task, such as the code that explains
//! answers.
//!
//! Once the index has synced, each [`Index::publish`](super::Index::publish) makes the changes of
//! Services, Endpoints and slices visible to readers, even if no record has changed. A reader may
//! keep a copy for as long as it likes. The index task does not wait for readers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;

use super::objects::StoredObjects;
use crate::objects::{EndpointsSource, ObjectKey, Service};
use crate::records::ServiceEndpoints;

/// Deleted Services and the time of deletion; the latest is last.
pub(super) type Deletions = Arc<VecDeque<(ObjectKey, SystemTime)>>;

/// The objects at one point in time. `clone` only increments reference counts.
#[derive(Debug, Clone)]
pub struct ObjectsView {
    pub(super) objects: StoredObjects,
    pub(super) source: EndpointsSource,
    pub(super) deleted: Deletions,
}

impl ObjectsView {
    /// The kind of objects that endpoints are taken from.
    pub fn source(&self) -> EndpointsSource {
        self.source
    }

    /// All Services, Endpoints and slices.
    pub fn objects(&self) -> &StoredObjects {
        &self.objects
    }

    /// A Service.
    pub fn service(&self, key: &ObjectKey) -> Option<Service> {
        self.objects.service(key)
    }

    /// The endpoints of a Service from the source in use.
    pub fn service_endpoints(&self, key: &ObjectKey) -> ServiceEndpoints {
        self.objects.service_endpoints(key, Some(self.source))
    }

    /// The deletion time of a Service, if it is among the last 256 deleted Services.
    pub fn deleted(&self, key: &ObjectKey) -> Option<SystemTime> {
        let mut latest_first = self.deleted.iter().rev();
        let (_, at) = latest_first.find(|(deleted, _)| deleted == key)?;

        Some(*at)
    }
}

/// The current [`ObjectsView`]. Readers load it atomically, without a lock.
#[derive(Debug, Default)]
pub struct PublishedObjects(ArcSwapOption<ObjectsView>);

impl PublishedObjects {
    /// The current objects; `None` until the first lists are complete or the objects of a snapshot
    /// file are restored.
    pub fn get(&self) -> Option<Arc<ObjectsView>> {
        self.0.load_full()
    }

    pub(super) fn set(&self, view: ObjectsView) {
        self.0.store(Some(Arc::new(view)));
    }
}

#[cfg(test)]
mod tests {
    use skydns::Zone;
    use testkit::objects::{mk_cluster_ip, mk_endpoints};
    use wire::Name;

    use super::*;
    use crate::index::Index;
    use crate::objects::{Change, Endpoints, Event, FromApi};
    use crate::snapshot::{Published, Snapshot};

    fn index() -> Index {
        let zone = Zone::new(&Name::parse("cluster.local").unwrap());
        Index::new(Arc::new(Published::new(Snapshot::new(zone))))
    }

    fn key() -> ObjectKey {
        ObjectKey::new("apps", "web")
    }

    fn service() -> Event {
        let service = mk_cluster_ip("apps", "web", &["10.96.0.10"], &["http:80"]);
        Event::Service(Change::Apply(
            Service::from_api(&service.to_string()).unwrap().object,
        ))
    }

    fn endpoints(address: &str) -> Event {
        let endpoints = mk_endpoints("apps", "web", &[address], &["http:8080"]);
        Event::Endpoints(Change::Apply(
            Endpoints::from_api(&endpoints.to_string()).unwrap().object,
        ))
    }

    fn synced(events: impl IntoIterator<Item = Event>) -> Index {
        let mut index = index();
        events.into_iter().for_each(|event| index.apply(event));
        index.apply(Event::Service(Change::RelistDone));
        index.apply(Event::Endpoints(Change::RelistDone));
        index.apply(Event::EndpointsFrom(EndpointsSource::Endpoints));
        index.publish();
        index
    }

    fn addresses(view: &ObjectsView) -> Vec<String> {
        let ServiceEndpoints::Endpoints(endpoints) = view.service_endpoints(&key()) else {
            return Vec::new();
        };
        endpoints
            .addresses()
            .map(|address| address.to_string())
            .collect()
    }

    #[test]
    fn first_lists_publish_objects() {
        let mut index = index();
        let published = index.published_objects();
        index.apply(service());
        index.publish();
        assert!(
            published.get().is_none(),
            "nothing may be published before the lists are complete"
        );

        let index = synced([service()]);
        let view = index.published_objects().get().unwrap();
        assert_eq!(view.source(), EndpointsSource::Endpoints);
        assert!(view.service(&key()).is_some());
    }

    #[test]
    fn endpoints_that_change_no_record_are_published() {
        let mut index = synced([service(), endpoints("10.244.0.1")]);
        let published = index.published_objects();
        index.apply(endpoints("10.244.0.2"));
        assert!(
            !index.publish(),
            "the records of a ClusterIP Service must not depend on endpoints"
        );
        assert_eq!(addresses(&published.get().unwrap()), ["10.244.0.2"]);
    }

    #[test]
    fn held_view_never_changes() {
        let mut index = synced([service(), endpoints("10.244.0.1")]);
        let published = index.published_objects();
        let before = published.get().unwrap();
        index.apply(Event::Service(Change::Deleted(key())));
        index.apply(endpoints("10.244.0.2"));
        index.publish();

        assert!(before.service(&key()).is_some());
        assert_eq!(
            (before.deleted(&key()), addresses(&before)),
            (None, vec!["10.244.0.1".to_owned()])
        );
        let after = published.get().unwrap();
        assert!(after.service(&key()).is_none() && after.deleted(&key()).is_some());
        assert_eq!(addresses(&after), ["10.244.0.2"]);
    }

    #[test]
    fn unchanged_objects_are_not_published_again() {
        let mut index = synced([service()]);
        let published = index.published_objects();
        let before = published.get().unwrap();
        index.apply(service());
        index.publish();
        assert!(Arc::ptr_eq(&before, &published.get().unwrap()));
    }
}
