//! What `kubectl kustomize` makes of the directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;
use tests::docs::markdown::repository;

/// The rendered objects by kind.
fn render(directory: &Path) -> BTreeMap<String, Value> {
    let output = Command::new("kubectl").arg("kustomize").arg(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let objects =
        serde_norway::Deserializer::from_str(&text).map(|object| Value::deserialize(object).unwrap());
    objects.map(|object| (object["kind"].as_str().unwrap().to_owned(), object)).collect()
}

#[test]
fn the_directory_renders_dashboard_alerts_and_scraping() {
    let directory = repository().join("manifests/monitoring");
    let objects = render(&directory);
    let kinds: Vec<&str> = objects.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["ConfigMap", "PodMonitor", "PrometheusRule"]);
    for object in objects.values() {
        assert_eq!(object["metadata"]["namespace"], "kube-system");
    }
    let map = &objects["ConfigMap"];
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    let dashboard = fs::read_to_string(directory.join("dashboard.json")).unwrap();
    assert_eq!(map["data"]["kube-dns.json"].as_str(), Some(dashboard.as_str()));
}

/// What the `PodMonitor` scrapes of a Deployment: container ports of its name, by container.
fn scraped(deployment: &Value, monitor: &Value) -> Vec<(String, u64)> {
    let pod = &deployment["spec"]["template"];
    for (label, value) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&pod["metadata"]["labels"][label], value, "the PodMonitor does not select the pods");
    }
    let name = &monitor["spec"]["podMetricsEndpoints"][0]["port"];
    let ports = |container: &Value| {
        let all = container["ports"].as_array().unwrap().clone();
        let named = all.into_iter().filter(|port| &port["name"] == name);
        let container = container["name"].as_str().unwrap().to_owned();
        named
            .map(move |port| (container.clone(), port["containerPort"].as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    pod["spec"]["containers"].as_array().unwrap().iter().flat_map(ports).collect()
}

fn ports(of: &[(&str, u64)]) -> Vec<(String, u64)> {
    of.iter().map(|(container, port)| ((*container).to_owned(), *port)).collect()
}

#[test]
fn the_pod_monitor_finds_the_ports_of_the_base_and_the_component_adds_the_nannys() {
    let manifests = repository().join("manifests").canonicalize().unwrap();
    let monitor = &render(&manifests.join("monitoring"))["PodMonitor"];
    let base = &render(&manifests.join("base"))["Deployment"];
    assert_eq!(scraped(base, monitor), ports(&[("kubedns", 10055), ("sidecar", 10054)]));

    let overlay = tempfile::tempdir().unwrap();
    // kustomize takes relative paths alone.
    let up = "../".repeat(overlay.path().canonicalize().unwrap().components().count() - 1);
    let manifests = format!("{up}{}", manifests.strip_prefix("/").unwrap().display());
    let text = format!("resources: [{manifests}/base]\ncomponents: [{manifests}/monitoring/expose-nanny]\n");
    fs::write(overlay.path().join("kustomization.yaml"), text).unwrap();
    let exposed = &render(overlay.path())["Deployment"];
    let expected = ports(&[("kubedns", 10055), ("dnsmasq", 10056), ("sidecar", 10054)]);
    assert_eq!(scraped(exposed, monitor), expected);
    let args = &exposed["spec"]["template"]["spec"]["containers"][1]["args"];
    assert_eq!(args[0], "-statusAddr=0.0.0.0:10056");
    let others = &base["spec"]["template"]["spec"]["containers"][1]["args"];
    assert_eq!(args.as_array().unwrap()[1..], *others.as_array().unwrap());
}
