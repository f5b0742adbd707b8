//! A copy-on-write collection of all objects, grouped by Service.

use std::net::IpAddr;
use std::sync::Arc;

use smol_str::SmolStr;
use treecache::Map;

use super::Counts;
use super::packed::{Pack, PackKeyed, pack_name, pack_octets, unpack_octets};
use crate::objects::{EndpointSlice, Endpoints, EndpointsSource, ObjectKey, Service};
use crate::records::ServiceEndpoints;

/// Room for the lengths of the packed Service and the packed Endpoints, in octets.
const LENGTHS: usize = 10;
/// Octets that most packed objects fit in.
const USUAL: usize = 256;

/// All objects. `clone` only increments a reference count, so that a slow reader can keep a copy
/// without delaying changes.
///
/// Objects are stored packed, and unpacked on access.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    namespaces: Map<SmolStr, Map<SmolStr, Arc<[u8]>>>,
}

/// The packed objects of one namespace and name. Each packed object begins with the number of its
/// addresses, so that addresses are counted without unpacking. A packed object is never empty;
/// empty octets mean that the object is absent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PackedObjects<'o> {
    service: &'o [u8],
    endpoints: &'o [u8],
    slices: &'o [u8],
}

impl<'o> PackedObjects<'o> {
    fn read(mut packed: &'o [u8]) -> Self {
        let mut next = || unpack_octets(&mut packed).unwrap_or_default();
        Self {
            service: next(),
            endpoints: next(),
            slices: packed,
        }
    }

    fn pack(self) -> Arc<[u8]> {
        let octets = self.service.len() + self.endpoints.len() + self.slices.len();
        let mut packed = Vec::with_capacity(octets + LENGTHS);
        pack_octets(self.service, &mut packed);
        pack_octets(self.endpoints, &mut packed);
        packed.extend_from_slice(self.slices);
        packed.into()
    }

    fn is_empty(self) -> bool {
        [self.service, self.endpoints, self.slices]
            .iter()
            .all(|part| part.is_empty())
    }

    /// The packed slices, one by one.
    fn each_slice(mut self) -> impl Iterator<Item = &'o [u8]> {
        std::iter::from_fn(move || unpack_octets(&mut self.slices))
    }

    /// The slices with `new` in place of the slice named `name`.
    fn slices_with(self, name: &[u8], new: Option<&[u8]>) -> Vec<u8> {
        let others = self
            .each_slice()
            .filter(|slice| !body(slice).starts_with(name));
        let mut slices = Vec::new();
        for slice in others.chain(new) {
            pack_octets(slice, &mut slices);
        }
        slices
    }

    fn slice_of_name(self, name: &[u8]) -> Option<&'o [u8]> {
        self.each_slice()
            .find(|slice| body(slice).starts_with(name))
    }

    fn add_to(self, counts: &mut Counts) {
        let addresses = |packed: &[u8]| usize::unpack(&mut &*packed);
        if let Some(cluster_ips) = addresses(self.service) {
            counts.services += 1;
            counts.cluster_ips += cluster_ips;
        }
        if let Some(addresses) = addresses(self.endpoints) {
            counts.endpoints += 1;
            counts.endpoints_addresses += addresses;
            counts.over_capacity += bool::unpack(&mut body(self.endpoints)).map_or(0, usize::from);
        }
        for addresses in self.each_slice().filter_map(addresses) {
            counts.slices += 1;
            counts.slices_addresses += addresses;
        }
    }

    pub(super) fn has_service(self) -> bool {
        !self.service.is_empty()
    }

    pub(super) fn service(self, key: &ObjectKey) -> Option<Service> {
        unpack(key, self.service)
    }

    pub(super) fn endpoints(self, key: &ObjectKey) -> Option<Endpoints> {
        unpack(key, self.endpoints)
    }

    pub(super) fn slices(self, key: &ObjectKey) -> impl Iterator<Item = EndpointSlice> {
        self.each_slice().filter_map(|slice| unpack(key, slice))
    }

    /// Whether Endpoints lack addresses of the slices: the Endpoints object is missing or
    /// truncated, or lacks an IP family. An Endpoints object without any address lacks nothing: the
    /// pods are gone, and only the outdated slices still contain them.
    pub(super) fn endpoints_lack_addresses(self, key: &ObjectKey) -> bool {
        let told = self
            .slices(key)
            .map(|slice| Families::of(slice.addresses()));
        let told = told.fold(Families::default(), Families::or);
        let Some(endpoints) = self.endpoints(key) else {
            return told != Families::default();
        };
        let now = Families::of(endpoints.addresses());
        let lacking = (told.v4 && !now.v4) || (told.v6 && !now.v6);
        endpoints.over_capacity || (now != Families::default() && lacking)
    }
}

fn packed(object: &impl PackKeyed) -> Vec<u8> {
    let mut packed = Vec::with_capacity(USUAL);
    object.addresses().pack(&mut packed);
    object.pack(&mut packed);
    packed
}

fn unpack<T: PackKeyed>(key: &ObjectKey, packed: &[u8]) -> Option<T> {
    T::unpack(key.clone(), &mut body(packed))
}

/// A packed object without the number of its addresses.
fn body(packed: &[u8]) -> &[u8] {
    let mut body = packed;
    usize::unpack(&mut body).map(|_| body).unwrap_or_default()
}

/// The packed name of a slice. The [`body`] of the packed slice begins with it.
fn packed_name(slice: &ObjectKey, service: &ObjectKey) -> Vec<u8> {
    let mut name = Vec::new();
    pack_name(&slice.name, &service.name, &mut name);
    name
}

/// The IP families of addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Families {
    v4: bool,
    v6: bool,
}

impl Families {
    fn of(addresses: impl Iterator<Item = IpAddr>) -> Self {
        let one = |ip: IpAddr| Self {
            v4: ip.is_ipv4(),
            v6: ip.is_ipv6(),
        };
        addresses.map(one).fold(Self::default(), Self::or)
    }

    fn or(self, other: Self) -> Self {
        Self {
            v4: self.v4 || other.v4,
            v6: self.v6 || other.v6,
        }
    }
}

impl Objects {
    /// All Services.
    pub fn services(&self) -> impl Iterator<Item = Service> {
        self.entries()
            .filter_map(|(key, entry)| entry.service(&key))
    }

    /// Counts of the objects.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for entries in self.namespaces.iter().map(|(_, entries)| entries) {
            entries
                .iter()
                .for_each(|(_, packed)| PackedObjects::read(packed).add_to(&mut counts));
        }
        counts
    }

    /// The keys of all Services, without unpacking the Services.
    pub fn service_keys(&self) -> impl Iterator<Item = ObjectKey> {
        self.entries()
            .filter(|(_, entry)| entry.has_service())
            .map(|(key, _)| key)
    }

    /// All Endpoints.
    pub fn endpoints(&self) -> impl Iterator<Item = Endpoints> {
        self.entries()
            .filter_map(|(key, entry)| entry.endpoints(&key))
    }

    /// All slices.
    pub fn slices(&self) -> impl Iterator<Item = EndpointSlice> {
        self.entries().flat_map(|(key, entry)| {
            entry
                .each_slice()
                .filter_map(move |slice| unpack(&key, slice))
        })
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (ObjectKey, PackedObjects<'_>)> {
        self.namespaces.iter().flat_map(|(namespace, entries)| {
            let key = |name: &SmolStr| ObjectKey {
                namespace: namespace.clone(),
                name: name.clone(),
            };
            entries
                .iter()
                .map(move |(name, packed)| (key(name), PackedObjects::read(packed)))
        })
    }

    /// The keys of a namespace.
    pub(super) fn keys_in(&self, namespace: &str) -> Vec<ObjectKey> {
        let entries = self
            .namespaces
            .get(namespace)
            .into_iter()
            .flat_map(Map::iter);
        entries
            .map(|(name, _)| ObjectKey::new(namespace, name.clone()))
            .collect()
    }

    pub(super) fn get(&self, key: &ObjectKey) -> PackedObjects<'_> {
        let packed = self
            .namespaces
            .get(&key.namespace)
            .and_then(|entries| entries.get(&key.name));
        packed
            .map(|packed| PackedObjects::read(packed))
            .unwrap_or_default()
    }

    /// A Service.
    pub fn service(&self, key: &ObjectKey) -> Option<Service> {
        self.get(key).service(key)
    }

    /// The endpoints of a Service from `source`.
    pub fn service_endpoints(
        &self,
        key: &ObjectKey,
        source: Option<EndpointsSource>,
    ) -> ServiceEndpoints {
        let entry = self.get(key);
        match source {
            None => ServiceEndpoints::None,
            Some(EndpointsSource::EndpointSlices) => {
                ServiceEndpoints::Slices(entry.slices(key).collect())
            }
            Some(EndpointsSource::Endpoints) => entry
                .endpoints(key)
                .map_or(ServiceEndpoints::None, ServiceEndpoints::Endpoints),
        }
    }

    /// Whether an identical Service is stored.
    pub(super) fn has_service(&self, service: &Service) -> bool {
        let stored = self.get(&service.key).service;
        !stored.is_empty() && stored == packed(service)
    }

    /// Whether identical Endpoints are stored.
    pub(super) fn has_endpoints(&self, endpoints: &Endpoints) -> bool {
        let stored = self.get(&endpoints.key).endpoints;
        !stored.is_empty() && stored == packed(endpoints)
    }

    /// Whether an identical slice is stored.
    pub(super) fn has_slice(&self, slice: &EndpointSlice) -> bool {
        let service = slice.service_key();
        let stored = self
            .get(&service)
            .slice_of_name(&packed_name(&slice.key, &service));
        stored.is_some_and(|stored| stored == packed(slice))
    }

    /// The slice `key` of `service`.
    pub(super) fn slice(&self, service: &ObjectKey, key: &ObjectKey) -> Option<EndpointSlice> {
        unpack(
            service,
            self.get(service)
                .slice_of_name(&packed_name(key, service))?,
        )
    }

    pub(super) fn set_service(&mut self, service: &Service) {
        let packed = packed(service);
        self.change(&service.key, |entry| {
            PackedObjects {
                service: &packed,
                ..entry
            }
            .pack()
        });
    }

    pub(super) fn set_endpoints(&mut self, endpoints: &Endpoints) {
        let packed = packed(endpoints);
        self.change(&endpoints.key, |entry| {
            PackedObjects {
                endpoints: &packed,
                ..entry
            }
            .pack()
        });
    }

    pub(super) fn set_slice(&mut self, slice: &EndpointSlice) {
        let (service, packed) = (slice.service_key(), packed(slice));
        let name = packed_name(&slice.key, &service);
        self.change(&service, |entry| {
            PackedObjects {
                slices: &entry.slices_with(&name, Some(&packed)),
                ..entry
            }
            .pack()
        });
    }

    pub(super) fn remove_service(&mut self, key: &ObjectKey) {
        self.change(key, |entry| {
            PackedObjects {
                service: &[],
                ..entry
            }
            .pack()
        });
    }

    pub(super) fn remove_endpoints(&mut self, key: &ObjectKey) {
        if !self.get(key).endpoints.is_empty() {
            self.change(key, |entry| {
                PackedObjects {
                    endpoints: &[],
                    ..entry
                }
                .pack()
            });
        }
    }

    /// Removes all slices of a Service.
    pub(super) fn remove_slices(&mut self, service: &ObjectKey) {
        if !self.get(service).slices.is_empty() {
            self.change(service, |entry| {
                PackedObjects {
                    slices: &[],
                    ..entry
                }
                .pack()
            });
        }
    }

    pub(super) fn remove_slice(&mut self, service: &ObjectKey, key: &ObjectKey) {
        let name = packed_name(key, service);
        self.change(service, |entry| {
            PackedObjects {
                slices: &entry.slices_with(&name, None),
                ..entry
            }
            .pack()
        });
    }

    /// Changes the objects of a key, and removes the key when no object is left.
    fn change(&mut self, key: &ObjectKey, change: impl FnOnce(PackedObjects<'_>) -> Arc<[u8]>) {
        let before = self.get(key);
        let (was_empty, changed) = (before.is_empty(), change(before));
        if PackedObjects::read(&changed).is_empty() {
            if !was_empty {
                self.remove(key);
            }
            return;
        }
        if let Some(entries) = self.namespaces.get_mut(&key.namespace) {
            entries.insert(key.name.clone(), changed);
        } else {
            let entries = Map::from_iter([(key.name.clone(), changed)]);
            self.namespaces.insert(key.namespace.clone(), entries);
        }
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(entries) = self.namespaces.get_mut(&key.namespace) else {
            return;
        };
        entries.remove(&key.name);
        if entries.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
    }
}
