//! A cluster of an embedded API server and the real kubedns, and the ways to ask it.

use std::net::SocketAddr;
use std::time::Duration;

use apiserver::{ApiServer, Faults, Options, Store};
use serde_json::Value;
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_headless};
use testkit::process::{Process, Program, address};
use testkit::{eventually, http};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// However slow the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// An embedded API server; it ends with this.
pub(crate) struct Cluster {
    pub(crate) store: Store,
    pub(crate) faults: Faults,
    address: SocketAddr,
    _server: JoinSet<()>,
}

impl Cluster {
    /// A few Services.
    pub(crate) fn start() -> Self {
        let options = Options { bootstrap: false, ..Options::default() };
        let server = ApiServer::bind(([127, 0, 0, 1], 0).into(), options).unwrap();
        let (address, store, faults) = (server.local_addr(), server.store(), server.faults());
        // It allows Endpoints and no slices.
        faults.kube_dns_role();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(CancellationToken::new()));
        for mut object in [
            mk_cluster_ip("apps", "web", &["10.96.0.10"], &["http:80"]),
            mk_endpoints("apps", "web", &["10.244.1.5", "10.244.2.7"], &["http:8080"]),
            mk_headless("apps", "db", &["sql:5432"]),
            mk_endpoints("apps", "db", &["10.244.1.20 db-0"], &["sql:5432"]),
        ] {
            object["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z".into();
            store.set(object).unwrap();
        }
        Self { store, faults, address, _server: tasks }
    }

    /// Starts kubedns and waits until it is ready.
    pub(crate) async fn kubedns(&self, flags: &[&str]) -> Kubedns {
        let kubedns = self.starting(flags).await;
        kubedns.until(|| async { kubedns.get("/readiness").await.0 == 200 }).await;
        kubedns
    }

    /// Starts kubedns.
    pub(crate) async fn starting(&self, flags: &[&str]) -> Kubedns {
        let program = program().env("PROMETHEUS_PORT", "0").args([
            format!("--kube-master-url=http://{}", self.address),
            "--dns-bind-address=127.0.0.1".to_owned(),
            "--dns-port=0".to_owned(),
            "--healthz-port=0".to_owned(),
            "--resolv-conf=/dev/null".to_owned(),
            "--nameservers=192.0.2.53".to_owned(),
        ]);
        let mut process = program.args(flags).start();
        let dns = address(&process.line_with("serving DNS", PATIENCE).await);
        let status = address(&process.line_with("serving /readiness", PATIENCE).await);
        let metrics = address(&process.line_with("serving metrics", PATIENCE).await);
        Kubedns { dns, status, metrics, _process: process }
    }
}

/// The binary.
pub(crate) fn program() -> Program {
    Program::at(env!("CARGO_BIN_EXE_kubedns").as_ref())
}

/// A running kubedns; it is killed with this.
pub(crate) struct Kubedns {
    pub(crate) dns: SocketAddr,
    pub(crate) status: SocketAddr,
    metrics: SocketAddr,
    _process: Process,
}

impl Kubedns {
    /// Status code and body of a GET on the status port.
    pub(crate) async fn get(&self, path: impl AsRef<str>) -> (u16, String) {
        let response = http::get(self.status, path.as_ref()).await.unwrap();
        (response.status, response.body)
    }

    /// The explanation at a path, which has to be one.
    pub(crate) async fn explain(&self, query: &str) -> Value {
        let (code, body) = self.get(format!("/explain?{query}")).await;
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The codes of the warnings of any explanation.
    pub(crate) async fn warnings(&self) -> Vec<String> {
        let explanation = self.explain("name=web.apps&type=A").await;
        let warnings = explanation["warnings"].as_array().unwrap().iter();
        warnings.map(|warning| warning["code"].as_str().unwrap().to_owned()).collect()
    }

    /// The metrics.
    pub(crate) async fn metrics(&self) -> String {
        http::get(self.metrics, "/metrics").await.unwrap().body
    }

    /// DNS questions that it was asked so far.
    pub(crate) async fn queries(&self) -> usize {
        let metrics = self.metrics().await;
        let counts = metrics.lines().filter_map(|line| {
            line.strip_prefix("skydns_skydns_dns_request_count_total{")?
                .split(' ')
                .next_back()?
                .parse::<usize>()
                .ok()
        });
        counts.sum()
    }

    /// Waits until something is so.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, is_so: impl Fn() -> F) {
        eventually(PATIENCE, || async { if is_so().await { Ok(()) } else { Err(self.warnings().await) } })
            .await;
    }

    /// Runs the command against it: exit code, standard output, standard error.
    pub(crate) async fn command(&self, words: &[&str]) -> (i32, String, String) {
        let server = format!("http://{}", self.status);
        run(&[words, &["--server", &server]].concat()).await
    }
}

/// Runs `kubedns explain`.
pub(crate) async fn run(words: &[&str]) -> (i32, String, String) {
    let mut process = program().args(["explain"]).args(words).start();
    let status = process.wait(PATIENCE).await;
    let text = |lines: Vec<String>| lines.into_iter().flat_map(|line| [line, "\n".to_owned()]).collect();
    (status.code().unwrap(), text(process.stdout()), text(process.stderr()))
}
