//! kubedns uses less than 20 MiB of anonymous memory for a large cluster.

use apiserver::{Options, RunningApiServer};
use serde_json::{Value, json};
use testkit::objects::{mk_cluster_ip, mk_endpoint_slice, mk_headless};
use testkit::processes::Usage;

use super::process::Kubedns;

const PORTS: &[&str] = &["http:80", "metrics:9090"];

/// Ten thousand Services with thirty thousand addresses. As in a real cluster, the objects have
/// fields that kubedns does not need.
fn large() -> impl Iterator<Item = Value> {
    let ballast = |mut object: Value| {
        object["metadata"]["annotations"] =
            json!({ "kubectl.kubernetes.io/last-applied-configuration": "x".repeat(300) });
        object["metadata"]["managedFields"] =
            json!([{ "manager": "test", "fieldsV1": { "f:spec": { "f:ports": {} } } }]);
        object
    };
    (0..10_000_u32).flat_map(move |number| {
        let namespace = format!("ns{}", number % 100);
        let name = format!("service-{number:05}");
        let service = if number % 5 == 0 {
            mk_headless(&namespace, &name, PORTS)
        } else {
            let ip = format!("10.96.{}.{}", number / 256, number % 256);
            mk_cluster_ip(&namespace, &name, &[&ip], PORTS)
        };
        let addresses: Vec<String> = (0..3_u32)
            .map(|replica| number * 3 + replica)
            .map(|pod| format!("10.{}.{}.{}", 128 + pod / 65536, pod / 256 % 256, pod % 256))
            .collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let slice = mk_endpoint_slice(&namespace, &name, "abcde", &addresses, PORTS);
        [ballast(service), ballast(slice)]
    })
}

#[tokio::test]
async fn large_cluster_fits_in_memory() {
    let cluster = RunningApiServer::start(Options {
        history: 100,
        ..Options::empty()
    });
    cluster.store.load(large()).unwrap();
    let kubedns = Kubedns::ready(&cluster, &[]).await;
    let last = "service-09999.ns99.svc.cluster.local.";
    assert_eq!(kubedns.answers(last, "A").await, "10.96.39.15");
    let headless = kubedns
        .ask("service-09995.ns95.svc.cluster.local.", "A")
        .await;
    assert_eq!(headless.answer_data("A").len(), 3);
    kubedns
        .until_metric("kubedns_addresses{kind=\"endpointslices\"}", 30_000.0)
        .await;
    let memory = Usage::of(kubedns.process.id()).unwrap().anonymous / 1024;
    println!("kubedns uses {memory} MiB");
    assert!(memory < 20, "kubedns uses {memory} MiB for 10,000 Services");
    cluster.set(mk_cluster_ip(
        "ns0",
        "one-more",
        &["10.97.0.1"],
        &["http:80"],
    ));
    kubedns
        .until_answered("one-more.ns0.svc.cluster.local.", "A", "10.97.0.1")
        .await;
}
