//! Kubernetes objects as JSON, in the form in which an API server sends them, and a kubeconfig.

use serde_json::{Value, json};

/// A Service with the given `spec`.
///
/// ```
/// let web = testkit::objects::mk_service("apps", "web", serde_json::json!({"clusterIP": "10.96.0.10"}));
/// assert_eq!(web["metadata"]["namespace"], "apps");
/// ```
pub fn mk_service(namespace: &str, name: &str, spec: Value) -> Value {
    mk_object("v1", "Service", namespace, name, [("spec", spec)])
}

/// A Service with the cluster IPs `ips`, one for each IP family, and with `ports` in the form of
/// [`mk_ports`].
pub fn mk_cluster_ip(namespace: &str, name: &str, ips: &[&str], ports: &[&str]) -> Value {
    let families: Vec<&str> = ips
        .iter()
        .map(|ip| if ip.contains(':') { "IPv6" } else { "IPv4" })
        .collect();
    let spec = json!({
        "type": "ClusterIP",
        "clusterIP": ips.first(),
        "clusterIPs": ips,
        "ipFamilies": families,
        "ports": mk_ports(ports),
    });
    mk_service(namespace, name, spec)
}

/// A headless Service.
pub fn mk_headless(namespace: &str, name: &str, ports: &[&str]) -> Value {
    let spec = json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "ports": mk_ports(ports)});
    mk_service(namespace, name, spec)
}

/// A Service of type `ExternalName`.
pub fn mk_external_name(namespace: &str, name: &str, target: &str) -> Value {
    mk_service(
        namespace,
        name,
        json!({"type": "ExternalName", "externalName": target}),
    )
}

/// Ports written `name:port` for TCP, or `name:port/protocol`, such as `dns:53/UDP`. `:80` is a
/// port without a name.
pub fn mk_ports(ports: &[&str]) -> Value {
    ports.iter().map(|text| mk_port(text)).collect()
}

#[track_caller]
fn mk_port(text: &str) -> Value {
    let (name, rest) = text
        .split_once(':')
        .unwrap_or_else(|| panic!("a port is name:port, not {text:?}"));
    let (number, protocol) = rest.split_once('/').unwrap_or((rest, "TCP"));
    let number: u16 = number
        .parse()
        .unwrap_or_else(|_| panic!("not a port number: {text:?}"));
    match name {
        "" => json!({"port": number, "protocol": protocol}),
        name => json!({"name": name, "port": number, "protocol": protocol}),
    }
}

/// A Pod in this phase (`Running`, `Succeeded`, ...) with these addresses.
pub fn mk_pod(namespace: &str, name: &str, phase: &str, addresses: &[&str]) -> Value {
    let ips: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    let status = json!({"phase": phase, "podIP": addresses.first(), "podIPs": ips});
    mk_object("v1", "Pod", namespace, name, [("status", status)])
}

/// Endpoints with one subset: ready addresses written `ip` or `ip hostname`, ports in the form of
/// [`mk_ports`].
pub fn mk_endpoints(namespace: &str, name: &str, addresses: &[&str], ports: &[&str]) -> Value {
    let subset = json!({"addresses": mk_addresses(addresses), "ports": mk_ports(ports)});
    mk_endpoints_of(namespace, name, json!([subset]))
}

/// Endpoints with the given subsets.
pub fn mk_endpoints_of(namespace: &str, name: &str, subsets: Value) -> Value {
    mk_object("v1", "Endpoints", namespace, name, [("subsets", subsets)])
}

/// Addresses of an Endpoints subset, written `ip` or `ip hostname`.
pub fn mk_addresses(addresses: &[&str]) -> Value {
    let address = |text: &&str| match text.split_once(' ') {
        Some((ip, hostname)) => json!({"ip": ip, "hostname": hostname}),
        None => json!({"ip": text}),
    };
    addresses.iter().map(address).collect()
}

/// An `EndpointSlice` of a Service: ready endpoints written `ip` or `ip hostname`. The name is
/// `<service>-<suffix>`.
pub fn mk_endpoint_slice(
    namespace: &str,
    service: &str,
    suffix: &str,
    addresses: &[&str],
    ports: &[&str],
) -> Value {
    let endpoint = |text: &&str| match text.split_once(' ') {
        Some((ip, hostname)) => {
            json!({"addresses": [ip], "hostname": hostname, "conditions": {"ready": true}})
        }
        None => json!({"addresses": [text], "conditions": {"ready": true}}),
    };
    let endpoints: Vec<Value> = addresses.iter().map(endpoint).collect();
    let family = if addresses.iter().any(|text| text.contains(':')) {
        "IPv6"
    } else {
        "IPv4"
    };
    let name = format!("{service}-{suffix}");
    let fields = [
        ("addressType", json!(family)),
        ("endpoints", json!(endpoints)),
        ("ports", mk_ports(ports)),
    ];
    let version = "discovery.k8s.io/v1";
    let slice = mk_object(version, "EndpointSlice", namespace, &name, fields);
    with_labels(slice, &[("kubernetes.io/service-name", service)])
}

/// A `ServiceImport` of type `ClusterSetIP` or `Headless`, with ports in the form of [`mk_ports`].
pub fn mk_service_import(
    namespace: &str,
    name: &str,
    kind: &str,
    ips: &[&str],
    ports: &[&str],
) -> Value {
    let spec = json!({"type": kind, "ips": ips, "ports": mk_ports(ports)});
    let version = "multicluster.x-k8s.io/v1alpha1";
    mk_object(version, "ServiceImport", namespace, name, [("spec", spec)])
}

/// An `EndpointSlice` of a `ServiceImport`, with the endpoints of one cluster in the form of
/// [`mk_endpoint_slice`]. The name is `<service>-<cluster>`.
pub fn mk_imported_slice(
    namespace: &str,
    service: &str,
    cluster: &str,
    addresses: &[&str],
    ports: &[&str],
) -> Value {
    let mut slice = mk_endpoint_slice(namespace, service, cluster, addresses, ports);
    slice["metadata"]["labels"] = json!({});
    let labels = [
        ("multicluster.kubernetes.io/service-name", service),
        ("multicluster.kubernetes.io/source-cluster", cluster),
    ];
    with_labels(slice, &labels)
}

/// A `ConfigMap`.
pub fn mk_config_map(namespace: &str, name: &str, data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<String, Value> = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    mk_object("v1", "ConfigMap", namespace, name, [("data", json!(data))])
}

/// A Node with labels.
pub fn mk_node(name: &str, labels: &[(&str, &str)]) -> Value {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": {}});
    with_labels(node, labels)
}

/// A kubeconfig with one cluster and one user. `cluster` and `user` hold the fields, such as
/// `server` and `token`.
pub fn mk_kubeconfig(cluster: &Value, user: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    })
}

/// The object with these labels.
#[must_use]
pub fn with_labels(object: Value, labels: &[(&str, &str)]) -> Value {
    with_metadata(object, "labels", labels)
}

/// The object with these annotations.
#[must_use]
pub fn with_annotations(object: Value, annotations: &[(&str, &str)]) -> Value {
    with_metadata(object, "annotations", annotations)
}

fn with_metadata(mut object: Value, field: &str, pairs: &[(&str, &str)]) -> Value {
    for (key, value) in pairs {
        object["metadata"][field][*key] = json!(value);
    }
    object
}

/// An object with these fields in addition to its name.
fn mk_object<const N: usize>(
    version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
    fields: [(&str, Value); N],
) -> Value {
    let metadata = json!({"namespace": namespace, "name": name});
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
    for (field, value) in fields {
        object[field] = value;
    }
    object
}
