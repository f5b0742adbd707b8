//! `kube-dns check cluster` against a running kubedns and its API server.

use std::net::SocketAddr;

use apiserver::Resource;
use serde_json::Value;
use testkit::objects::{mk_cluster_ip, mk_config_map, mk_endpoints, mk_headless};
use testkit::ports::free_port;
use testkit::process::Program;
use testkit::upstream::{Upstream, answering};

use super::cluster::{Cluster, PATIENCE};
use super::process::Kubedns;

/// An API server with the Service `default/kubernetes` and a headless Service.
fn cluster() -> Cluster {
    let cluster = Cluster::start();
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
async fn ready(cluster: &Cluster, upstream: SocketAddr) -> Kubedns {
    let kubedns = Kubedns::start(cluster, &[&format!("--nameservers={upstream}")]).await;
    kubedns.until_ready().await;
    kubedns
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
    let line = |check: &Value| {
        (
            text(check, "outcome"),
            format!("{} {}", text(check, "text"), text(check, "detail")),
        )
    };
    (
        code,
        report["checks"]
            .as_array()
            .unwrap()
            .iter()
            .map(line)
            .collect(),
    )
}

fn words(cluster: &Cluster, kubedns: &Kubedns) -> Vec<String> {
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
        "{outcome}: {start} ... {detail} in {checks:#?}"
    );
}

#[tokio::test]
async fn healthy_pod_passes_all_checks() {
    let (cluster, upstream) = (cluster(), Upstream::start(answering("198.51.100.1")).await);
    let kubedns = ready(&cluster, upstream.addr()).await;
    let (code, checks) = check(&words(&cluster, &kubedns)).await;
    assert_eq!(code, 0, "{checks:#?}");
    for (outcome, line) in [
        ("passed", "services can be listed"),
        (
            "skipped",
            "endpointslices cannot be listed, and the other kind of endpoints can be",
        ),
        ("passed", "kubedns is ready"),
        ("skipped", "no sidecar is asked"),
        (
            "passed",
            "a cluster IP: kubernetes.default.svc.cluster.local is 10.96.0.1",
        ),
        (
            "passed",
            "a named port: _https._tcp.kubernetes.default.svc.cluster.local is port 443",
        ),
        (
            "passed",
            "the name of an address: 10.96.0.1 is kubernetes.default.svc.cluster.local.",
        ),
        (
            "passed",
            "a headless Service: db.apps.svc.cluster.local has 1 address (",
        ),
        (
            "passed",
            "a pod: 10-244-1-20.apps.pod.cluster.local is 10.244.1.20",
        ),
        ("passed", "an external name: example.com is answered ("),
    ] {
        assert_says(&checks, outcome, line, "");
    }
}

#[tokio::test]
async fn fault_is_named_with_advice() {
    let (cluster, upstream) = (cluster(), Upstream::start(answering("198.51.100.1")).await);
    let kubedns = ready(&cluster, upstream.addr()).await;
    let words = words(&cluster, &kubedns);
    let with = |flag: String| [words.clone(), vec![flag]].concat();

    cluster.faults.forbid(Resource::Endpoints);
    let (code, checks) = check(&words).await;
    assert_eq!(code, 1);
    assert_says(
        &checks,
        "failed",
        "endpoints cannot be listed",
        "is forbidden",
    );
    assert_says(
        &checks,
        "failed",
        "endpointslices cannot be listed",
        "is forbidden",
    );

    let nobody = free_port();
    let (code, checks) = check(&with(format!(
        "--kube-master-url=http://127.0.0.1:{nobody}"
    )))
    .await;
    assert_eq!(code, 1);
    assert_says(
        &checks,
        "failed",
        &format!("http://127.0.0.1:{nobody} does not answer"),
        "Connection refused",
    );

    let (code, checks) = check(&with(format!("--server=http://127.0.0.1:{nobody}"))).await;
    assert_eq!(code, 1);
    assert_says(
        &checks,
        "failed",
        "kubedns does not answer at",
        "Connection refused",
    );

    let (_, checks) = check(&with("--domain=other.example".to_owned())).await;
    let wrong =
        "kubernetes.default.svc.other.example is 198.51.100.1, and 10.96.0.1 at the API server";
    assert_says(&checks, "failed", &format!("a cluster IP: {wrong}"), "");

    drop(upstream);
    let (code, checks) = check(&with("--external-name=other.example.com".to_owned())).await;
    assert_eq!(code, 1);
    assert_says(
        &checks,
        "failed",
        "an external name: other.example.com is not answered",
        "SERVFAIL",
    );
}

/// The command reads the ConfigMap that its flags name, from a mounted directory or the API server.
#[tokio::test]
async fn configuration_is_checked_with_the_flags() {
    let (cluster, nobody, mounted) = (Cluster::start(), free_port(), tempfile::tempdir().unwrap());
    std::fs::write(mounted.path().join("hosts"), "192.0.2.1 a.k8s.example").unwrap();
    let mounted = mounted.path().display();
    cluster.set(mk_config_map(
        "dns",
        "other",
        &[("aliases", r#"{"b.k8s.example": "c.example"}"#)],
    ));
    let config_map = "--config-map-namespace=dns --config-map=other";
    for (flags, outcome, line) in [
        (
            String::new(),
            "skipped",
            "there is no ConfigMap kube-system/kube-dns, and the version".to_owned(),
        ),
        (
            config_map.to_owned(),
            "passed",
            "ConfigMap dns/other is good".to_owned(),
        ),
        (
            format!("{config_map} --domain=k8s.example"),
            "failed",
            "ConfigMap dns/other: \"b.k8s.example\" is in the cluster domain".to_owned(),
        ),
        (
            format!("--config-dir={mounted}"),
            "passed",
            format!("{mounted} is good"),
        ),
        (
            format!("--config-dir={mounted} --domain=k8s.example"),
            "failed",
            format!("{mounted}: \"a.k8s.example\" is in the cluster domain"),
        ),
    ] {
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
        assert_says(&check(&words).await.1, outcome, &line, "");
    }
}
