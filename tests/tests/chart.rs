//! Checks that the Helm chart installs the objects of `manifests/`, and that each value changes only its fields.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has to end there")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::kubectl::is_missing;
use tests::manifests::render::{documents, label, render, root};
use tests::manifests::{difference, schema};

const SHAPES: &[&str] = &["alone", "base", "direct", "ha", "hardened", "stock-1.36", "trial"];

fn chart() -> PathBuf {
    tests::repository().join("charts/kube-dns-rs")
}

#[allow(clippy::print_stderr, reason = "a skipped test must not look like a passed one")]
fn is_helm_missing() -> bool {
    let missing = !Command::new("helm").arg("version").output().is_ok_and(|output| output.status.success());
    if missing {
        eprintln!("SKIPPED: helm is not installed, so the chart was NOT rendered");
    }
    missing
}

fn helm(words: &[&str]) -> Output {
    let (subcommand, arguments) = words.split_first().unwrap();
    let mut command = Command::new("helm");
    command.arg(subcommand).args((*subcommand == "template").then_some("dns")).arg(chart());
    command.args(["--namespace", "kube-system"]).args(arguments).output().unwrap()
}

/// The objects that the chart renders with these arguments of `--set-json`.
fn installed(values: &[&str]) -> Vec<Value> {
    let set = values.iter().flat_map(|value| ["--set-json", value]);
    let output = helm(&["template"].into_iter().chain(set).collect::<Vec<_>>());
    assert!(output.status.success(), "{values:?}: {}", String::from_utf8_lossy(&output.stderr));
    documents(&String::from_utf8_lossy(&output.stdout)).unwrap()
}

/// The files in `shapes/` of the chart are rendered directories of `manifests/`. To regenerate these files, run
/// `UPDATE_CHART=1 cargo test -p tests --test chart`.
#[test]
fn the_shapes_are_what_kubectl_makes_of_the_manifests() {
    if is_missing("the chart's shapes were") {
        return;
    }
    for name in SHAPES {
        let output = Command::new("kubectl").arg("kustomize").arg(root().join(name)).output().unwrap();
        let file = chart().join(format!("shapes/{name}.yaml"));
        if std::env::var_os("UPDATE_CHART").is_some() {
            fs::write(&file, &output.stdout).unwrap();
        }
        let kept = documents(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(kept, render(&root().join(name)).unwrap(), "{name}: regenerate it with UPDATE_CHART=1");
    }
    for name in ["endpointslices", "pods"] {
        let component = fs::read_to_string(root().join(format!("components/{name}/rbac.yaml"))).unwrap();
        let file = chart().join(format!("shapes/rbac-{name}.yaml"));
        if std::env::var_os("UPDATE_CHART").is_some() {
            fs::write(&file, &component).unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), component, "{name}");
    }
}

#[test]
fn without_values_a_shape_is_installed_as_it_is() {
    if is_helm_missing() {
        return;
    }
    for name in SHAPES {
        let shape = format!("shape=\"{name}\"");
        let objects = installed(&[&shape, "configMap.create=true", "rbac.endpointSlices=false"]);
        let shape = fs::read_to_string(chart().join(format!("shapes/{name}.yaml"))).unwrap();
        assert_eq!(difference::paths(&objects, &documents(&shape).unwrap()), BTreeSet::new(), "{name}");
    }
}

#[test]
fn the_chart_is_free_of_lint() {
    if is_helm_missing() {
        return;
    }
    let output = helm(&["lint", "--strict"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Each value of the chart sets the expected field of the rendered objects.
#[test]
fn each_value_does_what_it_says() {
    if is_helm_missing() {
        return;
    }
    let cases = [
        (
            "image.repository=\"registry.example/dns\"",
            "/containers/0/image",
            json!("registry.example/dns/kubedns:0.1.0"),
        ),
        (
            "image.repository=\"registry.example:5000/dns\"",
            "/containers/1/image",
            json!("registry.example:5000/dns/nanny:0.1.0"),
        ),
        ("image.tag=\"1.2.3\"", "/containers/2/image", json!("kube-dns-rs/sidecar:1.2.3")),
        ("image.pullPolicy=\"Always\"", "/containers/1/imagePullPolicy", json!("Always")),
        ("image.pullSecrets=[\"mine\"]", "/imagePullSecrets", json!([{"name": "mine"}])),
        ("clusterDomain=\"k8s.example\"", "/containers/0/args/0", json!("--domain=k8s.example.")),
        ("kubedns.args=[\"--pods=verified\"]", "/containers/0/args/5", json!("--pods=verified")),
        ("dnsmasq.nannyArgs=[\"-v=4\"]", "/containers/1/args/4", json!("-v=4")),
        ("dnsmasq.args=[\"--log-queries\"]", "/containers/1/args/12", json!("--log-queries")),
        ("sidecar.args=[\"--v=4\"]", "/containers/2/args/3", json!("--v=4")),
        (
            "sidecar.resources={\"limits\":{\"memory\":\"20Mi\"}}",
            "/containers/2/resources",
            json!({"limits": {"memory": "20Mi"}}),
        ),
        (
            "nodeSelector={\"dns\":\"yes\"}",
            "/nodeSelector",
            json!({"dns": "yes", "kubernetes.io/os": "linux"}),
        ),
        ("tolerations=[{\"operator\":\"Exists\"}]", "/tolerations/1", json!({"operator": "Exists"})),
    ];
    for (value, pointer, expected) in cases {
        let objects = installed(&["shape=\"base\"", value]);
        let deployment = objects.iter().find(|object| label(object) == "Deployment/kube-dns").unwrap();
        assert_eq!(deployment.pointer(&format!("/spec/template/spec{pointer}")), Some(&expected), "{value}");
        for object in &objects {
            assert_eq!(schema::check(object), Ok(()), "{value}: {}", label(object));
        }
    }
}

#[test]
fn values_of_other_objects_do_what_they_say() {
    if is_helm_missing() {
        return;
    }
    let cases = [
        ("clusterIP=\"10.0.0.10\"", "Service/kube-dns", "/spec/clusterIP", json!("10.0.0.10")),
        ("replicas=3", "Deployment/kube-dns", "/spec/replicas", json!(3)),
        ("replicas=0", "Deployment/kube-dns", "/spec/replicas", json!(0)),
        (
            "podAnnotations={\"a\":\"b\"}",
            "Deployment/kube-dns",
            "/spec/template/metadata/annotations/a",
            json!("b"),
        ),
        (
            "configMap={\"create\":true,\"data\":{\"upstreamNameservers\":\"[\\\"1.1.1.1\\\"]\"}}",
            "ConfigMap/kube-dns",
            "/data/upstreamNameservers",
            json!("[\"1.1.1.1\"]"),
        ),
        ("rbac.pods=true", "ClusterRole/kube-dns-pods", "/rules/0/resources/0", json!("pods")),
    ];
    for (value, object, pointer, expected) in cases {
        let objects = installed(&[value]);
        let found = objects.iter().find(|found| label(found) == object).unwrap();
        assert_eq!(found.pointer(pointer), Some(&expected), "{value}");
    }
    let labels: BTreeSet<String> = installed(&[]).iter().map(label).collect();
    let kept = ["ClusterRole/kube-dns-endpointslices", "ClusterRoleBinding/kube-dns-endpointslices"];
    let own = ["Deployment/kube-dns", "Service/kube-dns", "ServiceAccount/kube-dns"];
    let expected = kept.iter().chain(&own).map(|&name| name.to_owned()).collect();
    assert_eq!(labels, expected, "the ConfigMap stays the cluster's own");
}

#[test]
fn a_wrong_value_is_refused_by_its_name() {
    if is_helm_missing() {
        return;
    }
    let cases = [
        ("shape=\"fast\"", "shape"),
        ("clusterDomain=\"cluster.local.\"", "clusterDomain"),
        ("clusterIP=\"dns\"", "clusterIP"),
        ("replicas=-1", "replicas"),
        ("kubedns.arg=[\"--v=4\"]", "arg"),
        ("sidecar.args=[\"v=4\"]", "sidecar/args"),
        ("configMap.data={\"stubDomains\":{}}", "configMap/data/stubDomains"),
        ("image.pullPolicy=\"Sometimes\"", "image/pullPolicy"),
    ];
    for (value, named) in cases {
        let output = helm(&["template", "--set-json", value]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(named), "{value}: {said}");
    }
}
