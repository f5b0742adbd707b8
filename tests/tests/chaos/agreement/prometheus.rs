//! A real Prometheus with the alerts of `manifests/monitoring/rules.yaml`.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::eventually;
use testkit::http::get;
use testkit::ports::free_port;
use testkit::process::{Process, Program};
use tests::e2e::{PATIENCE, Ports};
use tests::repository;

const CONFIGURATION: &str = "
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
- job_name: kube-dns
  file_sd_configs: [{files: ['targets/*.json']}]
";

/// The label matcher with which the alerts leave out upstreams on loopback.
const NOT_ON_LOOPBACK: &str = r#"upstream!~"127[.].*|.::1.:.*""#;

/// A running Prometheus. Each expression is evaluated every second, and an alert fires as soon as
/// its expression is true.
pub(super) struct Prometheus {
    address: SocketAddr,
    _process: Process,
    directory: TempDir,
}

impl Prometheus {
    /// Starts Prometheus; `None` if it is not installed.
    pub(super) async fn start() -> Option<Self> {
        let program = Path::new("prometheus");
        Command::new(program).arg("--version").output().ok()?;
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("targets")).unwrap();
        fs::write(path("rules.yaml"), rules_at_once()).unwrap();
        fs::write(path("prometheus.yaml"), CONFIGURATION).unwrap();

        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut process = Program::tied(program)
            .args([
                format!("--config.file={}", path("prometheus.yaml").display()),
                format!("--storage.tsdb.path={}", path("data").display()),
                format!("--web.listen-address={address}"),
            ])
            .start();
        process
            .until("became ready", PATIENCE, || async {
                get(address, "/-/ready")
                    .await
                    .is_ok_and(|page| page.status == 200)
            })
            .await;
        Some(Self {
            address,
            _process: process,
            directory,
        })
    }

    /// Adds the containers of a pod as scrape targets, and waits until Prometheus has scraped them.
    pub(super) async fn scrape(&self, pod: &str, ports: Ports, has_nanny: bool) {
        let nanny = has_nanny.then_some(ports.nanny);
        let ports = [ports.kubedns_metrics, ports.sidecar]
            .into_iter()
            .chain(nanny);
        let targets: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        let labels = json!({"namespace": "kube-system", "pod": pod});
        let groups = json!([{"targets": targets, "labels": labels}]);

        // Prometheus reads a file as soon as it appears, so only a complete file gets its final
        // name.
        let [new, file] = ["new", "json"].map(|kind| {
            let name = format!("targets/{pod}.{kind}");
            self.directory.path().join(name)
        });
        fs::write(&new, groups.to_string()).unwrap();
        fs::rename(&new, &file).unwrap();

        eventually(PATIENCE, || async {
            let query = format!("/api/v1/query?query=sum(up%7Bpod%3D%22{pod}%22%7D)");
            let answer = self.read(&query).await?;
            let up = answer.pointer("/data/result/0/value/1").cloned();
            (up == Some(json!(targets.len().to_string())))
                .then_some(())
                .ok_or(answer)
        })
        .await;
    }

    /// The alerts that fire for a pod, each with its severity. The alert about an outdated dnsmasq is
    /// left out, because it depends on the dnsmasq of this machine.
    pub(super) async fn alerts(&self, pod: &str) -> BTreeMap<String, String> {
        let answer = self.read("/api/v1/alerts").await.unwrap_or_default();
        let all = answer.pointer("/data/alerts").and_then(Value::as_array);
        let mut alerts = BTreeMap::new();
        for alert in all.into_iter().flatten() {
            let label = |name: &str| alert["labels"][name].as_str().unwrap_or_default();
            let is_of_machine = label("alertname") == "KubeDNSDnsmasqOutdated";
            if label("pod") == pod && !is_of_machine {
                alerts.insert(label("alertname").to_owned(), label("severity").to_owned());
            }
        }
        alerts
    }

    async fn read(&self, path: &str) -> Result<Value, Value> {
        let page = get(self.address, path).await;
        let body = page.map_err(|error| Value::from(error.to_string()))?.body;
        serde_json::from_str(&body).map_err(|_| Value::from(body))
    }
}

/// The rules without the fields `for` and `interval`, and without the matcher [`NOT_ON_LOOPBACK`].
fn rules_at_once() -> String {
    let file = repository().join("manifests/monitoring/rules.yaml");
    let manifest: Value = serde_norway::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let mut rules = manifest["spec"].clone();
    for group in rules["groups"].as_array_mut().unwrap() {
        group.as_object_mut().unwrap().remove("interval");
        for alert in group["rules"].as_array_mut().unwrap() {
            let alert = alert.as_object_mut().unwrap();
            alert.remove("for");
            // In the tests all upstreams are on loopback, so the alerts must not leave them out.
            let expression = alert["expr"].as_str().unwrap();
            let expression = expression.replace(NOT_ON_LOOPBACK, "");
            alert.insert("expr".to_owned(), Value::from(expression));
        }
    }
    serde_norway::to_string(&rules).unwrap()
}
