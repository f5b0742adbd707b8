//! All objects at one moment, by the Service whose records they make.

use std::net::IpAddr;
use std::sync::Arc;

use treecache::Map;

use crate::objects::{EndpointSlice, Endpoints, ObjectKey, Service};

/// All objects. `clone` is one reference count, so that whoever needs time for them keeps nobody from changing them.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    owners: Map<ObjectKey, Arc<Owner>>,
}

/// What is known under one namespace and name.
#[derive(Debug, Clone, Default)]
pub(super) struct Owner {
    pub(super) service: Option<Box<Service>>,
    pub(super) endpoints: Option<Box<Endpoints>>,
    pub(super) slices: Vec<EndpointSlice>,
}

impl Owner {
    fn is_empty(&self) -> bool {
        self.service.is_none() && self.endpoints.is_none() && self.slices.is_empty()
    }

    /// Slices have addresses, of a family at least, that Endpoints lack. Endpoints without any address lack none: the
    /// pods are gone.
    pub(super) fn slices_tell_more(&self) -> bool {
        let told = Families::of(self.slices.iter().flat_map(EndpointSlice::addresses));
        let Some(endpoints) = &self.endpoints else {
            return told != Families::default();
        };
        let now = Families::of(endpoints.addresses());
        let lacking = (told.v4 && !now.v4) || (told.v6 && !now.v6);
        endpoints.over_capacity || (now != Families::default() && lacking)
    }
}

/// The IP families of addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Families {
    v4: bool,
    v6: bool,
}

impl Families {
    fn of(addresses: impl Iterator<Item = IpAddr>) -> Self {
        addresses.fold(Self::default(), |Self { v4, v6 }, ip| Self {
            v4: v4 || ip.is_ipv4(),
            v6: v6 || ip.is_ipv6(),
        })
    }
}

impl Objects {
    /// All Services.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.owners.iter().filter_map(|(_, owner)| owner.service.as_deref())
    }

    /// All Endpoints.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoints> {
        self.owners.iter().filter_map(|(_, owner)| owner.endpoints.as_deref())
    }

    /// All slices.
    pub fn slices(&self) -> impl Iterator<Item = &EndpointSlice> {
        self.owners.iter().flat_map(|(_, owner)| &owner.slices)
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Owner> {
        self.owners.get(key).map(|owner| &**owner)
    }

    /// The key of something that is `wanted`.
    pub(super) fn find(&self, wanted: impl Fn(&Owner) -> bool) -> Option<ObjectKey> {
        self.owners.iter().find(|(_, owner)| wanted(owner)).map(|(key, _)| key.clone())
    }

    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        self.owners.iter().map(|(key, _)| key.clone()).collect()
    }

    /// Changes what is known under a key, which is gone when nothing is left.
    pub(super) fn change(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Owner)) {
        let Some(owner) = self.owners.get_mut(key) else {
            let mut owner = Owner::default();
            change(&mut owner);
            if !owner.is_empty() {
                self.owners.insert(key.clone(), Arc::new(owner));
            }
            return;
        };
        let owner = Arc::make_mut(owner);
        change(owner);
        if owner.is_empty() {
            self.owners.remove(key);
        }
    }
}
