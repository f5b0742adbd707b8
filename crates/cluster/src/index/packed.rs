//! A compact encoding of objects, to save memory in large clusters. An object stays packed, and is
//! unpacked each time it is read.
//!
//! [`Pack`] writes values one after another, without field names or padding. Numbers have a
//! variable length. The length of a text or a list precedes its content. The octets never leave the
//! process.

mod values;

use smol_str::SmolStr;

use crate::objects::{
    Address, AddressType, EndpointPlaces, EndpointPort, EndpointSlice, Endpoints, ExternalAddress,
    ObjectKey, Protocol, Service, ServiceKind, ServicePort, SliceEndpoint, Subset,
};
use crate::one_or_many::OneOrMany;

pub(super) use self::values::{pack_octets, unpack_octets};

/// A value that can be packed; [`unpack`](Self::unpack) returns an equal value.
pub(super) trait Pack: Sized {
    /// Appends the value.
    fn pack(&self, to: &mut Vec<u8>);

    /// Takes a value from the front of `from`; `None` if the octets are not a value of this type.
    fn unpack(from: &mut &[u8]) -> Option<Self>;
}

/// An object that is packed without the key that it is stored under. A slice is stored under the
/// key of its Service; all other objects are stored under their own keys.
pub(super) trait PackKeyed: Sized {
    /// Appends everything that does not follow from the key.
    fn pack(&self, to: &mut Vec<u8>);

    /// Takes an object from the front of `from`. The object is stored under `key`.
    fn unpack(key: ObjectKey, from: &mut &[u8]) -> Option<Self>;

    /// The number of cluster IPs of a Service, or of endpoint addresses of any other object.
    fn address_count(&self) -> usize;
}

/// Packs types field by field.
macro_rules! as_fields {
    ($($type:ident { $($field:ident),* })*) => {$(
        impl Pack for $type {
            fn pack(&self, to: &mut Vec<u8>) {
                $(self.$field.pack(to);)*
            }

            fn unpack(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: Pack::unpack(from)?),* })
            }
        }
    )*};
}

as_fields! {
    ServicePort { name, protocol, port }
    EndpointPort { name, protocol, port }
    Address { ip, hostname }
    Subset { ready, not_ready, ports }
}

/// Packs objects field by field, without the key.
macro_rules! as_keyed_fields {
    ($($type:ident($addresses:expr) { $($field:ident),* })*) => {$(
        impl PackKeyed for $type {
            fn pack(&self, to: &mut Vec<u8>) {
                $(self.$field.pack(to);)*
            }

            fn unpack(key: ObjectKey, from: &mut &[u8]) -> Option<Self> {
                Some(Self { key, $($field: Pack::unpack(from)?),* })
            }

            fn address_count(&self) -> usize {
                $addresses(self)
            }
        }
    )*};
}

as_keyed_fields! {
    // `over_capacity` comes first, so that it can be read without the other fields.
    Endpoints(|endpoints: &Self| endpoints.addresses().count()) { over_capacity, subsets, last_change }
}

/// Flag in the octet of `publish_not_ready`, set if external addresses follow.
const HAS_EXTERNAL: u8 = 2;

impl PackKeyed for Service {
    fn pack(&self, to: &mut Vec<u8>) {
        let has_external = !self.external.is_empty();
        let mut flags = u8::from(self.publish_not_ready);
        if has_external {
            flags |= HAS_EXTERNAL;
        }

        self.kind.pack(to);
        self.ports.pack(to);
        to.push(flags);
        self.created.pack(to);
        // Few Services have external addresses. An empty list takes no octet.
        if has_external {
            self.external.pack(to);
        }
    }

    fn unpack(key: ObjectKey, from: &mut &[u8]) -> Option<Self> {
        let kind = Pack::unpack(from)?;
        let ports = Pack::unpack(from)?;
        let flags = u8::unpack(from)?;
        let created = Pack::unpack(from)?;
        let external = if flags & HAS_EXTERNAL == 0 {
            OneOrMany::default()
        } else {
            Pack::unpack(from)?
        };

        Some(Self {
            key,
            kind,
            ports,
            publish_not_ready: flags & 1 == 1,
            created,
            external,
        })
    }

    fn address_count(&self) -> usize {
        cluster_ip_count(self)
    }
}

fn cluster_ip_count(service: &Service) -> usize {
    match &service.kind {
        ServiceKind::ClusterIp(ips) => ips.len(),
        ServiceKind::Headless | ServiceKind::ExternalName(_) | ServiceKind::WithoutIp => 0,
    }
}

/// Most slice names begin with the name of the Service, see [`pack_name`].
impl PackKeyed for EndpointSlice {
    fn pack(&self, to: &mut Vec<u8>) {
        pack_name(&self.key.name, &self.service, to);
        self.address_type.pack(to);
        self.endpoints.pack(to);
        self.ports.pack(to);
        self.last_change.pack(to);
    }

    fn unpack(service: ObjectKey, from: &mut &[u8]) -> Option<Self> {
        Some(Self {
            key: ObjectKey {
                namespace: service.namespace,
                name: unpack_name(&service.name, from)?,
            },
            service: service.name,
            address_type: Pack::unpack(from)?,
            endpoints: Pack::unpack(from)?,
            ports: Pack::unpack(from)?,
            last_change: Pack::unpack(from)?,
        })
    }

    fn address_count(&self) -> usize {
        self.addresses().count()
    }
}

/// Appends a flag and the name of a slice. The flag is set if the name begins with the name of the
/// Service. The name of the Service is then left out.
pub(super) fn pack_name(name: &str, service: &str, to: &mut Vec<u8>) {
    let rest = name.strip_prefix(service);
    rest.is_some().pack(to);
    pack_octets(rest.unwrap_or(name).as_bytes(), to);
}

fn unpack_name(service: &str, from: &mut &[u8]) -> Option<SmolStr> {
    let has_prefix = bool::unpack(from)?;
    let name = std::str::from_utf8(unpack_octets(from)?).ok()?;

    Some(if has_prefix {
        smol_str::format_smolstr!("{service}{name}")
    } else {
        name.into()
    })
}

impl Pack for ServiceKind {
    fn pack(&self, to: &mut Vec<u8>) {
        match self {
            Self::ClusterIp(addresses) => {
                to.push(0);
                addresses.pack(to);
            }
            Self::Headless => to.push(1),
            Self::ExternalName(target) => {
                to.push(2);
                target.pack(to);
            }
            Self::WithoutIp => to.push(3),
        }
    }

    fn unpack(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::unpack(from)? {
            0 => Self::ClusterIp(Pack::unpack(from)?),
            1 => Self::Headless,
            2 => Self::ExternalName(Pack::unpack(from)?),
            3 => Self::WithoutIp,
            _ => return None,
        })
    }
}

impl Pack for ExternalAddress {
    fn pack(&self, to: &mut Vec<u8>) {
        match self {
            Self::Ip(ip) => {
                to.push(0);
                ip.pack(to);
            }
            Self::Name(name) => {
                to.push(1);
                name.pack(to);
            }
        }
    }

    fn unpack(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::unpack(from)? {
            0 => Self::Ip(Pack::unpack(from)?),
            1 => Self::Name(Pack::unpack(from)?),
            _ => return None,
        })
    }
}

impl Pack for Protocol {
    fn pack(&self, to: &mut Vec<u8>) {
        match self {
            Self::Tcp => to.push(0),
            Self::Udp => to.push(1),
            Self::Sctp => to.push(2),
            Self::Other(name) => {
                to.push(3);
                name.pack(to);
            }
        }
    }

    fn unpack(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::unpack(from)? {
            0 => Self::Tcp,
            1 => Self::Udp,
            2 => Self::Sctp,
            3 => Self::Other(Pack::unpack(from)?),
            _ => return None,
        })
    }
}

impl Pack for AddressType {
    fn pack(&self, to: &mut Vec<u8>) {
        to.push(match self {
            Self::Ipv4 => 0,
            Self::Ipv6 => 1,
            Self::Other => 2,
        });
    }

    fn unpack(from: &mut &[u8]) -> Option<Self> {
        [Self::Ipv4, Self::Ipv6, Self::Other]
            .get(usize::unpack(from)?)
            .copied()
    }
}

/// Flag in the octet of the conditions, set if the zone and the hints of the endpoint follow.
const HAS_PLACES: u8 = 1 << 6;

/// The conditions share one octet, with two bits each: the lower bit says whether the condition is
/// known, the higher bit is its value.
impl Pack for SliceEndpoint {
    fn pack(&self, to: &mut Vec<u8>) {
        let mut flags = condition_bits(self.ready)
            | condition_bits(self.serving) << 2
            | condition_bits(self.terminating) << 4;
        // Without certain flags of the command line, zones and hints are unknown. If both are
        // unknown, they take no octet.
        if !self.places.are_unknown() {
            flags |= HAS_PLACES;
        }

        to.push(flags);
        self.addresses.pack(to);
        self.hostname.pack(to);
        if flags & HAS_PLACES != 0 {
            self.places.zone.pack(to);
            self.places.hinted_zones.pack(to);
            self.places.hinted_nodes.pack(to);
        }
    }

    fn unpack(from: &mut &[u8]) -> Option<Self> {
        let flags = u8::unpack(from)?;
        let addresses = Pack::unpack(from)?;
        let hostname = Pack::unpack(from)?;
        let places = if flags & HAS_PLACES == 0 {
            EndpointPlaces::default()
        } else {
            EndpointPlaces {
                zone: Pack::unpack(from)?,
                hinted_zones: Pack::unpack(from)?,
                hinted_nodes: Pack::unpack(from)?,
            }
        };

        Some(Self {
            ready: condition_of(flags),
            serving: condition_of(flags >> 2),
            terminating: condition_of(flags >> 4),
            addresses,
            hostname,
            places,
        })
    }
}

fn condition_bits(condition: Option<bool>) -> u8 {
    condition.map_or(0, |value| 1 | u8::from(value) << 1)
}

/// The condition in the two lowest bits.
fn condition_of(bits: u8) -> Option<bool> {
    (bits & 1 == 1).then_some(bits & 2 == 2)
}

#[cfg(test)]
mod tests;
