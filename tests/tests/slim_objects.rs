//! Compares the objects parsed as types of k8s-openapi with the same objects parsed as our smaller
//! types. Both must have the same names, addresses, ports and readiness.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests: a broken set-up ends the test with its reason"
)]

use std::net::IpAddr;

use cluster::objects::{
    EndpointPort, EndpointSlice, Endpoints, FromApi, ObjectKey, Service, ServiceKind,
};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tests::conformance::vector;

/// A port: name, protocol, number.
type Port = (String, String, i64);

/// The objects of the recorded scenarios and of the example cluster. Only the example cluster has
/// EndpointSlices, since kube-dns does not read them.
fn objects() -> Vec<Value> {
    let scenarios = vector::load_all().expect("the vectors");
    let recorded = scenarios.iter().flat_map(|scenario| {
        let events = scenario.steps.iter().flat_map(|step| &step.events);
        let changed = events.filter_map(|event| event.get("object"));
        scenario
            .initial
            .iter()
            .chain(changed)
            .cloned()
            .collect::<Vec<Value>>()
    });
    recorded.chain(example_objects()).collect()
}

fn example_objects() -> Vec<Value> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/cluster");
    let mut objects = Vec::new();
    let entries = std::fs::read_dir(directory).expect("the example cluster");
    let files = entries.map(|entry| entry.expect("an entry").path());
    for file in files.filter(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml")
    }) {
        let text = std::fs::read_to_string(file).expect("a manifest");
        for document in serde_norway::Deserializer::from_str(&text) {
            let mut object = Value::deserialize(document).expect("YAML");
            if object.get("kind").is_some() && object["metadata"].get("namespace").is_none() {
                object["metadata"]["namespace"] = "default".into();
            }
            objects.push(object);
        }
    }
    objects
}

#[test]
fn typed_and_slim_objects_agree() {
    let (mut services, mut endpoints, mut slices) = (0, 0, 0);
    for object in objects() {
        let json = object.to_string();
        match object["kind"].as_str().unwrap_or_default() {
            "Service" => {
                services += 1;
                let expected = typed_service(&typed(&object));
                assert_eq!(slim_service(&json), expected, "{json}");
            }
            "Endpoints" => {
                endpoints += 1;
                let expected = typed_endpoints(&typed(&object));
                assert_eq!(slim_endpoints(&json), expected, "{json}");
            }
            "EndpointSlice" => {
                slices += 1;
                assert_eq!(slim_slice(&json), typed_slice(&typed(&object)), "{json}");
            }
            _ => {}
        }
    }
    assert!(
        services > 300 && endpoints > 150 && slices > 3,
        "{services} {endpoints} {slices}"
    );
}

fn typed<T: DeserializeOwned>(object: &Value) -> T {
    T::deserialize(object).unwrap_or_else(|error| panic!("{error}: {object}"))
}

fn slim<T: FromApi>(json: &str) -> T {
    T::from_api(json)
        .unwrap_or_else(|error| panic!("{error}: {json}"))
        .object
}

fn key(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

fn port(name: Option<&String>, protocol: Option<&String>, number: i32) -> Option<Port> {
    let protocol = protocol
        .filter(|protocol| !protocol.is_empty())
        .map_or("TCP", String::as_str);
    u16::try_from(number).ok()?;
    Some((
        name.cloned().unwrap_or_default(),
        protocol.to_owned(),
        number.into(),
    ))
}

fn addresses<'a>(texts: impl IntoIterator<Item = &'a String>) -> Vec<IpAddr> {
    texts
        .into_iter()
        .filter_map(|text| Some(text.parse::<IpAddr>().ok()?.to_canonical()))
        .collect()
}

/// The compared fields of a Service: key, cluster IPs or external name, ports, and
/// `publishNotReadyAddresses`.
type ServiceView = (ObjectKey, String, Vec<Port>, bool);

fn typed_service(service: &core::Service) -> ServiceView {
    let spec = service.spec.clone().unwrap_or_default();
    let listed = spec.cluster_ips.filter(|list| !list.is_empty());
    let ips = listed.unwrap_or_else(|| spec.cluster_ip.into_iter().collect());
    let kind = match spec.type_.as_deref() {
        Some("ExternalName") => format!("alias of {}", spec.external_name.unwrap_or_default()),
        _ if ips.iter().any(|ip| ip == "None") => "headless".to_owned(),
        _ => format!("{:?}", addresses(&ips)),
    };
    let ports = spec.ports.unwrap_or_default();
    let ports = ports
        .iter()
        .filter_map(|p| port(p.name.as_ref(), p.protocol.as_ref(), p.port))
        .collect();
    let annotations = service.metadata.annotations.clone().unwrap_or_default();
    let publish = match annotations.get("service.alpha.kubernetes.io/tolerate-unready-endpoints") {
        Some(text) => text == "true",
        None => spec.publish_not_ready_addresses.unwrap_or_default(),
    };
    (key(&service.metadata), kind, ports, publish)
}

fn slim_service(json: &str) -> ServiceView {
    let service: Service = slim(json);
    let kind = match &service.kind {
        ServiceKind::ExternalName(name) => format!("alias of {name}"),
        ServiceKind::Headless => "headless".to_owned(),
        ServiceKind::ClusterIp(ips) => format!("{:?}", ips.iter().collect::<Vec<_>>()),
        ServiceKind::WithoutIp => "[]".to_owned(),
    };
    let ports = service.ports.iter();
    let ports = ports
        .map(|p| {
            (
                p.name.to_string(),
                p.protocol.as_str().to_owned(),
                p.port.into(),
            )
        })
        .collect();
    (service.key.clone(), kind, ports, service.publish_not_ready)
}

/// The compared fields of Endpoints. For each subset: the addresses with hostname and readiness,
/// and the ports.
type EndpointsView = (ObjectKey, Vec<(Vec<(IpAddr, String, bool)>, Vec<Port>)>);

fn typed_endpoints(endpoints: &core::Endpoints) -> EndpointsView {
    let subsets = endpoints.subsets.iter().flatten().map(|subset| {
        let ready = subset
            .addresses
            .iter()
            .flatten()
            .map(|address| (address, true));
        let all = ready.chain(
            subset
                .not_ready_addresses
                .iter()
                .flatten()
                .map(|address| (address, false)),
        );
        let found = all.filter_map(|(address, ready)| {
            let ip = addresses([&address.ip]).pop()?;
            Some((ip, address.hostname.clone().unwrap_or_default(), ready))
        });
        let ports = subset.ports.iter().flatten();
        let ports = ports
            .filter_map(|p| port(p.name.as_ref(), p.protocol.as_ref(), p.port))
            .collect();
        (found.collect(), ports)
    });
    (key(&endpoints.metadata), subsets.collect())
}

fn slim_endpoints(json: &str) -> EndpointsView {
    let endpoints: Endpoints = slim(json);
    let subsets = endpoints.subsets.iter().map(|subset| {
        let ready = subset.ready.iter().map(|address| (address, true));
        let all = ready.chain(subset.not_ready.iter().map(|address| (address, false)));
        let hostname =
            |name: &Option<_>| name.as_ref().map(ToString::to_string).unwrap_or_default();
        let found = all.map(|(address, ready)| (address.ip, hostname(&address.hostname), ready));
        (found.collect(), slim_ports(&subset.ports))
    });
    (endpoints.key.clone(), subsets.collect())
}

/// The compared fields of an EndpointSlice: the name of its Service, the addresses, hostname and
/// conditions of each endpoint, and the ports.
type SliceView = (
    ObjectKey,
    String,
    Vec<(Vec<IpAddr>, String, [Option<bool>; 3])>,
    Vec<Port>,
);

fn typed_slice(slice: &discovery::EndpointSlice) -> SliceView {
    let labels = slice.metadata.labels.clone().unwrap_or_default();
    let service = labels
        .get("kubernetes.io/service-name")
        .cloned()
        .unwrap_or_default();
    let endpoints = slice.endpoints.iter().map(|endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let states = [conditions.ready, conditions.serving, conditions.terminating];
        (
            addresses(&endpoint.addresses),
            endpoint.hostname.clone().unwrap_or_default(),
            states,
        )
    });
    let ports = slice.ports.iter().flatten();
    let ports = ports
        .filter_map(|p| port(p.name.as_ref(), p.protocol.as_ref(), p.port?))
        .collect();
    (key(&slice.metadata), service, endpoints.collect(), ports)
}

fn slim_slice(json: &str) -> SliceView {
    let slice: EndpointSlice = slim(json);
    let endpoints = slice.endpoints.iter().map(|endpoint| {
        let hostname = endpoint
            .hostname
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        let states = [endpoint.ready, endpoint.serving, endpoint.terminating];
        (
            endpoint.addresses.iter().copied().collect(),
            hostname,
            states,
        )
    });
    (
        slice.key.clone(),
        slice.service.to_string(),
        endpoints.collect(),
        slim_ports(&slice.ports),
    )
}

fn slim_ports(ports: &[EndpointPort]) -> Vec<Port> {
    let port = |p: &EndpointPort| {
        (
            p.name.to_string(),
            p.protocol.as_str().to_owned(),
            p.port.into(),
        )
    };
    ports.iter().map(port).collect()
}
