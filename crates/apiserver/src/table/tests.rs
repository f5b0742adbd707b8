use serde_json::json;

use super::*;
use crate::Resource;

fn cells(resource: Resource, mut value: Value) -> Vec<String> {
    value["metadata"] = json!({ "name": "x", "namespace": "n", "labels": value["labels"] });
    let table = single(&Object::new(resource, value, 7).unwrap());
    let width = table["columnDefinitions"].as_array().unwrap().len();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), width);
    cells.iter().map(|cell| cell.as_str().map_or_else(|| cell.to_string(), ToOwned::to_owned)).collect()
}

#[test]
fn rows_read_like_those_of_a_real_server() {
    let address = |ip: &str| json!({ "ip": ip });
    let cases = [
        (
            Resource::Services,
            json!({ "spec": { "type": "NodePort", "clusterIP": "10.96.0.7", "selector": { "a": "b" },
                              "ports": [{ "port": 80, "nodePort": 30080, "protocol": "TCP" }, { "port": 53, "protocol": "UDP" }] } }),
            vec!["x", "NodePort", "10.96.0.7", "<none>", "80:30080/TCP,53/UDP", "<unknown>", "a=b"],
        ),
        (
            Resource::Services,
            json!({ "spec": { "type": "ExternalName", "externalName": "www.outside.test" } }),
            vec!["x", "ExternalName", "<none>", "www.outside.test", "<none>", "<unknown>", "<none>"],
        ),
        (
            Resource::Endpoints,
            json!({ "subsets": [{ "addresses": [address("10.0.0.1"), address("fd00::1")],
                                  "ports": [{ "port": 1 }, { "port": 2 }] }] }),
            vec!["x", "10.0.0.1:1,10.0.0.1:2,[fd00::1]:1 + 1 more...", "<unknown>"],
        ),
        (
            Resource::EndpointSlices,
            json!({ "addressType": "IPv4", "ports": [{ "port": 80 }], "endpoints": [{ "addresses": ["10.0.0.1"] }] }),
            vec!["x", "IPv4", "80", "10.0.0.1", "<unknown>"],
        ),
        (
            Resource::ConfigMaps,
            json!({ "data": { "a": "b" }, "binaryData": { "c": "" } }),
            vec!["x", "2", "<unknown>"],
        ),
        (Resource::Namespaces, json!({ "status": { "phase": "Active" } }), vec!["x", "Active", "<unknown>"]),
        (
            Resource::Nodes,
            json!({ "labels": { "node-role.kubernetes.io/control-plane": "" },
                    "status": { "conditions": [{ "type": "Ready", "status": "True" }],
                                "nodeInfo": { "kubeletVersion": "v1.36.0" } } }),
            vec!["x", "Ready", "control-plane", "<unknown>", "v1.36.0"],
        ),
        (
            Resource::Pods,
            json!({ "spec": { "containers": [{}, {}] },
                    "status": { "phase": "Running", "podIP": "10.0.0.1",
                                "containerStatuses": [{ "ready": true, "restartCount": 3 }] } }),
            vec!["x", "1/2", "Running", "3", "<unknown>", "10.0.0.1", "<none>"],
        ),
    ];
    for (resource, value, expected) in cases {
        assert_eq!(cells(resource, value), expected);
    }
}

#[test]
fn odd_objects_still_have_rows() {
    for resource in Resource::all() {
        for value in
            [json!({}), json!({ "spec": 5, "status": [], "subsets": [1], "endpoints": "x", "ports": [[]] })]
        {
            cells(resource, value);
        }
    }
}
