//! The fields of API objects that this crate reads, for both encodings of the Kubernetes API:
//! protobuf and JSON. The protobuf tags come from the files `generated.proto` in `k8s.io/api` and
//! `k8s.io/apimachinery`, except the unused tags of custom resources. Undeclared fields are
//! skipped. In JSON, Go may write an absent list or map as `null`. Values of the types in this
//! module exist only while an object is read.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use chrono::DateTime;
use prost::Message;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use smol_str::SmolStr;

use super::EndpointPlaces;
use crate::one_or_many::OneOrMany;

/// The keys of `metadata.labels` and `metadata.annotations` that are read; the JSON reader skips
/// all others.
const READ: [&str; 10] = [
    SERVICE_NAME,
    ZONE,
    REGION,
    OLD_ZONE,
    OLD_REGION,
    UNREADY,
    OVER_CAPACITY,
    LAST_CHANGE,
    IMPORT_NAME,
    SOURCE_CLUSTER,
];
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const REGION: &str = "topology.kubernetes.io/region";
pub(super) const OLD_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
pub(super) const OLD_REGION: &str = "failure-domain.beta.kubernetes.io/region";
pub(super) const UNREADY: &str = "service.alpha.kubernetes.io/tolerate-unready-endpoints";
pub(super) const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
pub(crate) const IMPORT_NAME: &str = "multicluster.kubernetes.io/service-name";
pub(super) const SOURCE_CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";
pub(super) const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// An object of any kind, of which only the metadata is read.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct Bare {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) namespace: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub(super) uid: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub(super) resource_version: Option<String>,
    #[prost(message, optional, tag = "8")]
    pub(super) creation_timestamp: Option<Time>,
    #[prost(message, repeated, tag = "11")]
    #[serde(deserialize_with = "entries")]
    pub(super) labels: Vec<Entry>,
    #[prost(message, repeated, tag = "12")]
    #[serde(deserialize_with = "entries")]
    pub(super) annotations: Vec<Entry>,
}

/// An entry of a map. In a protobuf object, key and value refer to the received octets without a
/// copy, because most entries are never used.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// The value of `key` in a map, if it is text.
pub(super) fn value<'a>(map: &'a [Entry], key: &str) -> Option<&'a str> {
    let entry = map.iter().find(|entry| entry.key == key.as_bytes())?;
    std::str::from_utf8(&entry.value).ok()
}

/// `metav1.Time`: RFC 3339 text in JSON.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Time {
    /// Seconds since 1970.
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct Service {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<ServiceSpec>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServiceSpec {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) ports: Vec<Port>,
    #[prost(string, optional, tag = "3")]
    #[serde(rename = "clusterIP")]
    pub(super) cluster_ip: Option<String>,
    #[prost(string, repeated, tag = "18")]
    #[serde(rename = "clusterIPs", deserialize_with = "nullable")]
    pub(super) cluster_ips: Vec<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) r#type: Option<String>,
    #[prost(string, optional, tag = "10")]
    pub(super) external_name: Option<String>,
    #[prost(bool, optional, tag = "13")]
    pub(super) publish_not_ready_addresses: Option<bool>,
    #[prost(string, repeated, tag = "5")]
    #[serde(rename = "externalIPs", deserialize_with = "nullable")]
    external_ips: Vec<String>,
}

/// A [`Service`] with its external addresses.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ExposedService {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    spec: Option<ServiceSpec>,
    #[prost(message, optional, tag = "3")]
    status: Option<ServiceStatus>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServiceStatus {
    #[prost(message, optional, tag = "1")]
    load_balancer: Option<LoadBalancer>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    ingress: Vec<Ingress>,
}

/// `v1.LoadBalancerIngress`: an address or a name.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct Ingress {
    #[prost(string, optional, tag = "1")]
    ip: Option<String>,
    #[prost(string, optional, tag = "2")]
    hostname: Option<String>,
}

impl ExposedService {
    /// Takes the external addresses: IP addresses as written, and host names of load balancers
    /// without an IP address.
    pub(super) fn take_external(&mut self) -> (Vec<String>, Vec<String>) {
        let mut addresses = self
            .spec
            .as_mut()
            .map(|spec| std::mem::take(&mut spec.external_ips))
            .unwrap_or_default();
        let balancer = self
            .status
            .take()
            .and_then(|status| status.load_balancer)
            .unwrap_or_default();
        let mut names = Vec::new();
        for Ingress { ip, hostname } in balancer.ingress {
            let given = |text: &String| !text.is_empty();
            match (ip.filter(given), hostname.filter(given)) {
                (Some(ip), _) => addresses.push(ip),
                (None, hostname) => names.extend(hostname),
            }
        }
        (addresses, names)
    }
}

impl From<ExposedService> for Service {
    fn from(ExposedService { metadata, spec, .. }: ExposedService) -> Self {
        Self { metadata, spec }
    }
}

/// A custom resource. Custom resources are always JSON, so the protobuf tags are unused.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ServiceImport {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<ImportSpec>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct ImportSpec {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) ports: Vec<Port>,
    #[prost(string, repeated, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub(super) ips: Vec<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) r#type: Option<String>,
}

/// `v1.ServicePort` and `discovery.v1.EndpointPort`, which have the same protobuf tags.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct Port {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) protocol: Option<String>,
    /// An `int32` in the API. The field is an `i64`, so that a number out of range invalidates only
    /// the port, not the whole object.
    #[prost(int64, optional, tag = "3")]
    #[serde(rename = "port")]
    pub(super) number: Option<i64>,
}

/// Endpoints with the hostnames as written.
pub(super) type Endpoints = EndpointsOf<Address>;
/// Endpoints in which the pod's name replaces a missing hostname, if the name is a valid label.
pub(super) type PodNamedEndpoints = EndpointsOf<PodNamedAddress>;

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, bound = "A: Deserialize<'de>")]
pub struct EndpointsOf<A: Message + Default + fmt::Debug> {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<Metadata>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub(super) subsets: Vec<SubsetOf<A>>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "A: Deserialize<'de>")]
pub(crate) struct SubsetOf<A: Message + Default + fmt::Debug> {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) addresses: Vec<A>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub(super) not_ready_addresses: Vec<A>,
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub(super) ports: Vec<SubsetPort>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct Address {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) ip: String,
    #[prost(string, optional, tag = "3")]
    pub(super) hostname: Option<String>,
}

/// `v1.EndpointPort`: a [`Port`] with other protobuf tags.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct SubsetPort {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "3")]
    protocol: Option<String>,
    #[prost(int64, optional, tag = "2")]
    #[serde(rename = "port")]
    number: Option<i64>,
}

impl From<SubsetPort> for Port {
    fn from(
        SubsetPort {
            name,
            protocol,
            number,
        }: SubsetPort,
    ) -> Self {
        Self {
            name,
            protocol,
            number,
        }
    }
}

/// A slice with only the endpoint fields that are always read.
pub(super) type EndpointSlice = SliceOf<SliceEndpoint>;
/// A slice with the additional endpoint fields that only some options need.
pub(super) type DetailedSlice = SliceOf<DetailedEndpoint>;

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "E: Deserialize<'de>")]
pub struct SliceOf<E: Message + Default + fmt::Debug> {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<Metadata>,
    #[prost(string, optional, tag = "4")]
    pub(super) address_type: Option<String>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub(super) endpoints: Vec<E>,
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub(super) ports: Vec<Port>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct SliceEndpoint {
    #[prost(string, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) addresses: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub(super) conditions: Option<Conditions>,
    #[prost(string, optional, tag = "3")]
    pub(super) hostname: Option<String>,
}

/// The `v1.ObjectReference` of a pod.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct Target {
    #[prost(string, optional, tag = "3")]
    name: Option<String>,
}

/// The name of the pod, if it is a valid label.
fn pod_name(target: Option<Target>) -> Option<String> {
    let is_label = |name: &String| (1..=63).contains(&name.len()) && !name.contains('.');
    target.and_then(|target| target.name).filter(is_label)
}

/// An [`Address`] with the name of its pod.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodNamedAddress {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    ip: String,
    #[prost(message, optional, tag = "2")]
    target_ref: Option<Target>,
    #[prost(string, optional, tag = "3")]
    hostname: Option<String>,
}

impl From<PodNamedAddress> for Address {
    fn from(
        PodNamedAddress {
            ip,
            target_ref,
            hostname,
        }: PodNamedAddress,
    ) -> Self {
        let hostname = hostname
            .filter(|name| !name.is_empty())
            .or_else(|| pod_name(target_ref));
        Self { ip, hostname }
    }
}

impl From<PodNamedEndpoints> for Endpoints {
    fn from(PodNamedEndpoints { metadata, subsets }: PodNamedEndpoints) -> Self {
        let each = |list: Vec<PodNamedAddress>| list.into_iter().map(Address::from).collect();
        let subset = |SubsetOf {
                          addresses,
                          not_ready_addresses,
                          ports,
                      }| SubsetOf {
            addresses: each(addresses),
            not_ready_addresses: each(not_ready_addresses),
            ports,
        };
        Self {
            metadata,
            subsets: subsets.into_iter().map(subset).collect(),
        }
    }
}

/// A [`SliceEndpoint`] with the additional fields that only some options need.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DetailedEndpoint {
    #[prost(string, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    addresses: Vec<String>,
    #[prost(message, optional, tag = "2")]
    conditions: Option<Conditions>,
    #[prost(string, optional, tag = "3")]
    hostname: Option<String>,
    #[prost(message, optional, tag = "4")]
    target_ref: Option<Target>,
    #[prost(string, optional, tag = "7")]
    zone: Option<String>,
    #[prost(message, optional, tag = "8")]
    hints: Option<Hints>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Hints {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    for_zones: Vec<HintedPlace>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    for_nodes: Vec<HintedPlace>,
}

/// A zone or a node whose clients an endpoint should serve.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct HintedPlace {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    name: String,
}

impl DetailedEndpoint {
    /// Uses the name of the pod as the hostname of an endpoint without a hostname, if the name is a
    /// valid label.
    pub(super) fn name_after_pod(&mut self) {
        let pod = self.target_ref.take();
        self.hostname = self
            .hostname
            .take()
            .filter(|name| !name.is_empty())
            .or_else(|| pod_name(pod));
    }

    pub(super) fn places(&self) -> EndpointPlaces {
        let hints = self.hints.as_ref();
        EndpointPlaces {
            zone: Some(self.zone())
                .filter(|zone| !zone.is_empty())
                .map(SmolStr::new),
            hinted_zones: place_names(hints.map(|hints| &hints.for_zones)),
            hinted_nodes: place_names(hints.map(|hints| &hints.for_nodes)),
        }
    }
}

fn place_names(places: Option<&Vec<HintedPlace>>) -> OneOrMany<SmolStr> {
    places
        .into_iter()
        .flatten()
        .map(|place| place.name.as_str())
        .filter(|name| !name.is_empty())
        .map(SmolStr::new)
        .collect()
}

impl From<DetailedEndpoint> for SliceEndpoint {
    fn from(endpoint: DetailedEndpoint) -> Self {
        let DetailedEndpoint {
            addresses,
            conditions,
            hostname,
            ..
        } = endpoint;
        Self {
            addresses,
            conditions,
            hostname,
        }
    }
}

impl From<DetailedSlice> for EndpointSlice {
    fn from(
        DetailedSlice {
            metadata,
            address_type,
            endpoints,
            ports,
        }: DetailedSlice,
    ) -> Self {
        Self {
            metadata,
            address_type,
            endpoints: endpoints.into_iter().map(SliceEndpoint::from).collect(),
            ports,
        }
    }
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct Conditions {
    #[prost(bool, optional, tag = "1")]
    pub(super) ready: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub(super) serving: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    pub(super) terminating: Option<bool>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct Pod {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<Metadata>,
    #[prost(message, optional, tag = "3")]
    pub(super) status: Option<PodStatus>,
}

/// A [`Pod`] with its `spec`: the name of its node, and `hostNetwork`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ScheduledPod {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<PodSpec>,
    #[prost(message, optional, tag = "3")]
    pub(super) status: Option<PodStatus>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    #[prost(string, optional, tag = "10")]
    pub(super) node_name: Option<String>,
    #[prost(bool, optional, tag = "11")]
    pub(super) host_network: Option<bool>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    #[prost(string, optional, tag = "1")]
    pub(super) phase: Option<String>,
    #[prost(string, optional, tag = "6")]
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Option<String>,
    #[prost(message, repeated, tag = "12")]
    #[serde(rename = "podIPs", deserialize_with = "nullable")]
    pub(super) pod_ips: Vec<PodIp>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct PodIp {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) ip: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ConfigMap {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<Metadata>,
    #[prost(btree_map = "string, string", tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub(super) data: BTreeMap<String, String>,
}

/// Reads `null` as the default value, as Go does.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

impl<'de> Deserialize<'de> for Time {
    /// Invalid text is read as 0 seconds since 1970.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let seconds = DateTime::parse_from_rfc3339(&text).map_or(0, |time| time.timestamp());
        Ok(Self { seconds })
    }
}

/// Reads a JSON object and keeps the entries whose keys are in [`READ`].
fn entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Entry>, D::Error> {
    struct Entries;

    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<Entry>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of strings")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(key) = map.next_key::<String>()? {
                // Most labels and annotations are never used, so their values are not copied.
                if !READ.contains(&key.as_str()) {
                    map.next_value::<IgnoredAny>()?;
                } else if let Some(value) = map.next_value::<Option<String>>()? {
                    entries.push(Entry {
                        key: key.into(),
                        value: value.into(),
                    });
                }
            }
            Ok(entries)
        }
    }

    deserializer.deserialize_any(Entries)
}
