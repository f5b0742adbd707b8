//! The Kubernetes objects that make DNS records, reduced to what makes records, and the events that bring them.
//!
//! The types are our own: a large cluster keeps tens of thousands of them, so they hold no labels, no managed
//! fields, no resource versions and no spare capacity. [`read`](FromApi::read) makes them from objects of
//! the API. It is not the place where records are made of them.

mod api;
mod parse;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::few::Few;

pub(crate) use api::IMPORT_NAME;
pub(crate) use parse::MAGIC;
pub use parse::{Encoded, Exposed, FromApi, MalformedObject, Note, Parsed, PodNamed, Zoned};

/// Namespace and name of an object. Cluster-wide objects have an empty namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectKey {
    /// The namespace, empty for cluster-wide objects.
    pub namespace: SmolStr,
    /// The name within the namespace.
    pub name: SmolStr,
}

impl ObjectKey {
    /// The key of `name` in `namespace`.
    pub fn new(namespace: impl Into<SmolStr>, name: impl Into<SmolStr>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
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
    /// core/v1 `ConfigMap`; only the one with our configuration.
    ConfigMap,
    /// core/v1 Namespace.
    Namespace,
    /// core/v1 Pod.
    Pod,
    /// multicluster.x-k8s.io/v1alpha1 `ServiceImport`.
    ServiceImport,
    /// discovery.k8s.io/v1 `EndpointSlice` of a `ServiceImport`. They are watched by themselves.
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

    /// The kind in metric labels and log lines: its plural, which the endpoint slices of imports do not have alone.
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
            Self::Service | Self::Endpoints | Self::Node | Self::ConfigMap | Self::Namespace | Self::Pod => {
                "/api/v1"
            }
        }
    }

    /// Whether its objects are in no namespace.
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
    /// The kind of the Service, and so its records.
    pub kind: ServiceKind,
    /// The ports in the order of the object.
    pub ports: Arc<[ServicePort]>,
    /// Addresses that are not ready are published too (`spec.publishNotReadyAddresses`, or the older annotation
    /// `service.alpha.kubernetes.io/tolerate-unready-endpoints`, which wins over the field as in Kubernetes).
    pub publish_not_ready: bool,
    /// Creation time in seconds since 1970, 0 if unknown. Decides which owner of a shared address comes first.
    pub created: u32,
    /// Its addresses outside of the cluster: `spec.externalIPs`, and those of its load balancer. Read only for
    /// `--external-zone`.
    #[serde(default, skip_serializing_if = "has_none")]
    pub external: Few<ExternalAddress>,
}

/// An address of a Service outside of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExternalAddress {
    /// An address.
    Ip(IpAddr),
    /// The name of a load balancer, as written.
    Name(SmolStr),
}

/// Kind of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceKind {
    /// Through virtual addresses: one, or one for each IP family. Never empty.
    ClusterIp(Few<IpAddr>),
    /// Cluster IP `None`: through the addresses of its endpoints.
    Headless,
    /// An alias for a name: `spec.externalName` as written, without further checks.
    ExternalName(SmolStr),
    /// None of these: no cluster IP was given (or none that is an address).
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
    /// Anything else, as written.
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
    /// The name, empty if it has none.
    pub name: SmolStr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port of the Service (not of the pods).
    pub port: u16,
}

/// An Endpoints object: the addresses behind the Service of the same name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    /// Namespace and name, those of the Service.
    pub key: ObjectKey,
    /// The subsets in the order of the object.
    pub subsets: Box<[Subset]>,
    /// The control plane left addresses out, since there are more than 1000
    /// (annotation `endpoints.kubernetes.io/over-capacity`).
    pub over_capacity: bool,
    /// When the pod or Service changed that made the control plane write this version
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
    /// Addresses that are ready.
    pub ready: Box<[Address]>,
    /// Addresses that are not.
    pub not_ready: Box<[Address]>,
    /// The ports all of them have.
    pub ports: Arc<[EndpointPort]>,
}

/// An address of an Endpoints object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address; an IPv4-mapped IPv6 address is kept as the IPv4 address it stands for.
    pub ip: IpAddr,
    /// The hostname, never empty.
    pub hostname: Option<SmolStr>,
}

/// A port of endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EndpointPort {
    /// The name, empty if it has none.
    pub name: SmolStr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port of the pods.
    pub port: u16,
}

/// An `EndpointSlice`: some of the addresses behind a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointSlice {
    /// Namespace and name of the slice.
    pub key: ObjectKey,
    /// The Service it belongs to (label `kubernetes.io/service-name`), in the slice's namespace. Empty if it has
    /// none.
    pub service: SmolStr,
    /// Type of its addresses.
    pub address_type: AddressType,
    /// The endpoints in the order of the object.
    pub endpoints: Box<[SliceEndpoint]>,
    /// The ports all of them have. A port without a number (meaning any port) is left out.
    pub ports: Arc<[EndpointPort]>,
    /// As for [`Endpoints::last_change`].
    pub last_change: Option<SystemTime>,
}

impl EndpointSlice {
    /// Namespace and name of the Service it belongs to.
    pub fn service_key(&self) -> ObjectKey {
        ObjectKey { namespace: self.key.namespace.clone(), name: self.service.clone() }
    }

    /// The slice as it is without the zones of its endpoints.
    #[must_use]
    pub fn without_zones(mut self) -> Self {
        for endpoint in &mut self.endpoints {
            endpoint.zones = Few::default();
        }
        self
    }

    /// All addresses, ready or not.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.endpoints.iter().flat_map(|endpoint| endpoint.addresses.iter().copied())
    }
}

/// Type of the addresses of an [`EndpointSlice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressType {
    /// IPv4 addresses.
    Ipv4,
    /// IPv6 addresses.
    Ipv6,
    /// Domain names or a type we do not know. Such a slice has no addresses here.
    Other,
}

/// An endpoint of a slice with its conditions as written: `None` is "unknown", which consumers take for
/// ready, for serving if ready, and for not terminating.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceEndpoint {
    /// Its addresses, which all lead to the same pod.
    pub addresses: Few<IpAddr>,
    /// The hostname, never empty.
    pub hostname: Option<SmolStr>,
    /// Takes new connections: serving and not terminating, or published whatever its state.
    pub ready: Option<bool>,
    /// Passes its readiness probe, terminating or not.
    pub serving: Option<bool>,
    /// Is being stopped.
    pub terminating: Option<bool>,
    /// The zones whose clients it is for: those of its hints, or the zone that it is in. Read only for
    /// `--prefer-zone`.
    #[serde(default, skip_serializing_if = "has_none")]
    pub zones: Few<SmolStr>,
}

fn has_none<T>(list: &Few<T>) -> bool {
    list.is_empty()
}

/// Where a node is, for federation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The name; the namespace is empty.
    pub key: ObjectKey,
    /// The zone (label `topology.kubernetes.io/zone`, before it `failure-domain.beta.kubernetes.io/zone`).
    pub zone: Option<SmolStr>,
    /// The region (label `topology.kubernetes.io/region`, before it `failure-domain.beta.kubernetes.io/region`).
    pub region: Option<SmolStr>,
}

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// The name; the namespace is empty.
    pub key: ObjectKey,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its addresses (`status.podIPs`); none once it has ended.
    pub addresses: Few<IpAddr>,
}

/// A `ServiceImport`: a Service of the cluster set. Of type `ClusterSetIP` it has cluster IPs, or none yet; else it is headless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceImport(pub Service);

/// An `EndpointSlice` of a `ServiceImport`, which stands in the place of the slice's Service (label
/// `multicluster.kubernetes.io/service-name`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedSlice {
    /// The cluster that its endpoints are in (label `multicluster.kubernetes.io/source-cluster`), in lower case. Empty if
    /// it has none.
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

/// Change of one kind of objects. A list comes as `RelistStarted`, the objects, `RelistDone`; what was known
/// before and did not come in between is gone. A list that breaks off is begun again with another `RelistStarted`;
/// until a `RelistDone` nothing is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// A list begins.
    RelistStarted,
    /// This object exists, as part of a list or because it was created or changed.
    Apply(T),
    /// The list is complete.
    RelistDone,
    /// This object is gone (or has become so malformed that a fresh start would not see it).
    Deleted(ObjectKey),
}

impl<T> Change<T> {
    /// The same about another form of the object.
    pub fn map<U>(self, form: impl FnOnce(T) -> U) -> Change<U> {
        match self {
            Self::RelistStarted => Change::RelistStarted,
            Self::Apply(object) => Change::Apply(form(object)),
            Self::RelistDone => Change::RelistDone,
            Self::Deleted(key) => Change::Deleted(key),
        }
    }
}

/// Which kind of objects tells what is behind Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EndpointsSource {
    /// Endpoints objects.
    Endpoints,
    /// `EndpointSlice` objects.
    EndpointSlices,
}

/// Events of the watchers for the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// About Services.
    Service(Change<Service>),
    /// About Endpoints.
    Endpoints(Change<Endpoints>),
    /// About slices.
    EndpointSlice(Change<EndpointSlice>),
    /// About nodes; only while federations are configured.
    Node(Change<Node>),
    /// About the node that this process runs on, whose zone is preferred.
    OwnNode(Change<Node>),
    /// About the namespaces that a selector matches.
    Namespace(Change<Namespace>),
    /// About pods.
    Pod(Change<Pod>),
    /// About Services of the cluster set; only while it is served.
    ServiceImport(Change<ServiceImport>),
    /// About their slices.
    ImportedSlice(Change<ImportedSlice>),
    /// From here on the endpoints of this source count. It comes after the first `RelistDone` of that source; changes
    /// of both may lie in between. Slices go on to be told while Endpoints count, or are taken back by an empty list;
    /// Endpoints end when slices count, and begin with a list when they are needed again. Before the first of these
    /// events, the endpoints are not known.
    EndpointsFrom(EndpointsSource),
    /// Slices count and can no longer be read. From here on Endpoints count, unless they tell less.
    EndpointsInsteadOfSlices,
}
