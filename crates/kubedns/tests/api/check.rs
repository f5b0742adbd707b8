//! `kube-dns check cluster` against a running kubedns and its API server.

use std::net::SocketAddr;

use apiserver::{Resource, RunningApiServer};
use serde_json::{Value, json};
use testkit::objects::{
    mk_cluster_ip, mk_config_map, mk_endpoint_slice, mk_endpoints, mk_headless, mk_node,
};
use testkit::ports::free_port;
use testkit::process::Program;
use testkit::table;
use testkit::upstream::Upstream;

use super::cluster::PATIENCE;
use super::process::Kubedns;

/// An API server with the Service `default/kubernetes` and a headless Service. It grants only the
/// permissions of the role `system:kube-dns` of Kubernetes.
fn cluster() -> RunningApiServer {
    let cluster = RunningApiServer::empty();
    cluster.faults.kube_dns_role();
    for object in [
        mk_cluster_ip("default", "kubernetes", &["10.96.0.1"], &["https:443"]),
        mk_headless("apps", "db", &["sql:5432"]),
        mk_endpoints("apps", "db", &["10.244.1.20 db-0"], &["sql:5432"]),
    ] {
        cluster.set(object);
    }
    cluster
}

/// Starts kubedns with an upstream, and waits until it is ready.
async fn ready(cluster: &RunningApiServer, upstream: SocketAddr) -> Kubedns {
    Kubedns::ready(cluster, &[&format!("--nameservers={upstream}")]).await
}

/// Runs `kube-dns check cluster`. Returns the exit code, and the outcome and line of each check.
pub(crate) async fn check(words: &[String]) -> (i32, Vec<(String, String)>) {
    let ours = [
        "check",
        "cluster",
        "--output=json",
        "--sidecar=",
        "--config-dir=",
    ];
    let mut process = Program::named("kubedns").args(ours).args(words).start();
    let code = process.wait(PATIENCE).await.code().unwrap();
    let report: Value = serde_json::from_str(&process.stdout().join("\n")).unwrap();
    let text = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
    let line = |check: &Value| format!("{} {}", text(check, "text"), text(check, "detail"));
    let checks = report["checks"].as_array().unwrap().iter();
    let checks = checks.map(|check| (text(check, "outcome"), line(check)));
    (code, checks.collect())
}

fn words(cluster: &RunningApiServer, kubedns: &Kubedns) -> Vec<String> {
    vec![
        format!("--kube-master-url={}", cluster.url()),
        format!("--server=http://{}", kubedns.status),
        format!("--dns={}", kubedns.dns),
    ]
}

#[track_caller]
pub(crate) fn assert_says(checks: &[(String, String)], outcome: &str, start: &str, detail: &str) {
    let is = |(found, line): &&(String, String)| {
        found == outcome && line.starts_with(start) && line.contains(detail)
    };
    assert!(
        checks.iter().any(|check| is(&check)),
        "no check is {outcome} with the line {start:?} and the detail {detail:?}: {checks:#?}"
    );
}

#[tokio::test]
async fn healthy_pod_fails_no_check() {
    let cluster = cluster();
    let upstream = Upstream::answering("198.51.100.1").await;
    let kubedns = ready(&cluster, upstream.addr()).await;
    let (code, checks) = check(&words(&cluster, &kubedns)).await;
    assert_eq!(code, 0, "{checks:#?}");
    for line in [
        "services can be listed",
        "kubedns is ready",
        "a cluster IP: kubernetes.default.svc.cluster.local is 10.96.0.1",
        "a named port: _https._tcp.kubernetes.default.svc.cluster.local is port 443",
        "the name of an address: 10.96.0.1 is kubernetes.default.svc.cluster.local.",
        "a headless Service: db.apps.svc.cluster.local has 1 address (",
        "a pod: 10-244-1-20.apps.pod.cluster.local is 10.244.1.20",
        "an external name: example.com is answered (",
    ] {
        assert_says(&checks, "passed", line, "");
    }
    assert_says(&checks, "skipped", "no sidecar is given", "");
    let line = "endpointslices cannot be listed, only endpoints can";
    assert_says(&checks, "warning", line, "");
}

#[tokio::test]
async fn failed_check_names_fault() {
    let cluster = cluster();
    let upstream = Upstream::answering("198.51.100.1").await;
    let kubedns = ready(&cluster, upstream.addr()).await;
    let words = words(&cluster, &kubedns);
    let with = |flag: &str| [words.as_slice(), &[flag.to_owned()]].concat();
    let nobody = format!("http://127.0.0.1:{}", free_port());

    cluster.faults.forbid(Resource::Endpoints);
    for kind in ["endpoints", "endpointslices"] {
        let line = format!("{kind} cannot be listed");
        fails(&words, &line, "is forbidden").await;
    }
    let line = format!("{nobody} does not answer");
    let wrong_url = with(&format!("--kube-master-url={nobody}"));
    fails(&wrong_url, &line, "Connection refused").await;

    let line = "kubedns does not answer at";
    let wrong_server = with(&format!("--server={nobody}"));
    fails(&wrong_server, line, "Connection refused").await;

    let line = "a cluster IP: kubernetes.default.svc.other.example is 198.51.100.1, but the API server has 10.96.0.1";
    fails(&with("--domain=other.example"), line, "").await;

    drop(upstream);
    let line = "an external name: the query for other.example.com failed";
    let other_name = with("--external-name=other.example.com");
    fails(&other_name, line, "SERVFAIL").await;
}

/// With Roles in some namespaces, only the lists of these namespaces are permitted. The command
/// gets the namespaces from the same flag as kubedns.
#[tokio::test]
async fn namespaces_flag_decides_which_lists_are_checked() {
    let cluster = cluster();
    cluster.faults.clear();
    cluster.faults.roles_in(&["default", "apps"]);
    let addresses = ["10.244.1.20"];
    cluster.set(mk_endpoint_slice(
        "apps",
        "db",
        "1",
        &addresses,
        &["sql:5432"],
    ));
    let upstream = Upstream::answering("198.51.100.1").await;
    let namespaces = "--namespaces=default,apps";
    let nameservers = format!("--nameservers={}", upstream.addr());
    let kubedns = Kubedns::ready(&cluster, &[namespaces, &nameservers]).await;
    let words = words(&cluster, &kubedns);
    let with = |flag: &str| [words.as_slice(), &[flag.to_owned()]].concat();

    let (code, checks) = check(&with(namespaces)).await;
    assert_eq!(code, 0, "{checks:#?}");
    for line in [
        "services can be listed",
        "endpointslices can be listed",
        "a cluster IP: kubernetes.default.svc.cluster.local is 10.96.0.1",
        "a headless Service: db.apps.svc.cluster.local has 1 address (",
    ] {
        assert_says(&checks, "passed", line, "");
    }

    let line = "services cannot be listed";
    fails(&words, line, "is forbidden").await;
    let other = with("--namespaces=default,other");
    fails(&other, line, "in the namespace \"other\"").await;
    kubedns.stop().await;
}

/// Runs the checks. Asserts that one of them fails, and that its line begins with `line` and
/// contains `detail`.
async fn fails(words: &[String], line: &str, detail: &str) {
    let (code, checks) = check(words).await;
    assert_eq!(code, 1, "{checks:#?}");
    assert_says(&checks, "failed", line, detail);
}

/// The command checks the configuration that its flags name: a mounted directory, or a ConfigMap at
/// the API server.
#[tokio::test]
async fn configuration_is_checked_with_the_flags() {
    let (cluster, nobody, mounted) = (
        RunningApiServer::empty(),
        free_port(),
        tempfile::tempdir().unwrap(),
    );
    std::fs::write(mounted.path().join("hosts"), "192.0.2.1 a.k8s.example").unwrap();
    let mounted = mounted.path().display();
    cluster.set(mk_config_map(
        "dns",
        "other",
        &[("aliases", r#"{"b.k8s.example": "c.example"}"#)],
    ));
    let config_map = "--config-map-namespace=dns --config-map=other";
    let table = format!(
        r#"
                                                  | skipped | there is no ConfigMap kube-system/kube-dns, and the version
            {config_map}                          | passed  | ConfigMap dns/other is good
            {config_map} --domain=k8s.example     | failed  | ConfigMap dns/other: "b.k8s.example" is in the cluster domain
            --config-dir={mounted}                | passed  | {mounted} is good
            --config-dir={mounted} --domain=k8s.example | failed | {mounted}: "a.k8s.example" is in the cluster domain
        "#
    );
    for [flags, outcome, line] in table::rows(&table) {
        let ours = [
            format!("--kube-master-url={}", cluster.url()),
            format!("--server=http://127.0.0.1:{nobody}"),
            format!("--dns=127.0.0.1:{nobody}"),
            "--external-name=".to_owned(),
        ];
        let words: Vec<String> = ours
            .into_iter()
            .chain(flags.split_whitespace().map(str::to_owned))
            .collect();
        assert_says(&check(&words).await.1, outcome, line, "");
    }
}

/// If the DNS Service prefers the pod of the client's node, `check` names the nodes that have no
/// ready pod of kube-dns.
#[tokio::test]
async fn node_without_pod_is_named() {
    let cluster = cluster();
    let upstream = Upstream::answering("198.51.100.1").await;
    let kubedns = ready(&cluster, upstream.addr()).await;
    let mut service = mk_cluster_ip("kube-system", "kube-dns", &["10.96.0.10"], &["dns:53"]);
    cluster.set(service.clone());
    let (_, checks) = check(&words(&cluster, &kubedns)).await;
    assert!(
        !checks.iter().any(|(_, line)| line.contains("node")),
        "{checks:#?}"
    );

    service["spec"]["trafficDistribution"] = "PreferSameNode".into();
    cluster.set(service);
    let unlisted = "the nodes, or the EndpointSlices of the DNS Service, cannot be listed";
    let (_, checks) = check(&words(&cluster, &kubedns)).await;
    assert_says(&checks, "skipped", unlisted, "nodes");

    cluster.faults.clear();
    cluster.set(own_pods(&["node-1"]));
    for node in ["node-1", "node-2"] {
        cluster.set(ready_node(node));
    }
    let without = "1 of 2 nodes has no ready pod of kube-dns";
    let (code, checks) = check(&words(&cluster, &kubedns)).await;
    assert_eq!(code, 0, "{checks:#?}");
    assert_says(&checks, "warning", without, "node-2");

    cluster.set(own_pods(&["node-1", "node-2"]));
    let (_, checks) = check(&words(&cluster, &kubedns)).await;
    assert_says(
        &checks,
        "passed",
        "2 nodes have a ready pod of kube-dns",
        "",
    );
    kubedns.stop().await;
}

fn ready_node(name: &str) -> Value {
    let mut node = mk_node(name, &[("kubernetes.io/os", "linux")]);
    node["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    node
}

/// The EndpointSlice of the DNS Service, with one ready endpoint on each of `nodes`. Each endpoint
/// has a hint for its own node.
fn own_pods(nodes: &[&str]) -> Value {
    let mut slice = mk_endpoint_slice("kube-system", "kube-dns", "1", &["10.244.1.2"], &["dns:53"]);
    let endpoints = nodes.iter().map(|node| {
        json!({
            "addresses": ["10.244.1.2"],
            "nodeName": node,
            "conditions": {"ready": true},
            "hints": {"forNodes": [{"name": node}]},
        })
    });
    slice["endpoints"] = endpoints.collect();
    slice
}
