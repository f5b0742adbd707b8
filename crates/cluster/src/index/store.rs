//! The current Services, Endpoints and slices, grouped by Service.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use foldhash::quality::RandomState;
use smol_str::SmolStr;

use super::objects::StoredObjects;
use super::published_objects::{Deletions, ObjectsView};
use crate::objects::{EndpointSlice, Endpoints, EndpointsSource, ObjectKey, Service};
use crate::records::ServiceEndpoints;
use crate::relist::RelistTracker;

/// Maximum number of deleted Services that are remembered.
const MAX_DELETED: usize = 256;

/// The Services, Endpoints and slices, and the progress of their lists.
#[derive(Debug, Default)]
pub struct ObjectStore {
    objects: StoredObjects,
    /// For each slice that does not belong to its [`expected_service`], the name of the Service
    /// that the slice belongs to. The Service is always in the namespace of the slice.
    strays: HashMap<ObjectKey, SmolStr, RandomState>,
    /// The last deleted Services, for explanations of answers.
    deleted: Deletions,
    pub(super) services: RelistTracker,
    pub(super) endpoints: RelistTracker,
    pub(super) slices: RelistTracker,
}

/// The Service that a slice most likely belongs to: the control plane names slices after their
/// Service, with a random suffix.
fn expected_service(slice: &ObjectKey) -> Option<SmolStr> {
    let (service, _) = slice.name.rsplit_once('-')?;
    Some(service.into())
}

impl ObjectStore {
    pub(super) fn begin_service_list(&mut self) {
        self.services.begin(self.objects.service_keys());
    }

    pub(super) fn begin_endpoints_list(&mut self) {
        self.endpoints.begin(self.objects.endpoints_keys());
    }

    pub(super) fn begin_slice_list(&mut self) {
        self.slices.begin(self.objects.slice_keys());
    }

    /// Ends a list of Services. Returns those that the list did not contain.
    pub(super) fn finish_service_list(&mut self) -> Vec<ObjectKey> {
        self.services.finish(self.objects.service_keys())
    }

    /// Ends a list of Endpoints. Returns those that the list did not contain.
    pub(super) fn finish_endpoints_list(&mut self) -> Vec<ObjectKey> {
        self.endpoints.finish(self.objects.endpoints_keys())
    }

    /// Ends a list of slices. Returns those that the list did not contain.
    pub(super) fn finish_slice_list(&mut self) -> Vec<ObjectKey> {
        self.slices.finish(self.objects.slice_keys())
    }

    /// Ends the part of a list of Services in one namespace. Returns those that the list did not
    /// contain.
    pub(super) fn finish_service_list_in(&mut self, namespace: &str) -> Vec<ObjectKey> {
        self.services.finish_part(self.objects.keys_in(namespace))
    }

    /// Ends the part of a list of Endpoints in one namespace. Returns those that the list did not
    /// contain.
    pub(super) fn finish_endpoints_list_in(&mut self, namespace: &str) -> Vec<ObjectKey> {
        self.endpoints.finish_part(self.objects.keys_in(namespace))
    }

    /// Ends the part of a list of slices in one namespace. Returns those that the list did not
    /// contain.
    pub(super) fn finish_slice_list_in(&mut self, namespace: &str) -> Vec<ObjectKey> {
        self.slices
            .finish_part(self.objects.slice_keys_in(namespace))
    }

    /// The current objects.
    pub fn objects(&self) -> &StoredObjects {
        &self.objects
    }

    /// A Service.
    pub fn service(&self, key: &ObjectKey) -> Option<Service> {
        self.objects.service(key)
    }

    /// The Endpoints of a Service.
    pub fn endpoints_of(&self, key: &ObjectKey) -> Option<Endpoints> {
        self.objects.entry(key).endpoints(key)
    }

    /// The Service that a slice belongs to, if the slice exists.
    pub(super) fn service_of_slice(&self, key: &ObjectKey) -> Option<ObjectKey> {
        self.slice(key).map(|slice| slice.service_key())
    }

    /// A slice.
    pub fn slice(&self, key: &ObjectKey) -> Option<EndpointSlice> {
        // `strays` has only the slices that do not belong to their expected Service.
        let name = match self.strays.get(key) {
            Some(name) => name.clone(),
            None => expected_service(key)?,
        };
        let service = ObjectKey {
            namespace: key.namespace.clone(),
            name,
        };

        self.objects.slice(&service, key)
    }

    /// The endpoints of a Service from `source`; none if `source` is `None`.
    pub fn service_endpoints(
        &self,
        key: &ObjectKey,
        source: Option<EndpointsSource>,
    ) -> ServiceEndpoints {
        self.objects.service_endpoints(key, source)
    }

    /// The objects for readers outside the index. No object is copied.
    pub(super) fn view(&self, source: EndpointsSource) -> ObjectsView {
        ObjectsView {
            objects: self.objects.clone(),
            source,
            deleted: Arc::clone(&self.deleted),
        }
    }

    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        self.objects.entries().map(|(key, _)| key).collect()
    }

    pub(super) fn keys_in(&self, namespace: &str) -> Vec<ObjectKey> {
        self.objects.keys_in(namespace)
    }

    /// Whether the first lists of Services and of the endpoints of `source` are complete.
    pub(super) fn has_listed(&self, source: EndpointsSource) -> bool {
        let endpoints = match source {
            EndpointsSource::Endpoints => &self.endpoints,
            EndpointsSource::EndpointSlices => &self.slices,
        };
        self.services.is_complete() && endpoints.is_complete()
    }

    pub(super) fn set_service(&mut self, service: &Service) {
        self.objects.set_service(service);
    }

    pub(super) fn set_endpoints(&mut self, endpoints: &Endpoints) {
        self.objects.set_endpoints(endpoints);
    }

    pub(super) fn set_slice(&mut self, slice: &EndpointSlice) {
        if expected_service(&slice.key).as_ref() == Some(&slice.service) {
            self.strays.remove(&slice.key);
        } else {
            self.strays.insert(slice.key.clone(), slice.service.clone());
        }

        self.objects.set_slice(slice);
    }

    pub(super) fn remove_service(&mut self, key: &ObjectKey) {
        if self.service(key).is_some() {
            // `make_mut` copies the list only if a published view holds the list.
            let deleted = Arc::make_mut(&mut self.deleted);
            if deleted.len() == MAX_DELETED {
                deleted.pop_front();
            }
            deleted.push_back((key.clone(), SystemTime::now()));
        }

        self.objects.remove_service(key);
    }

    pub(super) fn remove_endpoints(&mut self, key: &ObjectKey) {
        self.objects.remove_endpoints(key);
    }

    pub(super) fn remove_slice(&mut self, service: &ObjectKey, key: &ObjectKey) {
        self.strays.remove(key);
        self.objects.remove_slice(service, key);
    }

    /// Drops the objects of the endpoints source other than `source`. But slices stay if their feed
    /// has begun a list. This feed keeps running while Endpoints are in use, and removes slices
    /// that it can no longer keep up to date.
    pub(super) fn forget_other_than(&mut self, source: EndpointsSource) {
        match source {
            EndpointsSource::Endpoints if self.slices.is_followed() => {}
            EndpointsSource::Endpoints => {
                self.strays = HashMap::default();
                self.slices = RelistTracker::default();
                self.change_each(StoredObjects::remove_slices);
            }
            EndpointsSource::EndpointSlices => {
                // The feed of Endpoints has ended, so the stored Endpoints would become outdated.
                self.endpoints = RelistTracker::default();
                self.change_each(StoredObjects::remove_endpoints);
            }
        }
    }

    /// Applies `change` to the objects of every key.
    fn change_each(&mut self, change: fn(&mut StoredObjects, &ObjectKey)) {
        for key in self.keys() {
            change(&mut self.objects, &key);
        }
    }

    /// A Service whose Endpoints lack addresses of its slices; `None` if there is no such Service.
    /// Services whose records do not depend on their endpoints are left out.
    pub(super) fn service_with_lacking_endpoints(
        &self,
        depends_on_endpoints: impl Fn(&Service) -> bool,
    ) -> Option<ObjectKey> {
        for (key, entry) in self.objects.entries() {
            let service = entry.service(&key);
            if service.is_some_and(|service| depends_on_endpoints(&service))
                && entry.endpoints_lack_addresses(&key)
            {
                return Some(key);
            }
        }
        None
    }
}
