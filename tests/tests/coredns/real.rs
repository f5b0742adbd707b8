//! Starts a real `CoreDNS`, if one is installed, with the configuration that `kube-dns check config
//! --corefile` writes. Compares the answers of this `CoreDNS` with those that the files of the
//! scenarios contain.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use apiserver::RunningApiServer;
use serde_json::json;
use testkit::eventually;
use testkit::objects::mk_kubeconfig;
use testkit::ports::free_port;
use testkit::process::{Process, Program};
use testkit::query::Query;
use testkit::upstream::{Upstream, Zone};
use testkit::{client, http};
use tests::conformance::answer::{Answer, Observed};
use tests::conformance::judge::diff;
use tests::conformance::vector::Response;

use crate::corefile::corefile;
use crate::scenario::{Case, Scenario};

/// Timeout of each wait during the start of `CoreDNS`. `CoreDNS` becomes ready after its first
/// lists from the API server.
const PATIENCE: Duration = Duration::from_mins(1);

/// The questions, as `SCENARIO: QUESTION`, that the real `CoreDNS` answers differently from the
/// scenario, each with the reason.
const DIFFERENT: &[(&str, &str)] = &[];

#[tokio::test]
async fn written_corefile_gives_answers_of_scenarios() {
    let Some(program) = installed() else {
        return;
    };

    let mut differing = BTreeSet::new();
    let mut asked = 0;
    for scenario in Scenario::all().iter().filter(|scenario| is_real(scenario)) {
        let server = RealServer::start(&program, scenario).await;
        for case in &scenario.answers {
            asked += 1;
            if let Err(how) = judge(case, &server.ask(&case.asks).await) {
                println!("{}: {}\n{how}", scenario.name, case.asks);
                differing.insert(format!("{}: {}", scenario.name, case.asks));
            }
        }
    }

    println!("asked a real CoreDNS {asked} questions");
    let listed: BTreeSet<String> = DIFFERENT
        .iter()
        .map(|(case, _)| (*case).to_owned())
        .collect();
    assert_eq!(differing, listed, "the differences are printed above");
}

/// Whether the test starts a real server for the scenario. The answers of the scenarios `cases-...`
/// come from unit tests of CoreDNS, which use a mock in place of the API server. Of these
/// scenarios, the test uses only those named `cases-zonal...`.
fn is_real(scenario: &Scenario) -> bool {
    let name = &scenario.name;
    !name.starts_with("cases-") || name.starts_with("cases-zonal")
}

/// The path of `CoreDNS`. If none is installed, prints that nothing was tested.
#[allow(
    clippy::print_stderr,
    reason = "a skipped test must not look like a passed one"
)]
fn installed() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("COREDNS_BIN") {
        return Some(path.into());
    }

    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("coredns"))
        .find(|file| file.is_file());
    if found.is_none() {
        eprintln!(
            "SKIPPED: CoreDNS is neither in PATH nor named by COREDNS_BIN, so the Corefile was NOT tried"
        );
    }
    found
}

/// A running `CoreDNS` with the objects of a scenario.
struct RealServer {
    address: SocketAddr,
    process: Process,
    _api_server: RunningApiServer,
    _upstream: Upstream,
    _files: tempfile::TempDir,
}

impl RealServer {
    async fn start(program: &Path, scenario: &Scenario) -> Self {
        let api_server = RunningApiServer::empty();
        for object in scenario.objects() {
            api_server.set(object);
        }
        // The upstream answers every query with NXDOMAIN, so only names of the cluster exist.
        let upstream = Upstream::start(Zone::new([]).handler()).await;
        let files = tempfile::tempdir().expect("a temporary directory must be made");
        let kubeconfig = files.path().join("kubeconfig");
        let content = mk_kubeconfig(&json!({"server": api_server.url()}), &json!({}));
        std::fs::write(&kubeconfig, content.to_string()).expect("the file must be written");

        let port = free_port();
        let ready = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut flags = scenario.flags.clone();
        flags.extend([
            "--topology=alone".to_owned(),
            "--dns-bind-address=127.0.0.1".to_owned(),
            format!("--dns-port={port}"),
            format!("--nameservers={}", upstream.addr()),
            format!("--kubecfg-file={}", kubeconfig.display()),
        ]);
        let written = with_free_ports(&corefile(&flags), ready);
        let file = files.path().join("Corefile");
        std::fs::write(&file, &written).expect("the file must be written");

        let conf = ["-conf".as_ref(), file.as_os_str()];
        let mut server = Self {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            process: Program::tied(program).args(conf).start(),
            _api_server: api_server,
            _upstream: upstream,
            _files: files,
        };
        server.wait_until_serving(ready).await;
        server
    }

    /// Waits until the first lists are complete, and then until the sockets are open.
    async fn wait_until_serving(&mut self, ready: SocketAddr) {
        eventually(PATIENCE, || {
            let state = self.process.check();
            async move {
                state?;
                let response = http::get(ready, "/ready").await;
                let status = response.map_err(|error| error.to_string())?.status;
                (status == 200).then_some(()).ok_or(status.to_string())
            }
        })
        .await;
        let probe = Query::new("cluster.local.", "SOA").wire();
        eventually(PATIENCE, || {
            client::udp(self.address, &probe, client::PATIENCE)
        })
        .await;
    }

    async fn ask(&self, question: &str) -> Response {
        let (name, rtype) = question
            .split_once(' ')
            .expect("a question must have a name and a type");
        let query = Query::new(name, rtype).wire();
        let observed = match client::udp(self.address, &query, client::PATIENCE).await {
            Ok(packet) => Observed::Packet(packet),
            Err(error) => Observed::Nothing(error.to_string()),
        };
        let answer = Answer::read(&observed);
        assert_eq!(answer.defect, None, "{question}");
        Response {
            question: Vec::new(),
            ..answer.response
        }
    }
}

/// The configuration with free ports for `ready`, `health` and `prometheus`, because tests run
/// concurrently. `--dns-port` has already set a free port for DNS.
fn with_free_ports(corefile: &str, ready: SocketAddr) -> String {
    let local = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    corefile
        .replace("    ready\n", &format!("    ready {ready}\n"))
        .replace("    health {", &format!("    health {} {{", local()))
        .replace("prometheus :9153", &format!("prometheus {}", local()))
}

/// Compares an answer with the answer of `CoreDNS` in the scenario. The error has the difference.
fn judge(case: &Case, found: &Response) -> Result<(), String> {
    // If a reverse name does not exist, the real CoreDNS returns the NXDOMAIN of its upstream,
    // which has no SOA record. The answer in the scenario comes from a CoreDNS without an upstream,
    // so its NXDOMAIN has a SOA record.
    let is_forwarded = case.asks.ends_with(".arpa. PTR") && case.response.rcode == "NXDOMAIN";
    if is_forwarded && found.rcode == "NXDOMAIN" && found.authority.is_empty() {
        return Ok(());
    }

    let mut recorded = case.response.clone();
    for section in [
        &mut recorded.answer,
        &mut recorded.authority,
        &mut recorded.additional,
    ] {
        section.sort();
    }
    if *found == recorded {
        return Ok(());
    }
    Err(diff(&recorded, found).join("\n"))
}
