//! A copy-on-write collection of the Services, Endpoints and EndpointSlices ("slices"), grouped by
//! Service.

use std::net::IpAddr;
use std::sync::Arc;

use smol_str::SmolStr;
use treecache::Map;

use super::ObjectCounts;
use super::packed::{Pack, PackKeyed, pack_name, pack_octets, unpack_octets};
use crate::objects::{EndpointSlice, Endpoints, EndpointsSource, ObjectKey, Service};
use crate::records::ServiceEndpoints;

/// Octets that suffice for the lengths of the packed Service and the packed Endpoints.
const LENGTHS: usize = 10;
/// Size that is enough for most packed objects, in octets.
const USUAL: usize = 256;

/// All Services, Endpoints and slices. `clone` only increments a reference count, so that a slow
/// reader can keep a copy without delaying changes.
///
/// Objects are stored packed, and unpacked on access.
#[derive(Debug, Clone, Default)]
pub struct StoredObjects {
    namespaces: Map<SmolStr, Map<SmolStr, Arc<[u8]>>>,
}

/// The packed Service and the packed Endpoints of one namespace and name, and the packed slices of
/// the Service with this name. Each packed object begins with the number of its addresses, so that
/// addresses are counted without unpacking. A packed object is never empty; empty octets mean that
/// the object is absent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PackedObjects<'o> {
    service: &'o [u8],
    endpoints: &'o [u8],
    slices: &'o [u8],
}

impl<'o> PackedObjects<'o> {
    fn parse(mut packed: &'o [u8]) -> Self {
        let service = unpack_octets(&mut packed).unwrap_or_default();
        let endpoints = unpack_octets(&mut packed).unwrap_or_default();

        Self {
            service,
            endpoints,
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
        self.service.is_empty() && self.endpoints.is_empty() && self.slices.is_empty()
    }

    /// The packed slices, one by one.
    fn each_slice(mut self) -> impl Iterator<Item = &'o [u8]> {
        std::iter::from_fn(move || unpack_octets(&mut self.slices))
    }

    /// The packed slices except the one with the packed name `name`, followed by `new` if it is
    /// given.
    fn slices_with(self, name: &[u8], new: Option<&[u8]>) -> Vec<u8> {
        // A packed name contains its length, so it is never a prefix of another packed name.
        let others = self
            .each_slice()
            .filter(|slice| !skip_address_count(slice).starts_with(name));

        let mut slices = Vec::new();
        for slice in others.chain(new) {
            pack_octets(slice, &mut slices);
        }
        slices
    }

    fn slice_of_name(self, name: &[u8]) -> Option<&'o [u8]> {
        self.each_slice()
            .find(|slice| skip_address_count(slice).starts_with(name))
    }

    fn count_into(self, counts: &mut ObjectCounts) {
        if let Some(cluster_ips) = address_count(self.service) {
            counts.services += 1;
            counts.cluster_ips += cluster_ips;
        }

        if let Some(addresses) = address_count(self.endpoints) {
            // `over_capacity` is packed first, so that nothing else is unpacked.
            let mut fields = skip_address_count(self.endpoints);
            counts.endpoints += 1;
            counts.endpoints_addresses += addresses;
            counts.over_capacity += bool::unpack(&mut fields).map_or(0, usize::from);
        }

        for addresses in self.each_slice().filter_map(address_count) {
            counts.slices += 1;
            counts.slices_addresses += addresses;
        }
    }

    pub(super) fn has_service(self) -> bool {
        !self.service.is_empty()
    }

    pub(super) fn service(self, key: &ObjectKey) -> Option<Service> {
        unpack_object(key, self.service)
    }

    pub(super) fn endpoints(self, key: &ObjectKey) -> Option<Endpoints> {
        unpack_object(key, self.endpoints)
    }

    pub(super) fn slices(self, key: &ObjectKey) -> impl Iterator<Item = EndpointSlice> {
        self.each_slice()
            .filter_map(|slice| unpack_object(key, slice))
    }

    /// Whether Endpoints lack addresses of the slices. True in each of these cases:
    /// - The Endpoints object is truncated.
    /// - The Endpoints object is missing, and the slices have addresses.
    /// - The slices have addresses of an IP family, and the Endpoints object has only addresses of
    ///   the other family.
    ///
    /// kubedns calls this when it can no longer read slices from the API server, so its slices may
    /// be out of date. If the Endpoints object is not truncated and has no address, it lacks
    /// nothing: the pods in the slices are gone.
    pub(super) fn endpoints_lack_addresses(self, key: &ObjectKey) -> bool {
        let mut wanted = IpFamilies::default();
        for slice in self.slices(key) {
            wanted.add_all(slice.addresses());
        }
        let Some(endpoints) = self.endpoints(key) else {
            return wanted.is_any();
        };
        if endpoints.over_capacity {
            return true;
        }

        let mut present = IpFamilies::default();
        present.add_all(endpoints.addresses());
        let lacks_v4 = wanted.v4 && !present.v4;
        let lacks_v6 = wanted.v6 && !present.v6;
        present.is_any() && (lacks_v4 || lacks_v6)
    }
}

fn pack_object(object: &impl PackKeyed) -> Vec<u8> {
    let mut packed = Vec::with_capacity(USUAL);
    object.address_count().pack(&mut packed);
    object.pack(&mut packed);
    packed
}

fn unpack_object<T: PackKeyed>(key: &ObjectKey, packed: &[u8]) -> Option<T> {
    T::unpack(key.clone(), &mut skip_address_count(packed))
}

/// The number of addresses of a packed object; `None` if the object is absent.
fn address_count(packed: &[u8]) -> Option<usize> {
    usize::unpack(&mut &*packed)
}

/// A packed object without the number of its addresses.
fn skip_address_count(packed: &[u8]) -> &[u8] {
    let mut body = packed;
    usize::unpack(&mut body).map(|_| body).unwrap_or_default()
}

/// The packed name of a slice. In a packed slice, the name follows the number of addresses.
fn packed_name(slice: &ObjectKey, service: &ObjectKey) -> Vec<u8> {
    let mut name = Vec::new();
    pack_name(&slice.name, &service.name, &mut name);
    name
}

/// The IP families of addresses.
#[derive(Debug, Clone, Copy, Default)]
struct IpFamilies {
    v4: bool,
    v6: bool,
}

impl IpFamilies {
    fn add_all(&mut self, addresses: impl Iterator<Item = IpAddr>) {
        for ip in addresses {
            self.v4 |= ip.is_ipv4();
            self.v6 |= ip.is_ipv6();
        }
    }

    fn is_any(self) -> bool {
        self.v4 || self.v6
    }
}

impl StoredObjects {
    /// All Services.
    pub fn services(&self) -> impl Iterator<Item = Service> {
        self.entries()
            .filter_map(|(key, entry)| entry.service(&key))
    }

    /// Counts of the objects.
    pub(super) fn counts(&self) -> ObjectCounts {
        let mut counts = ObjectCounts::default();
        for (_, entries) in &self.namespaces {
            for (_, packed) in entries {
                PackedObjects::parse(packed).count_into(&mut counts);
            }
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

    /// The keys of all Endpoints.
    pub(super) fn endpoints_keys(&self) -> impl Iterator<Item = ObjectKey> {
        self.entries()
            .filter(|(_, entry)| !entry.endpoints.is_empty())
            .map(|(key, _)| key)
    }

    /// The keys of all slices.
    pub(super) fn slice_keys(&self) -> impl Iterator<Item = ObjectKey> {
        self.slices().map(|slice| slice.key)
    }

    /// The keys of the slices in a namespace.
    pub(super) fn slice_keys_in(&self, namespace: &str) -> impl Iterator<Item = ObjectKey> {
        self.keys_in(namespace).into_iter().flat_map(|service| {
            let slices: Vec<_> = self.entry(&service).slices(&service).collect();
            slices.into_iter().map(|slice| slice.key)
        })
    }

    /// All slices.
    pub fn slices(&self) -> impl Iterator<Item = EndpointSlice> {
        self.entries().flat_map(|(key, entry)| {
            entry
                .each_slice()
                .filter_map(move |slice| unpack_object(&key, slice))
        })
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (ObjectKey, PackedObjects<'_>)> {
        self.namespaces.iter().flat_map(|(namespace, entries)| {
            entries.iter().map(move |(name, packed)| {
                let key = ObjectKey {
                    namespace: namespace.clone(),
                    name: name.clone(),
                };
                (key, PackedObjects::parse(packed))
            })
        })
    }

    /// The keys of a namespace.
    pub(super) fn keys_in(&self, namespace: &str) -> Vec<ObjectKey> {
        let Some(entries) = self.namespaces.get(namespace) else {
            return Vec::new();
        };

        let names = entries.iter().map(|(name, _)| name.clone());
        names.map(|name| ObjectKey::new(namespace, name)).collect()
    }

    pub(super) fn entry(&self, key: &ObjectKey) -> PackedObjects<'_> {
        let entries = self.namespaces.get(&key.namespace);
        match entries.and_then(|entries| entries.get(&key.name)) {
            Some(packed) => PackedObjects::parse(packed),
            None => PackedObjects::default(),
        }
    }

    /// A Service.
    pub fn service(&self, key: &ObjectKey) -> Option<Service> {
        self.entry(key).service(key)
    }

    /// The endpoints of a Service from `source`.
    pub fn service_endpoints(
        &self,
        key: &ObjectKey,
        source: Option<EndpointsSource>,
    ) -> ServiceEndpoints {
        let entry = self.entry(key);
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
        let stored = self.entry(&service.key).service;
        !stored.is_empty() && stored == pack_object(service)
    }

    /// Whether identical Endpoints are stored.
    pub(super) fn has_endpoints(&self, endpoints: &Endpoints) -> bool {
        let stored = self.entry(&endpoints.key).endpoints;
        !stored.is_empty() && stored == pack_object(endpoints)
    }

    /// Whether an identical slice is stored.
    pub(super) fn has_slice(&self, slice: &EndpointSlice) -> bool {
        let service = slice.service_key();
        let name = packed_name(&slice.key, &service);
        let stored = self.entry(&service).slice_of_name(&name);

        stored.is_some_and(|stored| stored == pack_object(slice))
    }

    /// The slice `key` of `service`.
    pub(super) fn slice(&self, service: &ObjectKey, key: &ObjectKey) -> Option<EndpointSlice> {
        let name = packed_name(key, service);
        let packed = self.entry(service).slice_of_name(&name)?;

        unpack_object(service, packed)
    }

    pub(super) fn set_service(&mut self, service: &Service) {
        let packed = pack_object(service);
        self.change_entry(&service.key, |entry| {
            let service = packed.as_slice();
            PackedObjects { service, ..entry }.pack()
        });
    }

    pub(super) fn set_endpoints(&mut self, endpoints: &Endpoints) {
        let packed = pack_object(endpoints);
        self.change_entry(&endpoints.key, |entry| {
            let endpoints = packed.as_slice();
            PackedObjects { endpoints, ..entry }.pack()
        });
    }

    pub(super) fn set_slice(&mut self, slice: &EndpointSlice) {
        let service = slice.service_key();
        let packed = pack_object(slice);
        let name = packed_name(&slice.key, &service);

        self.change_entry(&service, |entry| {
            let slices = &entry.slices_with(&name, Some(&packed));
            PackedObjects { slices, ..entry }.pack()
        });
    }

    pub(super) fn remove_service(&mut self, key: &ObjectKey) {
        self.change_entry(key, |entry| {
            let service = &[];
            PackedObjects { service, ..entry }.pack()
        });
    }

    pub(super) fn remove_endpoints(&mut self, key: &ObjectKey) {
        // When the endpoints source changes, this function is called for every key. Entries
        // without Endpoints must not be copied.
        if self.entry(key).endpoints.is_empty() {
            return;
        }
        self.change_entry(key, |entry| {
            let endpoints = &[];
            PackedObjects { endpoints, ..entry }.pack()
        });
    }

    /// Removes all slices of a Service.
    pub(super) fn remove_slices(&mut self, service: &ObjectKey) {
        // When the endpoints source changes, this function is called for every key. Entries
        // without slices must not be copied.
        if self.entry(service).slices.is_empty() {
            return;
        }
        self.change_entry(service, |entry| {
            let slices = &[];
            PackedObjects { slices, ..entry }.pack()
        });
    }

    pub(super) fn remove_slice(&mut self, service: &ObjectKey, key: &ObjectKey) {
        let name = packed_name(key, service);
        self.change_entry(service, |entry| {
            let slices = &entry.slices_with(&name, None);
            PackedObjects { slices, ..entry }.pack()
        });
    }

    /// Changes the objects of a key, and removes the key when no object is left.
    fn change_entry(
        &mut self,
        key: &ObjectKey,
        change: impl FnOnce(PackedObjects<'_>) -> Arc<[u8]>,
    ) {
        let before = self.entry(key);
        let was_empty = before.is_empty();
        let changed = change(before);
        if PackedObjects::parse(&changed).is_empty() {
            if !was_empty {
                self.remove_entry(key);
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

    fn remove_entry(&mut self, key: &ObjectKey) {
        let Some(entries) = self.namespaces.get_mut(&key.namespace) else {
            return;
        };

        entries.remove(&key.name);
        if entries.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
    }
}
