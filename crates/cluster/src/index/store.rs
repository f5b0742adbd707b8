//! The objects as they are now, grouped by the Service whose records they make.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::SystemTime;

use foldhash::quality::RandomState;
use smol_str::SmolStr;

use super::Counts;
use super::objects::{Objects, Owner};
use super::shared::Shared;
use crate::objects::{
    EndpointPort, EndpointSlice, Endpoints, EndpointsSource, ObjectKey, Service, ServicePort,
};
use crate::records::Backing;

/// How many deleted Services are remembered.
const MAX_DELETED: usize = 256;

/// All objects.
#[derive(Debug, Default)]
pub struct Store {
    objects: Objects,
    /// The names of the Services of those slices whose own names do not tell; they share the namespace.
    strays: HashMap<ObjectKey, SmolStr, RandomState>,
    service_ports: Shared<ServicePort>,
    endpoint_ports: Shared<EndpointPort>,
    /// Services that are gone, the last one last, so that explanations can say since when.
    deleted: VecDeque<(ObjectKey, SystemTime)>,
    pub(super) services: Listing,
    pub(super) endpoints: Listing,
    pub(super) slices: Listing,
}

/// The Service that a slice most likely belongs to: the control plane names slices after it, with a random suffix.
fn expected_service(slice: &ObjectKey) -> Option<SmolStr> {
    slice.name.rsplit_once('-').map(|(service, _)| service.into())
}

/// How far the lists of one kind are.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// What a running list has not named yet.
    unseen: Option<HashSet<ObjectKey, RandomState>>,
    /// A list was complete.
    listed: bool,
    /// A feed keeps these objects up to date. Those of a snapshot file are nobody's.
    followed: bool,
}

impl Listing {
    fn begin(&mut self, known: HashSet<ObjectKey, RandomState>) {
        self.unseen = Some(known);
        self.followed = true;
    }

    /// Ends a list and returns what it did not name.
    pub(super) fn finish(&mut self) -> Vec<ObjectKey> {
        self.listed = true;
        self.unseen.take().unwrap_or_default().into_iter().collect()
    }

    /// The object was named, or is gone already.
    pub(super) fn settle(&mut self, key: &ObjectKey) {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(key);
        }
    }
}

impl Store {
    pub(super) fn start_list_of_services(&mut self) {
        self.services.begin(self.services().map(|service| service.key.clone()).collect());
    }

    pub(super) fn start_list_of_endpoints(&mut self) {
        self.endpoints.begin(self.endpoints().map(|endpoints| endpoints.key.clone()).collect());
    }

    pub(super) fn start_list_of_slices(&mut self) {
        self.slices.begin(self.slices().map(|slice| slice.key.clone()).collect());
    }

    /// All objects as they are now.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// A Service.
    pub fn service(&self, key: &ObjectKey) -> Option<&Service> {
        self.objects.get(key)?.service.as_deref()
    }

    /// The Endpoints of a Service.
    pub fn endpoints_of(&self, key: &ObjectKey) -> Option<&Endpoints> {
        self.objects.get(key)?.endpoints.as_deref()
    }

    /// A slice, and the Service that it belongs to.
    pub(super) fn slice_and_service(&self, key: &ObjectKey) -> Option<(ObjectKey, &EndpointSlice)> {
        let name = match self.strays.get(key) {
            Some(name) => name.clone(),
            None => expected_service(key)?,
        };
        let service = ObjectKey { namespace: key.namespace.clone(), name };
        let slice = self.objects.get(&service)?.slices.iter().find(|slice| slice.key == *key)?;
        Some((service, slice))
    }

    /// A slice.
    pub fn slice(&self, key: &ObjectKey) -> Option<&EndpointSlice> {
        self.slice_and_service(key).map(|(_, slice)| slice)
    }

    /// All Services.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.objects.services()
    }

    /// All Endpoints.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoints> {
        self.objects.endpoints()
    }

    /// All slices.
    pub fn slices(&self) -> impl Iterator<Item = &EndpointSlice> {
        self.objects.slices()
    }

    /// The endpoints of a Service from the source in use.
    pub fn backing(&self, key: &ObjectKey, source: Option<EndpointsSource>) -> Backing<'_> {
        let Some(owner) = self.objects.get(key) else { return Backing::None };
        match (source, &owner.endpoints) {
            (Some(EndpointsSource::EndpointSlices), _) => Backing::Slices(&owner.slices),
            (Some(EndpointsSource::Endpoints), Some(endpoints)) => Backing::Endpoints(endpoints),
            _ => Backing::None,
        }
    }

    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        self.objects.keys()
    }

    pub(super) fn has_listed(&self, source: EndpointsSource) -> bool {
        self.services.listed
            && match source {
                EndpointsSource::Endpoints => self.endpoints.listed,
                EndpointsSource::EndpointSlices => self.slices.listed,
            }
    }

    pub(super) fn set_service(&mut self, mut service: Service) {
        self.service_ports.share(&mut service.ports);
        let key = service.key.clone();
        self.objects.change(&key, |owner| owner.service = Some(Box::new(service)));
    }

    pub(super) fn set_endpoints(&mut self, mut endpoints: Endpoints) {
        for subset in &mut endpoints.subsets {
            self.endpoint_ports.share(&mut subset.ports);
        }
        let key = endpoints.key.clone();
        self.objects.change(&key, |owner| owner.endpoints = Some(Box::new(endpoints)));
    }

    pub(super) fn set_slice(&mut self, mut slice: EndpointSlice) {
        self.endpoint_ports.share(&mut slice.ports);
        let service = ObjectKey { namespace: slice.key.namespace.clone(), name: slice.service.clone() };
        if expected_service(&slice.key).as_ref() == Some(&slice.service) {
            self.strays.remove(&slice.key);
        } else {
            self.strays.insert(slice.key.clone(), slice.service.clone());
        }
        self.objects.change(&service, |Owner { slices, .. }| {
            if let Some(known) = slices.iter_mut().find(|known| known.key == slice.key) {
                *known = slice;
            } else {
                // Nearly all Services have one.
                slices.reserve_exact(1);
                slices.push(slice);
            }
        });
    }

    /// When a Service was last seen to be deleted, if that was not long ago.
    pub fn deleted(&self, key: &ObjectKey) -> Option<SystemTime> {
        self.deleted.iter().rev().find(|(deleted, _)| deleted == key).map(|(_, at)| *at)
    }

    pub(super) fn remove_service(&mut self, key: &ObjectKey) {
        if self.service(key).is_some() {
            if self.deleted.len() == MAX_DELETED {
                self.deleted.pop_front();
            }
            self.deleted.push_back((key.clone(), SystemTime::now()));
        }
        self.objects.change(key, |owner| owner.service = None);
    }

    pub(super) fn remove_endpoints(&mut self, key: &ObjectKey) {
        self.objects.change(key, |owner| owner.endpoints = None);
    }

    pub(super) fn remove_slice(&mut self, service: &ObjectKey, key: &ObjectKey) {
        self.strays.remove(key);
        self.objects.change(service, |owner| owner.slices.retain(|slice| slice.key != *key));
    }

    /// Drops the objects of the source that is not in use, unless it is still followed: the feed of slices goes on
    /// while Endpoints are in use, and takes back itself what it cannot keep up to date.
    pub(super) fn forget_other_than(&mut self, source: EndpointsSource) {
        match source {
            EndpointsSource::Endpoints if self.slices.followed => {}
            EndpointsSource::Endpoints => {
                self.strays = HashMap::default();
                self.slices = Listing::default();
                self.change_all(|owner| owner.slices = Vec::new());
            }
            EndpointsSource::EndpointSlices => {
                self.endpoints = Listing::default();
                self.change_all(|owner| owner.endpoints = None);
            }
        }
    }

    fn change_all(&mut self, change: impl Fn(&mut Owner)) {
        for key in self.keys() {
            self.objects.change(&key, &change);
        }
    }

    /// A Service whose endpoints are `shown` and of which slices tell more than Endpoints.
    pub(super) fn slices_tell_more(&self, shown: impl Fn(&Service) -> bool) -> Option<ObjectKey> {
        let of_service = |owner: &Owner| owner.service.as_deref().is_some_and(&shown);
        self.objects.find(|owner| of_service(owner) && owner.slices_tell_more())
    }

    pub(super) fn counts(&self) -> Counts {
        let in_endpoints = self.endpoints().flat_map(Endpoints::addresses).count();
        let in_slices = self.slices().flat_map(EndpointSlice::addresses).count();
        Counts {
            services: self.services().count(),
            endpoints: self.endpoints().count(),
            slices: self.slices().count(),
            addresses: in_endpoints + in_slices,
            over_capacity: self.endpoints().filter(|endpoints| endpoints.over_capacity).count(),
        }
    }
}
