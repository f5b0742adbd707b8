//! The objects as they are now, grouped by the Service whose records they make.

use std::collections::{HashMap, HashSet};

use foldhash::quality::RandomState;

use super::Counts;
use crate::objects::{EndpointSlice, Endpoints, EndpointsSource, ObjectKey, Service};
use crate::records::Backing;

/// All objects.
#[derive(Debug, Default)]
pub struct Store {
    owners: HashMap<ObjectKey, Owner, RandomState>,
    slice_owners: HashMap<ObjectKey, ObjectKey, RandomState>,
    pub(super) services: Listing,
    pub(super) endpoints: Listing,
    pub(super) slices: Listing,
}

/// What is known under one namespace and name.
#[derive(Debug, Default)]
struct Owner {
    service: Option<Service>,
    endpoints: Option<Endpoints>,
    slices: Vec<EndpointSlice>,
}

impl Owner {
    fn is_empty(&self) -> bool {
        self.service.is_none() && self.endpoints.is_none() && self.slices.is_empty()
    }
}

/// What a running list of one kind has not named yet.
#[derive(Debug, Default)]
pub(super) struct Listing {
    unseen: Option<HashSet<ObjectKey, RandomState>>,
    listed: bool,
}

impl Listing {
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
        self.services.unseen = Some(self.services().map(|service| service.key.clone()).collect());
    }

    pub(super) fn start_list_of_endpoints(&mut self) {
        self.endpoints.unseen = Some(self.endpoints().map(|endpoints| endpoints.key.clone()).collect());
    }

    pub(super) fn start_list_of_slices(&mut self) {
        self.slices.unseen = Some(self.slice_owners.keys().cloned().collect());
    }

    /// A Service.
    pub fn service(&self, key: &ObjectKey) -> Option<&Service> {
        self.owners.get(key)?.service.as_ref()
    }

    /// The Endpoints of a Service.
    pub fn endpoints_of(&self, key: &ObjectKey) -> Option<&Endpoints> {
        self.owners.get(key)?.endpoints.as_ref()
    }

    /// The Service that a slice belongs to.
    pub fn service_of_slice(&self, key: &ObjectKey) -> Option<&ObjectKey> {
        self.slice_owners.get(key)
    }

    /// A slice.
    pub fn slice(&self, key: &ObjectKey) -> Option<&EndpointSlice> {
        let owner = self.owners.get(self.slice_owners.get(key)?)?;
        owner.slices.iter().find(|slice| slice.key == *key)
    }

    /// All Services.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.owners.values().filter_map(|owner| owner.service.as_ref())
    }

    /// All Endpoints.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoints> {
        self.owners.values().filter_map(|owner| owner.endpoints.as_ref())
    }

    /// All slices.
    pub fn slices(&self) -> impl Iterator<Item = &EndpointSlice> {
        self.owners.values().flat_map(|owner| &owner.slices)
    }

    /// The endpoints of a Service from the source in use.
    pub(crate) fn backing(&self, key: &ObjectKey, source: Option<EndpointsSource>) -> Backing<'_> {
        let Some(owner) = self.owners.get(key) else { return Backing::None };
        match (source, &owner.endpoints) {
            (Some(EndpointsSource::EndpointSlices), _) => Backing::Slices(&owner.slices),
            (Some(EndpointsSource::Endpoints), Some(endpoints)) => Backing::Endpoints(endpoints),
            _ => Backing::None,
        }
    }

    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        self.owners.keys().cloned().collect()
    }

    pub(super) fn has_listed(&self, source: EndpointsSource) -> bool {
        self.services.listed
            && match source {
                EndpointsSource::Endpoints => self.endpoints.listed,
                EndpointsSource::EndpointSlices => self.slices.listed,
            }
    }

    pub(super) fn set_service(&mut self, service: Service) {
        let owner = self.owners.entry(service.key.clone()).or_default();
        owner.service = Some(service);
    }

    pub(super) fn set_endpoints(&mut self, endpoints: Endpoints) {
        let owner = self.owners.entry(endpoints.key.clone()).or_default();
        owner.endpoints = Some(endpoints);
    }

    pub(super) fn set_slice(&mut self, slice: EndpointSlice) {
        let service = ObjectKey::new(slice.key.namespace.clone(), slice.service.clone());
        self.slice_owners.insert(slice.key.clone(), service.clone());
        let slices = &mut self.owners.entry(service).or_default().slices;
        match slices.iter_mut().find(|known| known.key == slice.key) {
            Some(known) => *known = slice,
            None => slices.push(slice),
        }
    }

    pub(super) fn remove_service(&mut self, key: &ObjectKey) {
        self.change_owner(key, |owner| owner.service = None);
    }

    pub(super) fn remove_endpoints(&mut self, key: &ObjectKey) {
        self.change_owner(key, |owner| owner.endpoints = None);
    }

    pub(super) fn remove_slice(&mut self, key: &ObjectKey) {
        if let Some(service) = self.slice_owners.remove(key) {
            self.change_owner(&service, |owner| owner.slices.retain(|slice| slice.key != *key));
        }
    }

    fn change_owner(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Owner)) {
        let Some(owner) = self.owners.get_mut(key) else { return };
        change(owner);
        if owner.is_empty() {
            self.owners.remove(key);
        }
    }

    /// Drops the objects of the source that is not in use.
    pub(super) fn forget_other_than(&mut self, source: EndpointsSource) {
        match source {
            EndpointsSource::Endpoints => {
                self.slice_owners = HashMap::default();
                self.slices = Listing::default();
                self.owners.values_mut().for_each(|owner| owner.slices = Vec::new());
            }
            EndpointsSource::EndpointSlices => {
                self.endpoints = Listing::default();
                self.owners.values_mut().for_each(|owner| owner.endpoints = None);
            }
        }
        self.owners.retain(|_, owner| !owner.is_empty());
    }

    pub(super) fn counts(&self) -> Counts {
        let in_subset = |subset: &crate::objects::Subset| subset.ready.len() + subset.not_ready.len();
        let in_endpoints =
            self.endpoints().flat_map(|endpoints| endpoints.subsets.iter()).map(in_subset).sum::<usize>();
        let in_slices =
            self.slices().flat_map(|slice| slice.endpoints.iter()).map(|e| e.addresses.len()).sum::<usize>();
        Counts {
            services: self.services().count(),
            endpoints: self.endpoints().count(),
            slices: self.slices().count(),
            addresses: in_endpoints + in_slices,
            over_capacity: self.endpoints().filter(|endpoints| endpoints.over_capacity).count(),
        }
    }
}
