//! Runs the commands of docs/migrating.md. They must change the manifest of each generation of
//! kube-dns, from Kubernetes 1.4 on, into our manifest for that generation in `manifests/`. The
//! commands for going back must restore the saved objects.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has to end there"
)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use apiserver::{Options, Resource, RunningApiServer};
use serde_json::{Value, json};
use testkit::objects::{mk_cluster_ip, mk_config_map};
use tests::docs::markdown::Page;
use tests::manifests::difference;
use tests::manifests::pod::Pod;
use tests::manifests::render::{documents, manifests_root, render};
use tests::repository;

/// The value of `$REGISTRY` in the commands of the page.
const REGISTRY: &str = "registry.example/dns";

/// A script in place of `kubectl`. The file `object` holds the workload of the cluster. Commands
/// that read the workload print this file. Commands that change, create or replace the workload
/// write the result to the file `after`. `get pod` prints the names of two pods. Commands that
/// would delete objects, label pods, control a rollout or list `EndpointSlices` do nothing. The
/// real kubectl runs all other commands. Those that need an API server use `$SERVER`, an API server
/// without workloads. The file `calls` lists all calls.
const KUBECTL: &str = r#"#!/bin/sh
set -e
echo "$*" >> calls
case "$*" in
"-n kube-system get deploy kube-dns -o yaml") cat object ;;
"replace -f kube-dns-before.yaml") cp kube-dns-before.yaml after ;;
"-n kube-system set image deploy/kube-dns "*) shift 5; "$REAL" set image --local -f object "$@" -o yaml > after ;;
"-n kube-system patch deploy kube-dns "*) shift 5; "$REAL" patch --local -f object "$@" -o yaml > after ;;
"-n kube-system get rc kube-dns-v20 -o yaml") cat object ;;
"patch --local "*) "$REAL" "$@" ;;
"create -f -") cat > after ;;
"-n kube-system get pod -l k8s-app=kube-dns -o name") echo pod/old-1; echo pod/old-2 ;;
"-n kube-system rollout "*|"-n kube-system delete "*|"-n kube-system label pod/"*|"-n kube-system get endpointslices "*) ;;
"replace "*) "$REAL" --server="$SERVER" "$@" --validate=false ;;
*) "$REAL" --server="$SERVER" "$@" ;;
esac
"#;

/// The images of kube-dns in Kubernetes 1.6. The name of the program replaces `{}`.
const IMAGES_OF_1_6: &str = "gcr.io/google_containers/k8s-dns-{}-amd64:1.14.1";
const IMAGES_OF_1_9: &str = "k8s.gcr.io/k8s-dns-{}-amd64:1.14.10";
const IMAGES_OF_1_36: &str = "registry.k8s.io/dns/k8s-dns-{}:1.26.7";

/// The URL for commands that need no API server.
const NO_SERVER: &str = "http://no-server.invalid";

#[test]
fn from_1_4() {
    let ours = ours("legacy-1.4");
    let after = run("From 1.4", &as_stored(patched(&ours, "before-1.4.yaml"))).to_string();
    // The commands of the page create a second ReplicationController with another name.
    assert!(
        after.contains("kube-dns-v21") && !after.contains("v20"),
        "{after}"
    );
    same(
        &serde_json::from_str(&after.replace("v21", "v20")).unwrap(),
        &ours,
    );
}

#[test]
fn from_1_5() {
    let ours = ours("legacy-1.5");
    same(&run("From 1.5", &patched(&ours, "before-1.5.yaml")), &ours);
}

/// The sidecar replaces exechealthz in the container `healthz`, and accepts the arguments of
/// exechealthz. The container `dnsmasq-metrics` is removed. Otherwise only the images of kubedns
/// and `healthz` change.
#[test]
fn from_1_5_changes_only_images_and_drops_dnsmasq_metrics() {
    let before = patched(&ours("legacy-1.5"), "before-1.5.yaml");
    let script = commands("From 1.5", "dnsmasq-metrics");
    let after = type_in(&script, &before, NO_SERVER).0;
    let (before, after) = (containers(&before), containers(&after));
    let names = after.iter().map(|one| &one["name"]).collect::<Vec<_>>();
    assert_eq!(names, ["kubedns", "dnsmasq", "healthz"]);
    for mut one in after {
        let old = before
            .iter()
            .find(|old| old["name"] == one["name"])
            .unwrap();
        let image = one["image"].take();
        assert_eq!(image != old["image"], one["name"] != "dnsmasq", "{image}");
        one["image"] = old["image"].clone();
        assert_eq!(one, *old);
    }
    let arguments = before.iter().find(|one| one["name"] == "healthz").unwrap()["args"]
        .as_array()
        .unwrap();
    let arguments = arguments.iter().map(|argument| argument.as_str().unwrap());
    let output = Command::new(testkit::process::binary("sidecar"))
        .args(arguments)
        .arg("--version")
        .output();
    assert!(
        output.unwrap().status.success(),
        "the sidecar rejects the arguments of exechealthz"
    );
}

fn containers(workload: &Value) -> Vec<Value> {
    workload
        .pointer("/spec/template/spec/containers")
        .unwrap()
        .as_array()
        .unwrap()
        .clone()
}

#[test]
fn from_1_6_and_1_9() {
    for (manifest, images) in [("legacy-1.6", IMAGES_OF_1_6), ("legacy-1.9", IMAGES_OF_1_9)] {
        let ours = ours(manifest);
        same(
            &run("From 1.6 and later", &with_images(&ours, images)),
            &ours,
        );
    }
}

/// Migrates the published manifest of Kubernetes 1.36. The repository has no copies of the older
/// published manifests.
#[test]
fn from_1_36() {
    let stock = include_str!("../manifests/data/kube-dns-1.36.yaml.in");
    let stock = stock
        .replace("dns_domain", "cluster.local")
        .replace("'dns_memory_limit'", "170Mi");
    same(
        &run("From 1.6 and later", &workload(&documents(&stock).unwrap())),
        &ours("stock-1.36"),
    );
}

/// The procedure that keeps the old pods running has the same result as the procedure of `From 1.6
/// and later`. The old pods are deleted only after the Service no longer selects them.
#[test]
fn from_1_36_loses_no_query() {
    let section = "Without a lost query";
    let script = [
        commands(section, "rollout pause"),
        commands(section, "k8s-app-"),
    ]
    .join("\n");
    let ours = ours("stock-1.36");
    let (after, calls) = type_in(&script, &with_images(&ours, IMAGES_OF_1_36), NO_SERVER);
    same(&after, &ours);

    let images = "kubedns={}/kubedns:VERSION dnsmasq={}/nanny:VERSION sidecar={}/sidecar:VERSION"
        .replace("{}", REGISTRY)
        .replace("VERSION", env!("CARGO_PKG_VERSION"));
    let expected = [
        "get pod -l k8s-app=kube-dns -o name",
        "rollout pause deploy/kube-dns",
        &format!("set image deploy/kube-dns {images}"),
        "delete rs -l k8s-app=kube-dns --cascade=orphan",
        "label pod/old-1 pod/old-2 pod-template-hash-",
        "rollout resume deploy/kube-dns",
        "rollout status deploy/kube-dns",
        "label pod/old-1 pod/old-2 k8s-app-",
        "get endpointslices -l k8s-app=kube-dns",
        "delete pod/old-1 pod/old-2",
    ];
    assert_eq!(calls, expected.map(|call| format!("-n kube-system {call}")));
}

/// The commands restore the saved objects, even if the objects have changed since.
#[tokio::test(flavor = "multi_thread")]
async fn going_back() {
    let server = RunningApiServer::start(Options::default());
    let store = &server.store;
    store
        .set(mk_config_map(
            "kube-system",
            "kube-dns",
            &[("stubDomains", "{}")],
        ))
        .unwrap();
    store
        .set(mk_cluster_ip(
            "kube-system",
            "kube-dns",
            &["10.96.0.10"],
            &["dns:53"],
        ))
        .unwrap();

    let deployment = ours("legacy-1.9");
    let keep = commands("Before you begin", "> kube-dns-before.yaml");
    let edit = "kubectl -n kube-system patch cm kube-dns -p '{\"data\":{\"stubDomains\":\"bad\"}}'\n\
                kubectl -n kube-system label svc kube-dns edited=yes";
    let back = commands("Going back", "replace -f kube-dns-before.yaml");
    let others_back = commands("Going back", "replace -f kube-dns-others-before.yaml");
    let script = [&keep, edit, &back, &others_back].join("\n");
    let (after, _) = type_in(&script, &as_stored(deployment.clone()), &server.url());
    assert_eq!(difference::paths(&[after], &[deployment]), BTreeSet::new());
    let config = store
        .get(Resource::ConfigMaps, "kube-system", "kube-dns")
        .unwrap();
    let stub_domains = config.value()["data"]["stubDomains"].clone();
    assert_eq!(stub_domains, json!("{}"));
    let service = store
        .get(Resource::Services, "kube-system", "kube-dns")
        .unwrap();
    assert_eq!(service.value().pointer("/metadata/labels/edited"), None);
}

/// The object with the fields that an API server adds.
fn as_stored(mut object: Value) -> Value {
    object["metadata"]["resourceVersion"] = json!("7");
    object["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000007");
    object
}

fn ours(manifest: &str) -> Value {
    workload(&render(&manifests_root().join(manifest)).unwrap())
}

/// Checks that the result is our manifest with the images from [`REGISTRY`].
fn same(after: &Value, ours: &Value) {
    let ours = ours
        .to_string()
        .replace("kube-dns-rs/", &format!("{REGISTRY}/"));
    let ours = serde_json::from_str(&ours).unwrap();
    let unlike = difference::paths(std::slice::from_ref(after), &[ours]);
    assert_eq!(unlike, BTreeSet::new());
}

/// Runs the first code block of a section on a workload, and returns the resulting workload.
fn run(section: &str, object: &Value) -> Value {
    type_in(&commands(section, ""), object, NO_SERVER).0
}

/// Runs commands in a shell, in a new directory with a link to `manifests`. `sleep` returns at
/// once. Returns the resulting workload and the calls of kubectl.
fn type_in(script: &str, object: &Value, server: &str) -> (Value, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let below = |name: &str| directory.path().join(name);
    fs::write(below("object"), serde_norway::to_string(object).unwrap()).unwrap();
    fs::write(below("kubectl"), KUBECTL).unwrap();
    fs::set_permissions(below("kubectl"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(
        repository().canonicalize().unwrap().join("manifests"),
        below("manifests"),
    )
    .unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("sh")
        .args(["-ec", &format!("sleep() {{ :; }}\n{script}")])
        .current_dir(directory.path())
        .env("PATH", format!("{}:{path}", directory.path().display()))
        .env("REAL", real_kubectl(&path))
        .env("REGISTRY", REGISTRY)
        .env("SERVER", server)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let after = documents(&fs::read_to_string(below("after")).unwrap()).unwrap();
    let calls = fs::read_to_string(below("calls")).unwrap();
    (
        tidy(workload(&after)),
        calls.lines().map(str::to_owned).collect(),
    )
}

fn real_kubectl(path: &str) -> String {
    let mut all = path
        .split(':')
        .map(|directory| format!("{directory}/kubectl"));
    all.find(|file| Path::new(file).exists()).unwrap()
}

/// The commands of the first code block that contains `mark`, in a section of the page.
fn commands(section: &str, mark: &str) -> String {
    let page = Page::read("migrating.md");
    let mut blocks = page
        .blocks
        .iter()
        .filter(|block| block.section == section && block.info == "console");
    let block = blocks.find(|block| block.text.contains(mark)).unwrap();
    // A line without a prompt belongs to the previous command.
    let lines = block.text.lines().map(str::trim_start);
    let lines: Vec<&str> = lines
        .map(|line| line.strip_prefix("$ ").unwrap_or(line))
        .collect();
    lines.join("\n")
}

fn workload(documents: &[Value]) -> Value {
    documents
        .iter()
        .find(|document| Pod::of(document).is_some())
        .unwrap()
        .clone()
}

/// The object without `status` and `creationTimestamp`, which kubectl adds.
fn tidy(mut object: Value) -> Value {
    object.as_object_mut().unwrap().remove("status");
    for metadata in ["/metadata", "/spec/template/metadata"] {
        object
            .pointer_mut(metadata)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove("creationTimestamp");
    }
    object
}

fn patched(object: &Value, patch: &str) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), object.to_string()).unwrap();
    let patch = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("manifests/data")
        .join(patch);
    let output = Command::new("kubectl")
        .args(["patch", "--local", "-o", "yaml", "-f"])
        .arg(file.path())
        .arg("--patch-file")
        .arg(patch)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    tidy(workload(
        &documents(&String::from_utf8_lossy(&output.stdout)).unwrap(),
    ))
}

fn with_images(object: &Value, images: &str) -> Value {
    let mut text = object.to_string();
    for (ours, program) in [
        ("kubedns", "kube-dns"),
        ("nanny", "dnsmasq-nanny"),
        ("sidecar", "sidecar"),
    ] {
        text = text.replace(
            &format!("kube-dns-rs/{ours}:{}", env!("CARGO_PKG_VERSION")),
            &images.replace("{}", program),
        );
    }
    serde_json::from_str(&text).unwrap()
}
