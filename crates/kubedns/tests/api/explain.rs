//! `kube-dns explain` and `GET /explain` with the real binary.

mod command;
mod dnsmasq;
mod endpoint;
mod trust;

use apiserver::RunningApiServer;
use serde_json::Value;
use testkit::eventually;
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_headless};
use testkit::process::Program;

use super::cluster::PATIENCE;
use super::process::Kubedns;

/// An API server with two Services. It permits only what the stock role `system:kube-dns` permits:
/// to list and watch Services and Endpoints.
fn cluster() -> RunningApiServer {
    let cluster = RunningApiServer::empty();
    cluster.faults.kube_dns_role();
    for mut object in [
        mk_cluster_ip("apps", "web", &["10.96.0.10"], &["http:80"]),
        mk_endpoints("apps", "web", &["10.244.1.5", "10.244.2.7"], &["http:8080"]),
        mk_headless("apps", "db", &["sql:5432"]),
        mk_endpoints("apps", "db", &["10.244.1.20 db-0"], &["sql:5432"]),
    ] {
        object["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z".into();
        cluster.set(object);
    }
    cluster
}

/// Starts kubedns with an upstream that receives no queries, not even probes.
async fn starting(cluster: &RunningApiServer, flags: &[&str]) -> Kubedns {
    let upstream = ["--nameservers=192.0.2.53", "--upstream-probe-period=0"];
    Kubedns::start(cluster, &[&upstream, flags].concat()).await
}

/// Starts kubedns, and waits until it is ready and its watches are open. While a watch is not open,
/// every explanation has a warning.
async fn ready(cluster: &RunningApiServer, flags: &[&str]) -> Kubedns {
    let kubedns = starting(cluster, flags).await;
    kubedns.until_ready().await;
    eventually(PATIENCE, || async {
        let metrics = kubedns.metrics().await;
        ["services", "endpoints"].into_iter().all(|kind| {
            let series = format!("kubedns_watch_connected{{kind=\"{kind}\"}} 1");
            metrics.lines().any(|line| line == series)
        })
    })
    .await;
    kubedns
}

impl Kubedns {
    /// Requests an explanation, and checks that its status code is 200.
    async fn explain(&self, query: &str) -> Value {
        let (code, body) = self.get(format!("/explain?{query}")).await;
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The codes of the warnings in an explanation.
    async fn warnings(&self) -> Vec<String> {
        let explanation = self.explain("name=web.apps&type=A").await;
        let warnings = explanation["warnings"].as_array().unwrap().iter();
        warnings
            .map(|warning| warning["code"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Waits until a condition holds.
    async fn until<F: Future<Output = bool>>(&self, is_so: impl Fn() -> F) {
        eventually(PATIENCE, || async {
            if is_so().await {
                Ok(())
            } else {
                Err(self.warnings().await)
            }
        })
        .await;
    }

    /// Runs `kube-dns explain` against this kubedns. Returns exit code, standard output and
    /// standard error.
    async fn command(&self, words: &[&str]) -> (i32, String, String) {
        let server = format!("http://{}", self.status);
        run(&[words, &["--server", &server]].concat()).await
    }
}

/// Runs `kube-dns explain`. Returns exit code, standard output and standard error.
async fn run(words: &[&str]) -> (i32, String, String) {
    let mut process = Program::named("kubedns")
        .args(["explain"])
        .args(words)
        .start();
    let status = process.wait(PATIENCE).await;
    let text = |lines: Vec<String>| lines.into_iter().map(|line| line + "\n").collect();
    (
        status.code().unwrap(),
        text(process.stdout()),
        text(process.stderr()),
    )
}
