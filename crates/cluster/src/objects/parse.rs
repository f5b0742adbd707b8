//! Conversion of API objects to the reduced objects of this crate.
//!
//! An invalid address or port is dropped with a [`Note`]. An object is rejected as a whole if it
//! has no name, lacks the namespace that its kind needs, or has a field of the wrong type. Other
//! objects are not affected.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use chrono::DateTime;
use prost::Message;
use serde::de::DeserializeOwned;
use smol_str::SmolStr;

use super::api;
use super::{
    Address, AddressType, ConfigMap, EndpointPlaces, EndpointPort, EndpointSlice, Endpoints,
    ExternalAddress, ImportedSlice, Kind, Namespace, Node, ObjectKey, Pod, Protocol, ScheduledPod,
    Service, ServiceImport, ServiceKind, ServicePort, SliceEndpoint, Subset,
};
use crate::one_or_many::OneOrMany;

/// First octets of a protobuf-encoded object, followed by a `runtime.Unknown` that contains the
/// object.
pub(crate) const MAGIC: &[u8; 4] = b"k8s\0";

/// The value of [`api::OVER_CAPACITY`] if addresses were left out. Kubernetes 1.21 did not leave
/// out addresses, and set the value `warning` on objects with more than 1000 addresses.
const TRUNCATED: &str = "truncated";

/// An object as received.
#[derive(Debug, Clone)]
pub enum Encoded {
    /// JSON text.
    Json(Bytes),
    /// The protobuf message of the object, without its envelope `runtime.Unknown`.
    Protobuf(Bytes),
}

/// The reason why an object is rejected.
#[derive(Debug, thiserror::Error)]
pub enum MalformedObject {
    /// The object is not JSON, or a field has an unexpected type.
    #[error("not of the expected shape: {0}")]
    Shape(#[from] serde_json::Error),
    /// The object is not a protobuf message of its kind.
    #[error("not of the expected shape: {0}")]
    Message(#[from] prost::DecodeError),
    /// The object has no `metadata.name`.
    #[error("has no name")]
    NoName,
    /// The object has no `metadata.namespace`, although its kind is namespaced.
    #[error("has no namespace")]
    NoNamespace,
}

impl Encoded {
    /// Decodes the fields that `M` declares.
    pub(crate) fn decode<M: Message + Default + DeserializeOwned>(
        &self,
    ) -> Result<M, MalformedObject> {
        match self {
            Self::Json(json) => Ok(serde_json::from_slice(json)?),
            Self::Protobuf(message) => Ok(M::decode(message.clone())?),
        }
    }

    fn metadata(&self) -> api::Metadata {
        self.decode::<api::Bare>()
            .ok()
            .and_then(|object| object.metadata)
            .unwrap_or_default()
    }

    /// Namespace and name of any object; `None` if they cannot be read.
    pub fn key(&self) -> Option<ObjectKey> {
        // The kind is unknown here. With the kind `Node`, a missing namespace is not an error.
        self.metadata().key_of(Kind::Node).ok()
    }

    /// The resource version of any object, empty if it cannot be read.
    pub(crate) fn version(&self) -> SmolStr {
        self.metadata().version()
    }

    /// Key and UID of any object, if they can be read.
    pub(crate) fn identity(&self) -> Option<ObjectIdentity> {
        let metadata = self.metadata();
        Some(ObjectIdentity {
            key: metadata.key_of(Kind::Node).ok()?,
            uid: metadata.uid().into(),
        })
    }
}

/// Key and UID of an object.
#[derive(Debug, Clone)]
pub(crate) struct ObjectIdentity {
    pub(crate) key: ObjectKey,
    /// A deleted object that is created again with the same key has a different UID.
    pub(crate) uid: SmolStr,
}

/// A dropped invalid part of an object.
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

/// An object and the notes on its dropped parts.
#[derive(Debug)]
pub struct Parsed<T> {
    /// The object.
    pub object: T,
    /// The dropped parts.
    pub notes: Vec<Note>,
    /// The object's `metadata.resourceVersion`; empty if the object has none.
    pub version: SmolStr,
    /// The object's `metadata.uid`; empty if the object has none.
    pub uid: SmolStr,
}

impl<T> Parsed<T> {
    /// Converts the object with `form`, and keeps the other fields.
    pub(crate) fn map<U>(self, form: impl FnOnce(T) -> U) -> Parsed<U> {
        let Self {
            object,
            notes,
            version,
            uid,
        } = self;
        Parsed {
            object: form(object),
            notes,
            version,
            uid,
        }
    }
}

/// A reduced object that is converted from an API object.
pub trait FromApi: Sized + Send + 'static {
    /// The kind of these objects.
    const KIND: Kind;
    /// The fields of the API object that are read.
    type Api: Message + Default + DeserializeOwned;

    /// Converts an API object, and adds dropped parts to `notes`.
    ///
    /// # Errors
    ///
    /// [`MalformedObject`] if the object has no name, or lacks the namespace that its kind needs.
    fn convert(api: Self::Api, notes: &mut Vec<Note>) -> Result<Self, MalformedObject>;

    /// Namespace and name.
    fn key(&self) -> &ObjectKey;

    #[doc(hidden)]
    fn metadata(api: &Self::Api) -> Option<&api::Metadata>;

    /// Reads a single object, as in `items` of a list or `object` of a watch event. Ignores its
    /// `kind` and `apiVersion`, which are absent in lists.
    ///
    /// # Errors
    ///
    /// [`MalformedObject`] if a field has an unexpected type, or if the object has no name or lacks
    /// the namespace that its kind needs.
    fn read(encoded: &Encoded) -> Result<Parsed<Self>, MalformedObject> {
        let api: Self::Api = encoded.decode()?;
        let metadata = Self::metadata(&api);
        let version = metadata.map(api::Metadata::version).unwrap_or_default();
        let uid = metadata.map(api::Metadata::uid).unwrap_or_default().into();
        let mut notes = Vec::new();
        Ok(Parsed {
            object: Self::convert(api, &mut notes)?,
            notes,
            version,
            uid,
        })
    }

    /// Reads a single object in JSON, as [`read`](Self::read) does.
    ///
    /// # Errors
    ///
    /// [`MalformedObject`] if a field has an unexpected type, or if the object has no name or lacks
    /// the namespace that its kind needs.
    fn from_api(json: &str) -> Result<Parsed<Self>, MalformedObject> {
        Self::read(&Encoded::Json(Bytes::copy_from_slice(json.as_bytes())))
    }
}

/// Defines the items of [`FromApi`] that are alike for all types.
macro_rules! of_api {
    ($kind:ident, $api:ty) => {
        of_api!($kind, $api, key);
    };
    // For a wrapper type, the third argument is the path of fields to the key, such as `0.key`.
    ($kind:ident, $api:ty, $($key:tt).+) => {
        const KIND: Kind = Kind::$kind;
        type Api = $api;

        fn key(&self) -> &ObjectKey {
            &self.$($key).+
        }

        fn metadata(api: &Self::Api) -> Option<&api::Metadata> {
            api.metadata.as_ref()
        }
    };
}

impl FromApi for Service {
    of_api!(Service, api::Service);

    fn convert(api: Self::Api, notes: &mut Vec<Note>) -> Result<Self, MalformedObject> {
        let metadata = api.metadata.unwrap_or_default();
        let spec = api.spec.unwrap_or_default();

        Ok(Self {
            key: metadata.key_of(Self::KIND)?,
            kind: service_kind(&spec, notes),
            publish_not_ready: publish_not_ready(&metadata, &spec),
            created: creation_seconds(&metadata),
            external: OneOrMany::default(),
            ports: service_ports(spec.ports, notes),
        })
    }
}

impl FromApi for ServiceImport {
    of_api!(ServiceImport, api::ServiceImport, 0.key);

    fn convert(api: Self::Api, notes: &mut Vec<Note>) -> Result<Self, MalformedObject> {
        let metadata = api.metadata.unwrap_or_default();
        let spec = api.spec.unwrap_or_default();

        let kind = if spec.r#type() == "Headless" {
            ServiceKind::Headless
        } else {
            kind_by_ip(&spec.ips, notes)
        };
        Ok(Self(Service {
            key: metadata.key_of(Self::KIND)?,
            kind,
            publish_not_ready: false,
            created: creation_seconds(&metadata),
            external: OneOrMany::default(),
            ports: service_ports(spec.ports, notes),
        }))
    }
}

impl FromApi for ImportedSlice {
    of_api!(ImportedSlice, api::EndpointSlice, slice.key);

    fn convert(api: Self::Api, notes: &mut Vec<Note>) -> Result<Self, MalformedObject> {
        let labels = api
            .metadata
            .as_ref()
            .map(|metadata| metadata.labels.as_slice())
            .unwrap_or_default();
        let service = SmolStr::new(api::value(labels, api::IMPORT_NAME).unwrap_or_default());
        let cluster = api::value(labels, api::SOURCE_CLUSTER).unwrap_or_default();
        // Query names are looked up in lower case.
        let cluster = cluster.to_ascii_lowercase();

        let slice = EndpointSlice {
            service,
            ..EndpointSlice::convert(api, notes)?
        };
        Ok(Self {
            cluster: cluster.into(),
            slice,
        })
    }
}

impl FromApi for Endpoints {
    of_api!(Endpoints, api::Endpoints);

    fn convert(api: Self::Api, notes: &mut Vec<Note>) -> Result<Self, MalformedObject> {
        let metadata = api.metadata.unwrap_or_default();
        Ok(Self {
            key: metadata.key_of(Self::KIND)?,
            subsets: convert_each(api.subsets, |subset| {
                Some(Subset {
                    ready: parse_addresses(subset.addresses, notes),
                    not_ready: parse_addresses(subset.not_ready_addresses, notes),
                    ports: endpoint_ports(subset.ports, notes),
                })
            }),
            over_capacity: api::value(&metadata.annotations, api::OVER_CAPACITY) == Some(TRUNCATED),
            last_change: last_change_time(&metadata),
        })
    }
}

impl FromApi for EndpointSlice {
    of_api!(EndpointSlice, api::EndpointSlice);

    fn convert(api: Self::Api, notes: &mut Vec<Note>) -> Result<Self, MalformedObject> {
        let address_type = match api.address_type() {
            "IPv4" => AddressType::Ipv4,
            "IPv6" => AddressType::Ipv6,
            // Slices of type FQDN have names in place of addresses.
            _ => AddressType::Other,
        };
        let metadata = api.metadata.unwrap_or_default();
        Ok(Self {
            key: metadata.key_of(Self::KIND)?,
            service: SmolStr::new(
                api::value(&metadata.labels, api::SERVICE_NAME).unwrap_or_default(),
            ),
            address_type,
            endpoints: convert_each(api.endpoints, |endpoint| {
                Some(slice_endpoint(endpoint, address_type, notes))
            }),
            ports: endpoint_ports(api.ports, notes),
            last_change: last_change_time(&metadata),
        })
    }
}

/// Endpoints or a slice in which the pod's name, if it is a valid label, replaces a missing
/// hostname (`--endpoint-names=pod`). The names are read only for this type, because each name
/// costs an allocation.
#[derive(Debug)]
pub struct PodNamed<T>(pub T);

/// A slice with the zones and hints of its endpoints (`--prefer-zone`, `--zonal-names`). A
/// [`PodNamed`] slice also has them.
#[derive(Debug)]
pub struct Zoned(pub EndpointSlice);

/// A Service with its external addresses (`--external-zone`).
#[derive(Debug)]
pub struct Exposed(pub Service);

/// Implements [`FromApi`] for wrapper types, which read additional fields.
macro_rules! detailed {
    ($($type:ty, $kind:ident, $api:ident, $convert:expr;)*) => {$(
        impl FromApi for $type {
            of_api!($kind, api::$api, 0.key);

            fn convert(api: Self::Api, notes: &mut Vec<Note>) -> Result<Self, MalformedObject> {
                $convert(api, notes).map(Self)
            }
        }
    )*};
}

detailed! {
    PodNamed<Endpoints>, Endpoints, PodNamedEndpoints, |api: api::PodNamedEndpoints, notes| Endpoints::convert(api.into(), notes);
    PodNamed<EndpointSlice>, EndpointSlice, DetailedSlice, pod_named_slice;
    Zoned, EndpointSlice, DetailedSlice, zoned_slice;
    Exposed, Service, ExposedService, exposed_service;
}

fn exposed_service(
    mut api: api::ExposedService,
    notes: &mut Vec<Note>,
) -> Result<Service, MalformedObject> {
    let (addresses, names) = api.take_external();
    let mut service = Service::convert(api.into(), notes)?;

    let mut external = Vec::with_capacity(addresses.len() + names.len());
    for text in addresses {
        external.extend(parse_ip(&text, notes).map(ExternalAddress::Ip));
    }
    for name in names {
        external.push(ExternalAddress::Name(name.into()));
    }
    service.external = external.into();
    Ok(service)
}

fn pod_named_slice(
    mut api: api::DetailedSlice,
    notes: &mut Vec<Note>,
) -> Result<EndpointSlice, MalformedObject> {
    for endpoint in &mut api.endpoints {
        endpoint.name_after_pod();
    }
    zoned_slice(api, notes)
}

fn zoned_slice(
    api: api::DetailedSlice,
    notes: &mut Vec<Note>,
) -> Result<EndpointSlice, MalformedObject> {
    // The zones and hints are taken first, because the conversion drops them.
    let places: Vec<_> = api
        .endpoints
        .iter()
        .map(api::DetailedEndpoint::places)
        .collect();
    let mut slice = EndpointSlice::convert(api.into(), notes)?;
    for (endpoint, places) in slice.endpoints.iter_mut().zip(places) {
        endpoint.places = places;
    }
    Ok(slice)
}

impl FromApi for Node {
    of_api!(Node, api::Bare);

    fn convert(api: Self::Api, _: &mut Vec<Note>) -> Result<Self, MalformedObject> {
        let metadata = api.metadata.unwrap_or_default();

        Ok(Self {
            key: metadata.key_of(Self::KIND)?,
            zone: metadata.topology_label(api::ZONE, api::OLD_ZONE),
            region: metadata.topology_label(api::REGION, api::OLD_REGION),
        })
    }
}

impl FromApi for Namespace {
    of_api!(Namespace, api::Bare);

    fn convert(api: Self::Api, _: &mut Vec<Note>) -> Result<Self, MalformedObject> {
        Ok(Self {
            key: api.metadata.unwrap_or_default().key_of(Self::KIND)?,
        })
    }
}

impl FromApi for Pod {
    of_api!(Pod, api::Pod);

    fn convert(api: Self::Api, notes: &mut Vec<Note>) -> Result<Self, MalformedObject> {
        let metadata = api.metadata.unwrap_or_default();
        let status = api.status.unwrap_or_default();

        Ok(Self {
            key: metadata.key_of(Self::KIND)?,
            addresses: pod_addresses(status, notes),
        })
    }
}

impl FromApi for ScheduledPod {
    of_api!(Pod, api::ScheduledPod, pod.key);

    fn convert(api: Self::Api, notes: &mut Vec<Note>) -> Result<Self, MalformedObject> {
        let api::ScheduledPod {
            metadata,
            spec,
            status,
        } = api;
        let spec = spec.unwrap_or_default();
        let pod = Pod::convert(api::Pod { metadata, status }, notes)?;

        Ok(Self {
            pod,
            node: spec.node_name().into(),
            host_network: spec.host_network(),
        })
    }
}

impl FromApi for ConfigMap {
    of_api!(ConfigMap, api::ConfigMap);

    fn convert(api: Self::Api, _: &mut Vec<Note>) -> Result<Self, MalformedObject> {
        let key = api.metadata.unwrap_or_default().key_of(Self::KIND)?;
        Ok(Self {
            key,
            data: api
                .data
                .into_iter()
                .map(|(key, text)| (key, text.into_bytes()))
                .collect(),
        })
    }
}

impl api::Metadata {
    fn version(&self) -> SmolStr {
        self.resource_version().into()
    }

    /// The value of the label `new`, or of the label `old` if the label `new` is missing. An empty
    /// value gives `None`.
    fn topology_label(&self, new: &str, old: &str) -> Option<SmolStr> {
        let value = api::value(&self.labels, new).or_else(|| api::value(&self.labels, old))?;
        (!value.is_empty()).then(|| SmolStr::new(value))
    }

    fn key_of(&self, kind: Kind) -> Result<ObjectKey, MalformedObject> {
        let name = self.name();
        let namespace = self.namespace();
        if name.is_empty() {
            return Err(MalformedObject::NoName);
        }
        if namespace.is_empty() && !kind.is_cluster_wide() {
            return Err(MalformedObject::NoNamespace);
        }

        Ok(ObjectKey::new(namespace, name))
    }
}

fn service_kind(spec: &api::ServiceSpec, notes: &mut Vec<Note>) -> ServiceKind {
    if spec.r#type() == "ExternalName" {
        return ServiceKind::ExternalName(spec.external_name().into());
    }
    // Before Kubernetes 1.20, there was only `clusterIP`.
    let written = match spec.cluster_ips.as_slice() {
        [] => spec.cluster_ip.as_slice(),
        several => several,
    };
    if written.iter().any(|ip| ip == "None") {
        return ServiceKind::Headless;
    }
    kind_by_ip(written, notes)
}

fn kind_by_ip(written: &[String], notes: &mut Vec<Note>) -> ServiceKind {
    let ips: OneOrMany<IpAddr> = written
        .iter()
        .filter(|text| !text.is_empty())
        .filter_map(|text| parse_ip(text, notes))
        .collect();
    if ips.is_empty() {
        ServiceKind::WithoutIp
    } else {
        ServiceKind::ClusterIp(ips)
    }
}

fn publish_not_ready(metadata: &api::Metadata, spec: &api::ServiceSpec) -> bool {
    let annotated = api::value(&metadata.annotations, api::UNREADY);
    // Kubernetes reads the annotation with Go's `strconv.ParseBool`.
    match annotated {
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
        _ => spec.publish_not_ready_addresses(),
    }
}

fn slice_endpoint(
    endpoint: api::SliceEndpoint,
    kind: AddressType,
    notes: &mut Vec<Note>,
) -> SliceEndpoint {
    let conditions = endpoint.conditions.unwrap_or_default();
    let written = match kind {
        AddressType::Other => Vec::new(),
        AddressType::Ipv4 | AddressType::Ipv6 => endpoint.addresses,
    };
    SliceEndpoint {
        addresses: convert_each(written, |text| parse_ip(&text, notes)),
        hostname: parse_hostname(endpoint.hostname),
        ready: conditions.ready,
        serving: conditions.serving,
        terminating: conditions.terminating,
        places: EndpointPlaces::default(),
    }
}

/// The addresses of a pod. A pod that has ended has no addresses, because other pods may have its
/// former addresses now.
fn pod_addresses(status: api::PodStatus, notes: &mut Vec<Note>) -> OneOrMany<IpAddr> {
    if matches!(status.phase(), "Succeeded" | "Failed") {
        return OneOrMany::default();
    }

    let first = status.pod_ip().to_owned();
    let mut written = status.pod_ips;
    // Old API servers have only `podIP`.
    if written.is_empty() {
        written.push(api::PodIp { ip: first });
    }
    convert_each(written, |api::PodIp { ip }| {
        if ip.is_empty() {
            None
        } else {
            parse_ip(&ip, notes)
        }
    })
}

fn parse_addresses(list: Vec<api::Address>, notes: &mut Vec<Note>) -> Box<[Address]> {
    convert_each(list, |address| {
        Some(Address {
            ip: parse_ip(&address.ip, notes)?,
            hostname: parse_hostname(address.hostname),
        })
    })
}

fn service_ports(list: Vec<api::Port>, notes: &mut Vec<Note>) -> Arc<[ServicePort]> {
    convert_each(list, |port| {
        Some(ServicePort {
            name: port.name().into(),
            protocol: parse_protocol(port.protocol()),
            port: parse_port(port.number?, notes)?,
        })
    })
}

fn endpoint_ports(list: Vec<impl Into<api::Port>>, notes: &mut Vec<Note>) -> Arc<[EndpointPort]> {
    convert_each(list, |port| {
        let port: api::Port = port.into();
        Some(EndpointPort {
            name: port.name().into(),
            protocol: parse_protocol(port.protocol()),
            port: parse_port(port.number?, notes)?,
        })
    })
}

fn convert_each<A, B, C: FromIterator<B>>(list: Vec<A>, convert: impl FnMut(A) -> Option<B>) -> C {
    list.into_iter().filter_map(convert).collect()
}

fn parse_hostname(text: Option<String>) -> Option<SmolStr> {
    text.filter(|text| !text.is_empty()).map(SmolStr::new)
}

fn parse_ip(text: &str, notes: &mut Vec<Note>) -> Option<IpAddr> {
    let ip = text.parse::<IpAddr>().ok();
    if ip.is_none() {
        notes.push(Note::Address(SmolStr::new(text)));
    }
    ip.map(|ip| ip.to_canonical())
}

fn parse_port(number: i64, notes: &mut Vec<Note>) -> Option<u16> {
    let port = u16::try_from(number).ok();
    if port.is_none() {
        notes.push(Note::Port(number));
    }
    port
}

fn parse_protocol(text: &str) -> Protocol {
    match text {
        "" | "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        other => Protocol::Other(SmolStr::new(other)),
    }
}

fn creation_seconds(metadata: &api::Metadata) -> u32 {
    metadata
        .creation_timestamp
        .as_ref()
        .and_then(|time| u32::try_from(time.seconds).ok())
        .unwrap_or(0)
}

fn last_change_time(metadata: &api::Metadata) -> Option<SystemTime> {
    let text = api::value(&metadata.annotations, api::LAST_CHANGE)?;
    DateTime::parse_from_rfc3339(text)
        .ok()
        .map(SystemTime::from)
}

#[cfg(test)]
mod tests;
