//! Checks the objects of every directory under `manifests/` that a user may apply, and of
//! combinations of the kustomize components in `manifests/components/`.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has to end there"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tests::docs::flags;
use tests::manifests::command_lines::{port_faults, service_faults, used};
use tests::manifests::pod::{Container, Pod};
use tests::manifests::render::{self, combine, documents, label, names};
use tests::manifests::replacing::{grace_faults, rollout_faults, snapshot_faults};
use tests::manifests::{confinement, difference, schema};

/// The directories under `manifests/` that a user may apply.
const EXPECTED: &[&str] = &[
    "alone",
    "base",
    "cache",
    "direct",
    "ha",
    "hardened",
    "legacy-1.4",
    "legacy-1.5",
    "legacy-1.6",
    "legacy-1.9",
    "node",
    "nodelocal",
    "stock-1.36",
    "trial",
];

/// The directories whose containers must have only the privileges that they need.
const HARDENED: &[&str] = &["alone", "direct", "ha", "hardened", "node", "nodelocal"];

/// The addon of Kubernetes 1.36, as published.
const STOCK: &str = include_str!("../manifests/data/kube-dns-1.36.yaml.in");

fn rendered(name: &str) -> Vec<Value> {
    render::rendered(name).unwrap()
}

fn pods(documents: &[Value]) -> Vec<Pod> {
    documents.iter().filter_map(Pod::of).collect()
}

/// The pods of these directories, each with the name of its directory.
fn pods_of<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> impl Iterator<Item = (N, Pod)> {
    names.into_iter().map(|name| {
        let [pod] = pods(&rendered(name.as_ref())).try_into().unwrap();
        (name, pod)
    })
}

/// The stock manifest with its placeholders filled in as in the base.
fn stock() -> String {
    let filled = STOCK
        .replace("dns_server", "10.96.0.10")
        .replace("dns_domain", "cluster.local");
    filled.replace("'dns_memory_limit'", "170Mi")
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn every_directory_renders_valid_objects() {
    assert_eq!(names(), EXPECTED);
    for name in names() {
        let documents = rendered(&name);
        let workloads = pods(&documents).len();
        assert_eq!(
            workloads, 1,
            "{name}: exactly one workload must be kube-dns"
        );
        for document in documents {
            let checked = schema::check(&document);
            assert_eq!(checked, Ok(()), "{name}: {}", label(&document));
        }
    }
}

#[test]
fn manifest_flags_exist() {
    for (name, pod) in pods_of(names()) {
        let has_dnsmasq = !["alone", "node"].contains(&name.as_str());
        assert_eq!(pod.container("nanny").is_some(), has_dnsmasq, "{name}");
        assert_eq!(pod.containers.len(), 2 + usize::from(has_dnsmasq), "{name}");
        for Container { program, args, .. } in &pod.containers {
            let unknown = &used(args) - &flags::accepted(program);
            assert_eq!(unknown, BTreeSet::new(), "{name}: flags of {program}");
        }
    }
}

#[test]
fn dnsmasq_accepts_its_arguments() {
    let dnsmasq = ["/usr/sbin/dnsmasq", "/usr/local/sbin/dnsmasq"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    let Some(dnsmasq) = dnsmasq else {
        eprintln!("SKIPPED: dnsmasq is not installed, so its arguments were NOT tested");
        return;
    };
    let check = |args: &[String]| {
        Command::new(dnsmasq)
            .args(["--test", "--conf-file=/dev/null"])
            .args(args)
            .output()
            .unwrap()
    };
    assert!(
        !check(&["--no-such-option".to_owned()]).status.success(),
        "dnsmasq must reject an unknown option"
    );
    for (name, pod) in pods_of(names()) {
        let Some(nanny) = pod.container("nanny") else {
            continue;
        };
        assert!(!nanny.dnsmasq.is_empty(), "{name}");
        let output = check(&nanny.dnsmasq);
        assert!(
            output.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn ports_probes_and_grace_periods_have_no_faults() {
    for name in names() {
        let documents = rendered(&name);
        let pods = pods(&documents);
        let pod = pods.first().unwrap();
        assert_eq!(port_faults(pod), Vec::<String>::new(), "{name}");
        assert_eq!(grace_faults(pod), Vec::<String>::new(), "{name}");
        let services = documents.iter().filter(|document| {
            document.get("kind").is_some_and(|kind| kind == "Service")
                && document
                    .pointer("/spec/selector/k8s-app")
                    .is_some_and(|app| app == "kube-dns")
        });
        let faults: Vec<String> = services
            .flat_map(|service| service_faults(service, pod))
            .collect();
        assert_eq!(faults, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn hardened_pods_are_confined() {
    for (name, pod) in pods_of(HARDENED) {
        assert_eq!(confinement::faults(&pod), Vec::<String>::new(), "{name}");
    }
    // The base is as permissive as the stock addon, so the check must find these faults.
    let found = pods(&rendered("base"))
        .iter()
        .flat_map(confinement::faults)
        .collect::<Vec<_>>()
        .join("\n");
    for fault in [
        "runAsNonRoot",
        "sysctls",
        "dnsmasq: readOnlyRootFilesystem",
        "dnsmasq: capabilities",
        "token",
    ] {
        assert!(found.contains(fault), "{fault} in {found}");
    }
}

/// Checks the fields on which two measurements in docs/resilience.md depend: the lost queries of a
/// rollout, and the answers of a kubedns that restarts without an API server.
#[test]
fn hardened_pods_have_no_rollout_or_snapshot_faults() {
    for (name, pod) in pods_of(HARDENED) {
        assert_eq!(rollout_faults(&pod), Vec::<String>::new(), "{name}");
        assert_eq!(snapshot_faults(&pod), Vec::<String>::new(), "{name}");
    }
    // In the base, these fields are as in the stock addon, so the checks must find faults.
    for pod in pods(&rendered("base")) {
        let found = (rollout_faults(&pod).len(), snapshot_faults(&pod).len());
        assert_eq!(found, (3, 1));
    }
}

/// The fields of the stock addon that name images.
const IMAGES: &[&str] = &[
    "Deployment/kube-dns.spec.template.spec.containers[dnsmasq].image",
    "Deployment/kube-dns.spec.template.spec.containers[kubedns].image",
    "Deployment/kube-dns.spec.template.spec.containers[sidecar].image",
];

/// All other differences of the base from the stock addon, apart from the base's role. The manifest
/// of the base has the reason for each difference.
const UNLIKE_STOCK: &[&str] = &[
    "Deployment/kube-dns.spec.template.spec.containers[kubedns].resources.requests.cpu",
    "Deployment/kube-dns.spec.template.spec.containers[kubedns].resources.requests.memory",
    "Deployment/kube-dns.spec.template.spec.containers[sidecar].env[NODE_NAME].name",
    "Deployment/kube-dns.spec.template.spec.containers[sidecar].env[NODE_NAME].valueFrom.fieldRef.fieldPath",
    "Deployment/kube-dns.spec.template.spec.containers[sidecar].resources.requests.memory",
];

#[test]
fn base_differs_from_stock_as_listed() {
    let stock = documents(&stock()).unwrap();
    assert_eq!(stock.len(), 4);
    let mut base = rendered("base");
    base.retain(|object| !label(object).ends_with("/kube-dns-rs"));
    let unlike = difference::paths(&base, &stock);
    assert_eq!(unlike, set(&[IMAGES, UNLIKE_STOCK].concat()));
}

#[test]
fn stock_overlay_changes_only_images() {
    let stock = documents(&stock()).unwrap();
    let unlike = difference::paths(&rendered("stock-1.36"), &stock);
    assert_eq!(unlike, set(IMAGES));
}

/// All manifests except the trial and those of published addons have a role of their own, with the
/// permissions that their flags need.
#[test]
fn roles_grant_only_needed_resources() {
    for name in names() {
        let objects = rendered(&name);
        let mut granted = BTreeSet::new();
        for object in &objects {
            let is_role = object.get("kind") == Some(&json!("ClusterRole"));
            let roles = label(object);
            if is_role && roles.starts_with("ClusterRole/kube-dns-") {
                let bindings = objects.iter().map(label);
                let binding = roles.replace("ClusterRole/", "ClusterRoleBinding/");
                let bound = bindings.filter(|label| *label == binding).count();
                assert_eq!(bound, 1, "{name}");
                granted.extend(granted_resources(object));
            }
        }

        let as_published = name == "stock-1.36" || name.starts_with("legacy-");
        let expected = match name.as_str() {
            // The trial shares the ServiceAccount of kube-dns, beside which it runs.
            "trial" => set(&[]),
            _ if as_published => set(&[]),
            "node" => set(&["services", "endpoints", "endpointslices", "nodes", "pods"]),
            _ => set(&["services", "endpoints", "endpointslices"]),
        };
        assert_eq!(granted, expected, "{name}");
    }
}

/// The resources that a role may list and watch.
fn granted_resources(role: &Value) -> BTreeSet<String> {
    let mut resources = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        // kubedns reads the DaemonSet of its pod once, and does not watch it.
        if rule["resourceNames"] == json!(["kube-dns"]) {
            assert_eq!(rule["resources"], json!(["daemonsets"]));
            assert_eq!(rule["verbs"], json!(["get"]));
            continue;
        }
        assert_eq!(rule["verbs"], json!(["list", "watch"]));
        for resource in rule["resources"].as_array().unwrap() {
            resources.insert(resource.as_str().unwrap().to_owned());
        }
    }
    resources
}

/// Each node has a pod of its own. The Service prefers this pod for the clients on the node. During
/// an update, a new pod is ready before the old pod ends.
#[test]
fn node_has_pod_of_its_own() {
    let objects = rendered("node");
    let find = |wanted: &str| {
        objects
            .iter()
            .find(|object| label(object) == wanted)
            .unwrap()
    };
    let service = find("Service/kube-dns");
    let distribution = &service["spec"]["trafficDistribution"];
    assert_eq!(*distribution, json!("PreferSameNode"));

    let spec = &find("DaemonSet/kube-dns")["spec"];
    let update = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    assert_eq!(spec["updateStrategy"], update);
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(pod["priorityClassName"], json!("system-node-critical"));
    assert_eq!(pod["hostNetwork"], Value::Null);

    let pods = pods(&objects);
    let kubedns = pods
        .first()
        .and_then(|pod| pod.container("kubedns"))
        .unwrap();
    for flag in [
        "--pods=node",
        "--prefer-zone=hints",
        "--topology=alone",
        "--daemonset=kube-system/kube-dns",
    ] {
        assert!(kubedns.args.contains(&flag.to_owned()), "{flag}");
    }
    let knows_node = kubedns.spec["env"].as_array().unwrap().iter();
    let variables = knows_node.filter(|env| env["name"] == "NODE_NAME").count();
    assert_eq!(variables, 1);
}

#[test]
fn images_component_changes_only_images() {
    let before = documents(&stock()).unwrap();
    for registry in [
        "registry.k8s.io/dns/",
        "gcr.io/google_containers/",
        "k8s.gcr.io/",
    ] {
        let suffix = if registry.starts_with("gcr") {
            "-amd64"
        } else {
            ""
        };
        let text = stock()
            .replace("registry.k8s.io/dns/", registry)
            .replace(":1.26.7", &format!("{suffix}:1.14.10"));
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("mine.yaml"), text).unwrap();
        let after = combine(directory.path(), &["mine.yaml"], &["images"]).unwrap();
        let changed = difference::paths(&after, &before);
        assert_eq!(changed, set(IMAGES), "{registry}");
        for pod in pods(&after) {
            for container in &pod.containers {
                let image = container.spec.get("image").and_then(Value::as_str).unwrap();
                assert!(
                    image.starts_with(&format!("kube-dns-rs/{}", container.program)),
                    "{image}"
                );
            }
        }
    }
}

#[test]
fn components_combine_in_documented_order() {
    for chosen in 0_u32..1 << 5 {
        let optional = ["cache", "hardened", "direct", "alone", "ha"]
            .into_iter()
            .enumerate();
        let mut components: Vec<&str> = optional
            .filter(|(at, _)| chosen & 1 << at != 0)
            .map(|(_, name)| name)
            .collect();
        components.extend(["nodelocal", "pods", "clusterset"]);
        let has = |name| components.contains(&name);
        if has("direct") && has("alone") {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let documents = combine(directory.path(), &["base"], &components).unwrap();
        for document in &documents {
            let checked = schema::check(document);
            assert_eq!(checked, Ok(()), "{components:?}: {}", label(document));
        }
        let corefile = documents
            .iter()
            .find_map(|document| document.pointer("/data/Corefile"));
        let corefile = corefile.and_then(Value::as_str).unwrap();
        let has_zone = corefile.contains(" clusterset.local:53 {");
        assert!(
            has_zone,
            "NodeLocal DNSCache must forward queries for clusterset.local to kubedns"
        );
        let pods = pods(&documents);
        let pod = pods.first().unwrap();
        assert_eq!(port_faults(pod), Vec::<String>::new(), "{components:?}");
        let lasting = rollout_faults(pod).is_empty() && snapshot_faults(pod).is_empty();
        let expected = has("hardened") || has("direct") || has("alone");
        assert_eq!(lasting, expected, "{components:?}");
        let is_direct = pod.dns_ports() == [53, 10153];
        assert_eq!(is_direct, has("direct"), "{components:?}");
        assert_eq!(pod.dns_ports() == [53], has("alone"), "{components:?}");
        let is_confined = confinement::faults(pod).is_empty();
        assert_eq!(is_confined, has("hardened"), "{components:?}");
    }
}

#[test]
fn clusterset_component_sets_domain_flag() {
    for manifest in ["base", "alone", "node"] {
        let directory = tempfile::tempdir().unwrap();
        let documents = combine(directory.path(), &[manifest], &["clusterset"]).unwrap();
        let pods = pods(&documents);
        let kubedns = pods.first().unwrap().container("kubedns").unwrap();
        let has_domain = used(&kubedns.args).contains("clusterset-domain");
        assert!(has_domain, "{manifest}: {:?}", kubedns.args);
    }
}

/// If dnsmasq forwards all queries to kubedns, kubedns has the flag `--topology=cache` and reads
/// the ConfigMap.
#[test]
fn nanny_and_kubedns_agree_on_upstreams() {
    let mut caches = Vec::new();
    for (name, pod) in pods_of(names()) {
        let kubedns = pod.container("kubedns").unwrap();
        let Some(nanny) = pod.container("nanny") else {
            continue;
        };
        let is_cache = nanny.args.contains(&"-forward=kubedns".to_owned());
        let topology_is_cache = kubedns.args.contains(&"--topology=cache".to_owned());
        assert_eq!(is_cache, topology_is_cache, "{name}");
        if is_cache {
            assert!(
                used(&kubedns.args).contains("config-dir"),
                "{name}: kubedns has to know the upstreams"
            );
            let other =
                |word: &&String| word.starts_with("--server=") && !word.starts_with("--server=/");
            let found = nanny.dnsmasq.iter().find(other);
            assert_eq!(
                found, None,
                "{name}: dnsmasq must have no server besides kubedns"
            );
            caches.push(name.clone());
        }
    }
    assert_eq!(caches, ["cache", "hardened", "trial"]);
}

/// In the direct topology kubedns answers the clients, and dnsmasq answers only kubedns.
#[test]
fn direct_dnsmasq_is_behind_kubedns() {
    for (name, pod) in pods_of(["direct", "ha", "nodelocal"]) {
        let (kubedns, nanny) = (
            pod.container("kubedns").unwrap(),
            pod.container("nanny").unwrap(),
        );
        assert!(
            kubedns
                .args
                .contains(&"--nameservers=127.0.0.1:10153".to_owned()),
            "{name}"
        );
        let direct = kubedns.args.contains(&"--topology=direct".to_owned());
        let configured = used(&kubedns.args).contains("config-dir");
        assert!(
            direct || !configured,
            "{name}: kubedns must not read the ConfigMap without `--topology=direct`: it \
             would query the upstreamNameservers itself, instead of dnsmasq"
        );
        assert!(
            nanny
                .dnsmasq
                .contains(&"--listen-address=127.0.0.1".to_owned()),
            "{name}"
        );
        assert_eq!(nanny.spec.get("ports"), None, "{name}");
        let back = nanny
            .dnsmasq
            .iter()
            .any(|word| word.starts_with("--server"));
        assert!(
            !back,
            "{name}: dnsmasq must have no `--server`, because it must not query kubedns"
        );
    }
}

#[test]
fn node_cache_image_has_release_of_stock_addon() {
    let (_, after) = STOCK.split_once("k8s-dns-kube-dns:").unwrap();
    let release = after.lines().next().unwrap();
    let images: Vec<Value> = rendered("nodelocal")
        .iter()
        .filter_map(|object| {
            object
                .pointer("/spec/template/spec/containers/0/image")
                .cloned()
        })
        .collect();
    let image = format!("registry.k8s.io/dns/k8s-dns-node-cache:{release}");
    assert!(images.contains(&json!(image)), "{images:?}");
}

/// Without dnsmasq, kubedns answers the clients. kubedns forwards to the upstreams of the ConfigMap
/// or of `resolv.conf`.
#[test]
fn alone_has_two_containers() {
    let pods = pods(&rendered("alone"));
    let pod = pods.first().unwrap();
    let names: Vec<&str> = pod
        .containers
        .iter()
        .map(|container| container.program)
        .collect();
    assert_eq!(names, ["kubedns", "sidecar"]);
    assert_eq!(pod.dns_ports(), [53]);
    let (kubedns, sidecar) = (
        pod.container("kubedns").unwrap(),
        pod.container("sidecar").unwrap(),
    );
    for flag in ["config-dir", "cache-size", "serve-stale"] {
        assert!(used(&kubedns.args).contains(flag), "{flag}");
    }
    assert!(
        kubedns.args.contains(&"--topology=alone".to_owned()),
        "{:?}",
        kubedns.args
    );
    assert!(
        !used(&kubedns.args).contains("nameservers"),
        "{:?}",
        kubedns.args
    );
    assert!(
        sidecar.args.contains(&"--dnsmasq-addr=".to_owned()),
        "{:?}",
        sidecar.args
    );
    let volumes = pod
        .spec
        .get("volumes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    assert!(
        !volumes
            .clone()
            .any(|volume| volume.get("name").is_some_and(|name| name == "run")),
        "the pod must have no volume `run`, because only the nanny needs this volume"
    );
}

/// All manifests except those of published addons pass the name of the node to the sidecar. The
/// status page of the sidecar shows this name.
#[test]
fn node_name_is_passed_except_in_published_addons() {
    for (name, pod) in pods_of(names()) {
        let sidecar = pod.container("sidecar");
        let variable = sidecar.and_then(|sidecar| sidecar.spec.pointer("/env/0"));
        let field =
            json!({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
        let as_published = name == "stock-1.36" || name.starts_with("legacy-");
        assert_eq!(variable, (!as_published).then_some(&field), "{name}");
    }
}

/// The trial pod runs beside kube-dns. Applying the trial changes no object of kube-dns, and the
/// Service of kube-dns does not select the trial pod.
#[test]
fn trial_deployment_is_not_selected() {
    let trial = rendered("trial");
    let labels: Vec<String> = trial.iter().map(label).collect();
    assert_eq!(labels, ["Deployment/kube-dns-trial"]);
    let deployment = trial.first().unwrap();
    let app = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_str);
    let label_of_pod = app("/spec/template/metadata/labels/k8s-app");
    assert_eq!(label_of_pod, Some("kube-dns-trial"));
    let selector = app("/spec/selector/matchLabels/k8s-app");
    assert_eq!(selector, Some("kube-dns-trial"));
    let account = app("/spec/template/spec/serviceAccountName");
    assert_eq!(account, Some("kube-dns"));
    let volume = app("/spec/template/spec/volumes/0/configMap/name");
    assert_eq!(volume, Some("kube-dns"));
    let marks = deployment
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .unwrap();
    assert_eq!(
        marks.len(),
        1,
        "the trial must have no label that an addon manager looks for: {marks:?}"
    );
}
