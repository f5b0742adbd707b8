//! The Kubernetes objects that kubedns reads, and the events that carry the objects. Each type
//! holds only the fields that kubedns uses.
//!
//! A large cluster has tens of thousands of objects. So these types hold no labels, no managed
//! fields and no resource versions, and their lists have no spare capacity.
//! [`read`](FromApi::read) converts objects of the API. The module `records` builds records from
//! the converted objects.

mod api;
mod events;
mod parse;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::one_or_many::OneOrMany;

pub(crate) use api::IMPORT_NAME;
pub use events::{Change, EndpointsSource, Event};
pub(crate) use events::{ChangeWrapper, EventConverter, KeyedEvent};
pub use parse::{Encoded, Exposed, FromApi, MalformedObject, Note, Parsed, PodNamed, Zoned};
pub(crate) use parse::{MAGIC, ObjectIdentity};

/// Namespace and name of an object. Cluster-scoped objects have an empty namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectKey {
    /// The namespace, empty for cluster-scoped objects.
    pub namespace: SmolStr,
    /// The name within the namespace.
    pub name: SmolStr,
}

impl ObjectKey {
    /// The key of `name` in `namespace`.
    pub fn new(namespace: impl Into<SmolStr>, name: impl Into<SmolStr>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// The kinds of objects that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// core/v1 Service.
    Service,
    /// core/v1 Endpoints.
    Endpoints,
    /// discovery.k8s.io/v1 `EndpointSlice`.
    EndpointSlice,
    /// core/v1 Node.
    Node,
    /// core/v1 `ConfigMap`; only the ConfigMap with the configuration.
    ConfigMap,
    /// core/v1 Namespace.
    Namespace,
    /// core/v1 Pod.
    Pod,
    /// multicluster.x-k8s.io/v1alpha1 `ServiceImport`.
    ServiceImport,
    /// discovery.k8s.io/v1 `EndpointSlice` of a `ServiceImport`. Such slices have a watch of their
    /// own.
    ImportedSlice,
}

impl Kind {
    /// The plural of the kind in lower case, as in URLs and RBAC rules.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Service => "services",
            Self::Endpoints => "endpoints",
            Self::EndpointSlice | Self::ImportedSlice => "endpointslices",
            Self::Node => "nodes",
            Self::ConfigMap => "configmaps",
            Self::Namespace => "namespaces",
            Self::Pod => "pods",
            Self::ServiceImport => "serviceimports",
        }
    }

    /// The kind in metric labels and log lines: the plural, except for slices of imports, which
    /// share their plural with all other slices.
    pub fn label(self) -> &'static str {
        match self {
            Self::ImportedSlice => "imported_endpointslices",
            other => other.plural(),
        }
    }

    /// The path of the kind's API group and version on the API server.
    pub fn api(self) -> &'static str {
        match self {
            Self::EndpointSlice | Self::ImportedSlice => "/apis/discovery.k8s.io/v1",
            Self::ServiceImport => "/apis/multicluster.x-k8s.io/v1alpha1",
            Self::Service
            | Self::Endpoints
            | Self::Node
            | Self::ConfigMap
            | Self::Namespace
            | Self::Pod => "/api/v1",
        }
    }

    /// Whether objects of this kind have no namespace.
    pub fn is_cluster_wide(self) -> bool {
        matches!(self, Self::Node | Self::Namespace)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The kind of the Service, which determines its records.
    pub kind: ServiceKind,
    /// The ports in the order of the object.
    pub ports: Arc<[ServicePort]>,
    /// Whether unready addresses are published too: `spec.publishNotReadyAddresses`, or the older
    /// annotation `service.alpha.kubernetes.io/tolerate-unready-endpoints`. As in Kubernetes, a
    /// valid value of the annotation overrides the field.
    pub publish_not_ready: bool,
    /// Creation time in seconds since 1970, 0 if unknown. If several Services share an address, the
    /// PTR record of the oldest Service comes first.
    pub created: u32,
    /// External addresses: `spec.externalIPs` and the addresses of the load balancer. Only read
    /// with `--external-zone`.
    #[serde(default, skip_serializing_if = "has_none")]
    pub external: OneOrMany<ExternalAddress>,
}

/// An external address of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExternalAddress {
    /// An IP address.
    Ip(IpAddr),
    /// The host name of a load balancer, unchecked.
    Name(SmolStr),
}

/// Kind of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceKind {
    /// Has cluster IPs, one for each of its IP families. The list is never empty.
    ClusterIp(OneOrMany<IpAddr>),
    /// Cluster IP `None`: clients get the addresses of the endpoints.
    Headless,
    /// An alias of another name: `spec.externalName` as written, unchecked.
    ExternalName(SmolStr),
    /// Has no valid cluster IP yet.
    WithoutIp,
}

/// A transport protocol as Services and Endpoints name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP, the default.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// Any other protocol, as written in the object.
    Other(SmolStr),
}

impl Protocol {
    /// The protocol as Kubernetes writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
            Self::Other(name) => name,
        }
    }
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServicePort {
    /// The name; empty for an unnamed port.
    pub name: SmolStr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port of the Service (not of the pods).
    pub port: u16,
}

/// An Endpoints object: the endpoint addresses of the Service with the same name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    /// Namespace and name, the same as those of the Service.
    pub key: ObjectKey,
    /// The subsets in the order of the object.
    pub subsets: Box<[Subset]>,
    /// Whether the control plane left out addresses because there are more than 1000 (annotation
    /// `endpoints.kubernetes.io/over-capacity` with the value `truncated`).
    pub over_capacity: bool,
    /// The time of the pod or Service change that triggered the last update of this object
    /// (annotation `endpoints.kubernetes.io/last-change-trigger-time`).
    pub last_change: Option<SystemTime>,
}

impl Endpoints {
    /// All addresses, ready or not.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.subsets
            .iter()
            .flat_map(|subset| subset.ready.iter().chain(&subset.not_ready))
            .map(|address| address.ip)
    }
}

/// Addresses that share a set of ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subset {
    /// The ready addresses.
    pub ready: Box<[Address]>,
    /// The unready addresses.
    pub not_ready: Box<[Address]>,
    /// The ports of all these addresses.
    pub ports: Arc<[EndpointPort]>,
}

/// An address of an Endpoints object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address. An IPv4-mapped IPv6 address is converted to IPv4.
    pub ip: IpAddr,
    /// The hostname, never empty. With `--endpoint-names=pod`, the name of the pod replaces a
    /// missing hostname if the name is a valid label.
    pub hostname: Option<SmolStr>,
}

/// A port of endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EndpointPort {
    /// The name; empty for an unnamed port.
    pub name: SmolStr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port of the pods.
    pub port: u16,
}

/// An `EndpointSlice`: a part of the endpoints of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointSlice {
    /// Namespace and name of the slice.
    pub key: ObjectKey,
    /// The name of the Service (label `kubernetes.io/service-name`) in the slice's namespace. Empty
    /// if the label is missing.
    pub service: SmolStr,
    /// Type of the addresses.
    pub address_type: AddressType,
    /// The endpoints in the order of the object.
    pub endpoints: Box<[SliceEndpoint]>,
    /// The ports of all endpoints. A port without a number, which means any port, is left out.
    pub ports: Arc<[EndpointPort]>,
    /// See [`Endpoints::last_change`].
    pub last_change: Option<SystemTime>,
}

impl EndpointSlice {
    /// Namespace and name of the slice's Service.
    pub fn service_key(&self) -> ObjectKey {
        ObjectKey {
            namespace: self.key.namespace.clone(),
            name: self.service.clone(),
        }
    }

    /// The slice without the zones and hints of its endpoints.
    #[must_use]
    pub fn without_places(mut self) -> Self {
        for endpoint in &mut self.endpoints {
            endpoint.places = EndpointPlaces::default();
        }
        self
    }

    /// All addresses, ready or not.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.endpoints
            .iter()
            .flat_map(|endpoint| endpoint.addresses.iter().copied())
    }
}

/// Type of the addresses of an [`EndpointSlice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressType {
    /// IPv4 addresses.
    Ipv4,
    /// IPv6 addresses.
    Ipv6,
    /// Domain names or an unknown type. The addresses of such a slice are not read.
    Other,
}

/// An endpoint of a slice, with its conditions as written. An unknown condition is `None`. An
/// unknown `ready` means true, an unknown `serving` means the value of `ready`, and an unknown
/// `terminating` means false.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceEndpoint {
    /// The addresses.
    pub addresses: OneOrMany<IpAddr>,
    /// The hostname, never empty. With `--endpoint-names=pod`, the name of the pod replaces a
    /// missing hostname if the name is a valid label.
    pub hostname: Option<SmolStr>,
    /// Whether the endpoint is ready: it serves and is not terminating, or its Service publishes
    /// unready addresses.
    pub ready: Option<bool>,
    /// Whether the endpoint passes its readiness probe, even while it terminates.
    pub serving: Option<bool>,
    /// Whether the endpoint is terminating.
    pub terminating: Option<bool>,
    /// The zone and the hints of the endpoint. Only set with `--prefer-zone` or `--zonal-names`.
    #[serde(default, skip_serializing_if = "EndpointPlaces::are_unknown")]
    pub places: EndpointPlaces,
}

fn has_none<T>(list: &OneOrMany<T>) -> bool {
    list.is_empty()
}

/// The zone of an endpoint, and its hints: the zones and nodes whose clients it should serve.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointPlaces {
    /// The zone of the endpoint itself.
    pub zone: Option<SmolStr>,
    /// The zones in its hints. Kubernetes writes hints if the Service has `trafficDistribution`, or
    /// the older annotation `service.kubernetes.io/topology-mode`.
    pub hinted_zones: OneOrMany<SmolStr>,
    /// The nodes in its hints (KEP-3015).
    pub hinted_nodes: OneOrMany<SmolStr>,
}

impl EndpointPlaces {
    /// Whether the endpoint has no zone and no hints.
    pub fn are_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// A node, reduced to its topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The name. The field `namespace` of the key is empty.
    pub key: ObjectKey,
    /// The zone (label `topology.kubernetes.io/zone`, else
    /// `failure-domain.beta.kubernetes.io/zone`).
    pub zone: Option<SmolStr>,
    /// The region (label `topology.kubernetes.io/region`, else
    /// `failure-domain.beta.kubernetes.io/region`).
    pub region: Option<SmolStr>,
}

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// The name. The field `namespace` of the key is empty.
    pub key: ObjectKey,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The addresses (`status.podIPs`, else `status.podIP`); empty if the pod has ended.
    pub addresses: OneOrMany<IpAddr>,
}

/// A pod with its node, for look-ups of a few pods. The watch of all pods does not read the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledPod {
    /// The pod.
    pub pod: Pod,
    /// The name of the node; empty if the pod is not scheduled yet.
    pub node: SmolStr,
    /// Whether the pod has the addresses of its node (`spec.hostNetwork`).
    pub host_network: bool,
}

/// A `ServiceImport`: a Service of the cluster set. An import of type `Headless` is read as a
/// headless Service. An import of any other type, such as `ClusterSetIP`, is read as a Service with
/// cluster IPs, or, if the import has no valid IP yet, as a Service without a cluster IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceImport(pub Service);

/// An `EndpointSlice` of a `ServiceImport`. In the contained slice, `service` is the name of the
/// import (label `multicluster.kubernetes.io/service-name`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedSlice {
    /// The cluster that has the endpoints (label `multicluster.kubernetes.io/source-cluster`), in
    /// lower case. Empty if the label is missing.
    pub cluster: SmolStr,
    /// The slice.
    pub slice: EndpointSlice,
}

/// A `ConfigMap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMap {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `data`, without `binaryData`.
    pub data: BTreeMap<String, Vec<u8>>,
}
