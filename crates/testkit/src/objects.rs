//! Kubernetes objects as JSON, in the form of an API server.

use serde_json::{Value, json};

/// A Service with the given `spec`.
///
/// ```
/// let web = testkit::objects::mk_service("apps", "web", serde_json::json!({"clusterIP": "10.96.0.10"}));
/// assert_eq!(web["metadata"]["namespace"], "apps");
/// ```
pub fn mk_service(namespace: &str, name: &str, spec: Value) -> Value {
    let mut service = mk_object("v1", "Service", namespace, name);
    set(&mut service, "spec", spec);
    service
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

/// Ports written `name:port` for TCP, or `name:port/UDP`. `:80` is a port without a name.
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
    let mut pod = mk_object("v1", "Pod", namespace, name);
    set(
        &mut pod,
        "status",
        json!({"phase": phase, "podIP": addresses.first(), "podIPs": ips}),
    );
    pod
}

/// Endpoints with one subset: ready addresses written `ip` or `ip hostname`, ports in the form of
/// [`mk_ports`].
pub fn mk_endpoints(namespace: &str, name: &str, addresses: &[&str], ports: &[&str]) -> Value {
    mk_endpoints_of(
        namespace,
        name,
        json!([{"addresses": mk_addresses(addresses), "ports": mk_ports(ports)}]),
    )
}

/// Endpoints with any subsets.
pub fn mk_endpoints_of(namespace: &str, name: &str, subsets: Value) -> Value {
    let mut endpoints = mk_object("v1", "Endpoints", namespace, name);
    set(&mut endpoints, "subsets", subsets);
    endpoints
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
/// `service-suffix`.
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
    let mut slice = mk_object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        namespace,
        &format!("{service}-{suffix}"),
    );
    set(&mut slice, "addressType", json!(family));
    set(&mut slice, "endpoints", json!(endpoints));
    set(&mut slice, "ports", mk_ports(ports));
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
    let mut import = mk_object(
        "multicluster.x-k8s.io/v1alpha1",
        "ServiceImport",
        namespace,
        name,
    );
    set(
        &mut import,
        "spec",
        json!({"type": kind, "ips": ips, "ports": mk_ports(ports)}),
    );
    import
}

/// An `EndpointSlice` of a `ServiceImport`, with the endpoints of one cluster in the form of
/// [`mk_endpoint_slice`]. The name is `service-cluster`.
pub fn mk_imported_slice(
    namespace: &str,
    service: &str,
    cluster: &str,
    addresses: &[&str],
    ports: &[&str],
) -> Value {
    let mut slice = mk_endpoint_slice(namespace, service, cluster, addresses, ports);
    set(&mut slice["metadata"], "labels", json!({}));
    let labels = [
        ("multicluster.kubernetes.io/service-name", service),
        ("multicluster.kubernetes.io/source-cluster", cluster),
    ];
    with_labels(slice, &labels)
}

/// A `ConfigMap`.
pub fn mk_config_map(namespace: &str, name: &str, data: &[(&str, &str)]) -> Value {
    let mut config_map = mk_object("v1", "ConfigMap", namespace, name);
    let data: serde_json::Map<String, Value> = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    set(&mut config_map, "data", Value::Object(data));
    config_map
}

/// A Node with labels.
pub fn mk_node(name: &str, labels: &[(&str, &str)]) -> Value {
    let mut node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}});
    set(&mut node, "status", json!({}));
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

fn mk_object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace, "name": name}})
}

fn set(object: &mut Value, field: &str, value: Value) {
    object[field] = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dual_stack_service() {
        let service = mk_cluster_ip(
            "apps",
            "web",
            &["10.96.0.10", "fd00::10"],
            &["http:80", "dns:53/UDP", ":81"],
        );
        let spec = json!({
            "type": "ClusterIP", "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10", "fd00::10"],
            "ipFamilies": ["IPv4", "IPv6"],
            "ports": [
                {"name": "http", "port": 80, "protocol": "TCP"},
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"port": 81, "protocol": "TCP"},
            ],
        });
        let metadata = json!({"namespace": "apps", "name": "web"});
        let expected =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        assert_eq!(service, expected);
    }

    #[test]
    fn endpoints_and_slices_tell_the_same() {
        let endpoints = mk_endpoints("apps", "db", &["10.0.0.1 db-0", "10.0.0.2"], &["sql:5432"]);
        let addresses = json!([{"ip": "10.0.0.1", "hostname": "db-0"}, {"ip": "10.0.0.2"}]);
        assert_eq!(endpoints["subsets"][0]["addresses"], addresses);
        let slice = mk_endpoint_slice("apps", "db", "x1", &["10.0.0.1 db-0"], &["sql:5432"]);
        assert_eq!(
            slice["metadata"]["labels"],
            json!({"kubernetes.io/service-name": "db"})
        );
        assert_eq!(slice["endpoints"][0]["hostname"], "db-0");
    }
}
