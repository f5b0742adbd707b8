use super::*;

fn completed(resource: Resource, mut value: Value) -> Result<Value, Status> {
    value["metadata"] = json!({ "name": "x", "namespace": "n" });
    let ranges = crate::allocate::service_ranges();
    complete(resource, value, None, Unknown::Drop, (&ranges, &mut Ledger::default()))
}

#[test]
fn fills_in_like_a_real_server() {
    let cases = [
        (
            Resource::Endpoints,
            json!({ "subsets": [{ "addresses": [{ "ip": "10.0.0.1" }], "ports": [{ "port": 1 }] }] }),
            "/subsets/0/ports",
            json!([{ "port": 1, "protocol": "TCP" }]),
        ),
        (
            Resource::EndpointSlices,
            json!({ "addressType": "IPv4", "endpoints": [{ "addresses": ["10.0.0.1"] }] }),
            "/endpoints/0/conditions",
            json!({ "ready": true }),
        ),
        (
            Resource::EndpointSlices,
            json!({ "addressType": "IPv4", "ports": [{ "port": 1 }] }),
            "/ports",
            json!([{ "port": 1, "protocol": "TCP", "name": "" }]),
        ),
        (
            Resource::Services,
            json!({ "spec": { "clusterIP": "None" } }),
            "/status",
            json!({ "loadBalancer": {} }),
        ),
        (Resource::Namespaces, json!({}), "/spec", json!({ "finalizers": ["kubernetes"] })),
        (Resource::Namespaces, json!({}), "/status", json!({ "phase": "Active" })),
        (Resource::Namespaces, json!({}), "/metadata/labels", json!({ "kubernetes.io/metadata.name": "x" })),
    ];
    for (resource, given, at, expected) in cases {
        assert_eq!(completed(resource, given).unwrap().pointer(at), Some(&expected), "{resource} {at}");
    }
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_a_real_server() {
    let subset = |subset: Value| (Resource::Endpoints, json!({ "subsets": [subset] }));
    let slice = |value: Value| (Resource::EndpointSlices, value);
    let port = json!({ "port": 80, "protocol": "TCP" });
    let cases = [
        (subset(json!({})), "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"),
        (
            subset(json!({ "addresses": [{ "ip": "x" }] })),
            "subsets[0].addresses[0].ip: Invalid value: \"x\": must be a valid IP",
        ),
        (subset(json!({ "addresses": [{ "ip": "127.0.0.1" }] })), "may not be in the loopback range"),
        (
            subset(json!({ "addresses": [{ "ip": "10.0.0.1", "hostname": "A" }] })),
            "subsets[0].addresses[0].hostname: Invalid value",
        ),
        (
            subset(json!({ "addresses": [{ "ip": "10.0.0.1" }], "ports": [port, port] })),
            "subsets[0].ports[0].name: Required value",
        ),
        (
            subset(json!({ "addresses": [{ "ip": "10.0.0.1" }], "ports": [{ "port": 0 }] })),
            "subsets[0].ports[0].port: Invalid value: 0",
        ),
        (slice(json!({})), "EndpointSlice.discovery.k8s.io \"x\" is invalid: addressType: Required value"),
        (slice(json!({ "addressType": "IP" })), "addressType: Unsupported value: \"IP\""),
        (
            slice(json!({ "addressType": "IPv4", "endpoints": [{ "addresses": [] }] })),
            "endpoints[0].addresses: Required value",
        ),
        (
            slice(json!({ "addressType": "IPv4", "endpoints": [{ "addresses": ["fd00::1"] }] })),
            "must be an IPv4 address",
        ),
        (
            slice(json!({ "addressType": "IPv4", "ports": [{ "protocol": "X" }] })),
            "ports[0].protocol: Unsupported value: \"X\"",
        ),
        ((Resource::ConfigMaps, json!({ "data": { "a/b": "" } })), "data[a/b]: Invalid value: \"a/b\""),
    ];
    for ((resource, value), message) in cases {
        let error = completed(resource, value).unwrap_err();
        assert!(error.message().contains(message), "{error}");
    }
}
