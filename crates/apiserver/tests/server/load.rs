//! As many objects as benchmarks use.

use apiserver::Resource;
use serde_json::{Value, json};

use crate::client::Server;

fn service(index: usize) -> Value {
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": { "name": format!("s{index}"), "namespace": format!("ns{}", index % 100), "uid": "0",
                      "creationTimestamp": "2026-11-20T20:53:46Z", "labels": { "app": "web" } },
        "spec": { "clusterIP": format!("10.{}.{}.{}", index >> 16, (index >> 8) & 255, index & 255), "type": "ClusterIP",
                  "ports": [{ "name": "http", "protocol": "TCP", "port": 80, "targetPort": 80 }],
                  "selector": { "app": "web" }, "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack" },
    })
}

fn endpoints(index: usize) -> Value {
    let addresses: Vec<Value> =
        (1..=5).map(|last| json!({ "ip": format!("10.1.{}.{last}", index % 256) })).collect();
    json!({
        "kind": "Endpoints", "apiVersion": "v1",
        "metadata": { "name": format!("s{index}"), "namespace": format!("ns{}", index % 100) },
        "subsets": [{ "addresses": addresses, "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }] }],
    })
}

#[tokio::test]
async fn ten_thousand_services_and_endpoints() {
    let server = Server::start();
    server.store.load((0..10_000).flat_map(|index| [service(index), endpoints(index)])).unwrap();
    assert_eq!(server.store.count(Resource::Services), 10_001);
    for path in ["/api/v1/services", "/api/v1/endpoints"] {
        let list = server.get(path).await;
        assert_eq!(list.names().len(), 10_001);
        assert_eq!(list.header("transfer-encoding"), Some("chunked"));
    }
    let mut pages = 0;
    let mut token = String::new();
    let mut count = 0;
    loop {
        let page = server.get(&format!("/api/v1/services?limit=500&continue={token}")).await.json();
        pages += 1;
        count += page["items"].as_array().unwrap().len();
        match page["metadata"]["continue"].as_str() {
            Some(next) => next.clone_into(&mut token),
            None => break,
        }
    }
    assert_eq!((pages, count), (21, 10_001));
    server.stop().await;
}
