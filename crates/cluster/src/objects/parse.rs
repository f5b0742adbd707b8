//! The JSON of the API to slim objects: what is tolerated, what is noted, what is refused.
//!
//! One bad address or port is dropped with a [`Note`]; only an object without a name or with the wrong JSON types
//! is refused as a whole. Neither stops the objects around it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use chrono::DateTime;
use smol_str::SmolStr;

use super::api;
use super::{
    Address, AddressType, EndpointPort, EndpointSlice, Endpoints, Kind, Node, ObjectKey, Protocol, Service,
    ServiceKind, ServicePort, SliceEndpoint, Subset,
};
use crate::few::Few;

/// An object that cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum MalformedObject {
    /// Not JSON, or JSON of another shape.
    #[error("not of the expected shape: {0}")]
    Shape(#[from] serde_json::Error),
    /// It has no `metadata.name`.
    #[error("has no name")]
    NoName,
    /// It has no `metadata.namespace`, and its kind is not cluster-wide.
    #[error("has no namespace")]
    NoNamespace,
}

/// A part of an object that was left out because it makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Not an IP address.
    Address(SmolStr),
    /// Not a port number.
    Port(i64),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(text) => write!(f, "{text:?} is not an IP address"),
            Self::Port(number) => write!(f, "{number} is not a port number"),
        }
    }
}

/// An object and what was left out of it.
#[derive(Debug)]
pub struct Parsed<T> {
    /// The object.
    pub object: T,
    /// What was left out.
    pub notes: Vec<Note>,
    /// Its `metadata.resourceVersion`, empty if it has none.
    pub version: SmolStr,
}

/// A slim object that can be made from the JSON of the API.
pub trait FromApi: Sized + Send + 'static {
    /// The kind of these objects.
    const KIND: Kind;

    /// Reads one object. `json` is a single object as in `items` of a list or `object` of a watch event; its own
    /// `kind` and `apiVersion` (absent in lists) are not looked at.
    fn from_api(json: &str) -> Result<Parsed<Self>, MalformedObject>;

    /// Namespace and name.
    fn key(&self) -> &ObjectKey;
}

/// Namespace and name of any object, as far as they can be read.
pub fn key_of(json: &str) -> Option<ObjectKey> {
    let object: api::Bare<'_> = serde_json::from_str(json).ok()?;
    object.metadata.key_of(Kind::Node).ok()
}

/// The resource version of any object, empty if it has none that can be read.
pub fn version_of(json: &str) -> SmolStr {
    serde_json::from_str::<api::Bare<'_>>(json).map(|object| object.metadata.version()).unwrap_or_default()
}

/// Key and UID of any object, if both can be read.
pub fn identity_of(json: &str) -> Option<(ObjectKey, String)> {
    let object: api::Bare<'_> = serde_json::from_str(json).ok()?;
    let uid = object.metadata.uid.as_deref()?.to_owned();
    Some((object.metadata.key_of(Kind::Node).ok()?, uid))
}

impl FromApi for Service {
    const KIND: Kind = Kind::Service;

    fn from_api(json: &str) -> Result<Parsed<Self>, MalformedObject> {
        let api::Service { metadata, spec } = serde_json::from_str(json)?;
        let mut notes = Vec::new();
        let object = Self {
            key: metadata.key_of(Self::KIND)?,
            kind: service_kind(&spec, &mut notes),
            publish_not_ready: publish_not_ready(&metadata, &spec),
            created: created(&metadata),
            ports: each(spec.ports, |port| {
                Some(ServicePort {
                    name: SmolStr::new(port.name.unwrap_or_default()),
                    protocol: protocol(port.protocol.as_deref()),
                    port: port_number(port.number?, &mut notes)?,
                })
            }),
        };
        Ok(Parsed { object, notes, version: metadata.version() })
    }

    fn key(&self) -> &ObjectKey {
        &self.key
    }
}

impl FromApi for Endpoints {
    const KIND: Kind = Kind::Endpoints;

    fn from_api(json: &str) -> Result<Parsed<Self>, MalformedObject> {
        let api::Endpoints { metadata, subsets } = serde_json::from_str(json)?;
        let mut notes = Vec::new();
        let object = Self {
            key: metadata.key_of(Self::KIND)?,
            subsets: each(subsets, |subset| {
                Some(Subset {
                    ready: addresses(subset.addresses, &mut notes),
                    not_ready: addresses(subset.not_ready_addresses, &mut notes),
                    ports: endpoint_ports(subset.ports, &mut notes),
                })
            }),
            over_capacity: metadata.annotations.over_capacity.is_some(),
            last_change: last_change(&metadata),
        };
        Ok(Parsed { object, notes, version: metadata.version() })
    }

    fn key(&self) -> &ObjectKey {
        &self.key
    }
}

impl FromApi for EndpointSlice {
    const KIND: Kind = Kind::EndpointSlice;

    fn from_api(json: &str) -> Result<Parsed<Self>, MalformedObject> {
        let slice: api::EndpointSlice<'_> = serde_json::from_str(json)?;
        let address_type = match slice.address_type.as_deref() {
            Some("IPv4") => AddressType::Ipv4,
            Some("IPv6") => AddressType::Ipv6,
            _ => AddressType::Other,
        };
        let mut notes = Vec::new();
        let object = Self {
            key: slice.metadata.key_of(Self::KIND)?,
            service: SmolStr::new(slice.metadata.labels.service_name.as_deref().unwrap_or_default()),
            address_type,
            endpoints: each(slice.endpoints, |endpoint| {
                Some(slice_endpoint(endpoint, address_type, &mut notes))
            }),
            ports: endpoint_ports(slice.ports, &mut notes),
            last_change: last_change(&slice.metadata),
        };
        Ok(Parsed { object, notes, version: slice.metadata.version() })
    }

    fn key(&self) -> &ObjectKey {
        &self.key
    }
}

impl FromApi for Node {
    const KIND: Kind = Kind::Node;

    fn from_api(json: &str) -> Result<Parsed<Self>, MalformedObject> {
        let api::Bare { metadata } = serde_json::from_str(json)?;
        let label = |new: &Option<api::Text<'_>>, old: &Option<api::Text<'_>>| {
            let found = new.as_ref().or(old.as_ref())?;
            (!found.is_empty()).then(|| SmolStr::new(found))
        };
        let labels = &metadata.labels;
        let object = Self {
            key: metadata.key_of(Self::KIND)?,
            zone: label(&labels.zone, &labels.old_zone),
            region: label(&labels.region, &labels.old_region),
        };
        Ok(Parsed { object, notes: Vec::new(), version: metadata.version() })
    }

    fn key(&self) -> &ObjectKey {
        &self.key
    }
}

impl api::Metadata<'_> {
    fn version(&self) -> SmolStr {
        SmolStr::new(self.resource_version.as_deref().unwrap_or_default())
    }

    fn key_of(&self, kind: Kind) -> Result<ObjectKey, MalformedObject> {
        let name = self.name.as_deref().unwrap_or_default();
        let namespace = self.namespace.as_deref().unwrap_or_default();
        if name.is_empty() {
            return Err(MalformedObject::NoName);
        }
        if namespace.is_empty() && kind != Kind::Node {
            return Err(MalformedObject::NoNamespace);
        }
        Ok(ObjectKey::new(namespace, name))
    }
}

fn service_kind(spec: &api::ServiceSpec<'_>, notes: &mut Vec<Note>) -> ServiceKind {
    if spec.r#type.as_deref() == Some("ExternalName") {
        return ServiceKind::ExternalName(SmolStr::new(spec.external_name.as_deref().unwrap_or_default()));
    }
    let written: Vec<&str> = match spec.cluster_ips.as_deref() {
        Some(several) if !several.is_empty() => several.iter().map(AsRef::as_ref).collect(),
        _ => spec.cluster_ip.as_deref().into_iter().collect(),
    };
    if written.contains(&"None") {
        return ServiceKind::Headless;
    }
    let ips: Few<IpAddr> = written
        .into_iter()
        .filter(|text| !text.is_empty())
        .filter_map(|text| ip_address(text, notes))
        .collect();
    if ips.is_empty() { ServiceKind::WithoutIp } else { ServiceKind::ClusterIp(ips) }
}

fn publish_not_ready(metadata: &api::Metadata<'_>, spec: &api::ServiceSpec<'_>) -> bool {
    let annotated = metadata.annotations.tolerate_unready.as_deref();
    match annotated {
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
        _ => spec.publish_not_ready_addresses.unwrap_or(false),
    }
}

fn slice_endpoint(
    endpoint: api::SliceEndpoint<'_>,
    kind: AddressType,
    notes: &mut Vec<Note>,
) -> SliceEndpoint {
    let conditions = endpoint.conditions.unwrap_or_default();
    let written = match kind {
        AddressType::Other => None,
        AddressType::Ipv4 | AddressType::Ipv6 => endpoint.addresses,
    };
    SliceEndpoint {
        addresses: each(written, |text| ip_address(&text, notes)),
        hostname: hostname(endpoint.hostname),
        ready: conditions.ready,
        serving: conditions.serving,
        terminating: conditions.terminating,
    }
}

fn addresses(list: Option<Vec<api::Address<'_>>>, notes: &mut Vec<Note>) -> Box<[Address]> {
    each(list, |address| {
        Some(Address {
            ip: ip_address(&address.ip.unwrap_or_default(), notes)?,
            hostname: hostname(address.hostname),
        })
    })
}

fn endpoint_ports(list: Option<Vec<api::Port<'_>>>, notes: &mut Vec<Note>) -> Arc<[EndpointPort]> {
    each(list, |port| {
        Some(EndpointPort {
            name: SmolStr::new(port.name.unwrap_or_default()),
            protocol: protocol(port.protocol.as_deref()),
            port: port_number(port.number?, notes)?,
        })
    })
}

fn each<A, B, C: FromIterator<B>>(list: Option<Vec<A>>, convert: impl FnMut(A) -> Option<B>) -> C {
    list.unwrap_or_default().into_iter().filter_map(convert).collect()
}

fn hostname(text: Option<api::Text<'_>>) -> Option<SmolStr> {
    text.filter(|text| !text.is_empty()).map(SmolStr::new)
}

fn ip_address(text: &str, notes: &mut Vec<Note>) -> Option<IpAddr> {
    let ip = text.parse::<IpAddr>().ok();
    if ip.is_none() {
        notes.push(Note::Address(SmolStr::new(text)));
    }
    ip.map(|ip| ip.to_canonical())
}

fn port_number(number: i64, notes: &mut Vec<Note>) -> Option<u16> {
    let port = u16::try_from(number).ok();
    if port.is_none() {
        notes.push(Note::Port(number));
    }
    port
}

fn protocol(text: Option<&str>) -> Protocol {
    match text {
        None | Some("" | "TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(other) => Protocol::Other(SmolStr::new(other)),
    }
}

fn created(metadata: &api::Metadata<'_>) -> u32 {
    metadata
        .creation_timestamp
        .as_deref()
        .and_then(|text| DateTime::parse_from_rfc3339(text).ok())
        .and_then(|time| u32::try_from(time.timestamp()).ok())
        .unwrap_or(0)
}

fn last_change(metadata: &api::Metadata<'_>) -> Option<SystemTime> {
    let text = metadata.annotations.last_change.as_deref()?;
    DateTime::parse_from_rfc3339(text).ok().map(SystemTime::from)
}

#[cfg(test)]
mod tests;
