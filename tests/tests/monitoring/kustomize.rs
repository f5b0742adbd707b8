//! Checks of the objects that `kubectl kustomize manifests/monitoring` renders.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use tests::manifests::render::{combine, label, manifests_root, render, rendered};

const DEPLOYMENT: &str = "Deployment/kube-dns";
const MONITOR: &str = "PodMonitor/kube-dns";

/// The objects by kind and name, such as `PodMonitor/kube-dns`.
fn by_label(objects: Vec<Value>) -> BTreeMap<String, Value> {
    objects
        .into_iter()
        .map(|object| (label(&object), object))
        .collect()
}

#[test]
fn monitoring_directory_renders() {
    let directory = manifests_root().join("monitoring");
    let objects = by_label(render(&directory).unwrap());
    let labels: Vec<&str> = objects.keys().map(String::as_str).collect();
    let expected = [
        "ConfigMap/kube-dns-dashboard",
        MONITOR,
        "PrometheusRule/kube-dns",
    ];
    assert_eq!(labels, expected);
    for object in objects.values() {
        assert_eq!(object["metadata"]["namespace"], "kube-system");
    }
    let map = &objects["ConfigMap/kube-dns-dashboard"];
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    let dashboard = fs::read_to_string(directory.join("dashboard.json")).unwrap();
    let shown = map["data"]["kube-dns.json"].as_str();
    assert_eq!(shown, Some(dashboard.as_str()));
}

/// The ports of a workload that the `PodMonitor` scrapes, each with the name of its container.
fn scraped(workload: &Value, monitor: &Value) -> Vec<(String, u64)> {
    let pod = &workload["spec"]["template"];
    for (label, value) in monitor["spec"]["selector"]["matchLabels"]
        .as_object()
        .unwrap()
    {
        assert_eq!(
            &pod["metadata"]["labels"][label], value,
            "the PodMonitor does not select the pods"
        );
    }
    let endpoints = monitor["spec"]["podMetricsEndpoints"].as_array().unwrap();
    let names: Vec<&Value> = endpoints.iter().map(|endpoint| &endpoint["port"]).collect();
    let ports = |container: &Value| {
        let all = container["ports"].as_array().cloned().unwrap_or_default();
        let scraped = all
            .into_iter()
            .filter(|port| names.contains(&&port["name"]));
        let container = container["name"].as_str().unwrap().to_owned();
        scraped
            .map(move |port| (container.clone(), port["containerPort"].as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    pod["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(ports)
        .collect()
}

fn ports(of: &[(&str, u64)]) -> Vec<(String, u64)> {
    of.iter()
        .map(|(container, port)| ((*container).to_owned(), *port))
        .collect()
}

#[test]
fn pods_without_dnsmasq_are_scraped_for_kubedns_and_sidecar() {
    let monitor = &by_label(render(&manifests_root().join("monitoring")).unwrap())[MONITOR];
    for (directory, workload) in [("alone", DEPLOYMENT), ("node", "DaemonSet/kube-dns")] {
        let pods = &by_label(rendered(directory).unwrap())[workload];
        let expected = ports(&[("kubedns", 10055), ("sidecar", 10054)]);
        assert_eq!(scraped(pods, monitor), expected, "{directory}");
    }
}

#[test]
fn pod_monitor_scrapes_nanny_only_with_expose_nanny() {
    let monitor = &by_label(render(&manifests_root().join("monitoring")).unwrap())[MONITOR];
    for topology in [
        "base",
        "cache",
        "stock-1.36",
        "hardened",
        "direct",
        "ha",
        "nodelocal",
    ] {
        let plain = &by_label(rendered(topology).unwrap())[DEPLOYMENT];
        let expected = ports(&[("kubedns", 10055), ("sidecar", 10054)]);
        assert_eq!(scraped(plain, monitor), expected, "{topology}");

        let overlay = tempfile::tempdir().unwrap();
        let exposed =
            combine(overlay.path(), &[topology], &["../monitoring/expose-nanny"]).unwrap();
        let exposed = &by_label(exposed)[DEPLOYMENT];
        let expected = ports(&[("kubedns", 10055), ("dnsmasq", 10056), ("sidecar", 10054)]);
        assert_eq!(scraped(exposed, monitor), expected, "{topology}");
        let nanny =
            |deployment: &Value| deployment["spec"]["template"]["spec"]["containers"][1].clone();
        let (plain, exposed) = (nanny(plain), nanny(exposed));
        let args = exposed["args"].as_array().unwrap();
        assert_eq!(args[0], "-statusAddr=:10056", "{topology}");
        assert_eq!(args[1..], *plain["args"].as_array().unwrap(), "{topology}");
        let count = |container: &Value| container["ports"].as_array().map_or(0, Vec::len);
        assert_eq!(
            count(&exposed),
            count(&plain) + 1,
            "{topology}: the other ports must stay"
        );
    }
}
