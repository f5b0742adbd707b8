//! Starts a real `CoreDNS`, if one is installed, for each scenario that `is_real` selects.
//! `CoreDNS` has the configuration that `kube-dns check config --corefile` writes for the flags of
//! the scenario. Its answers must be those in the file of the scenario, apart from the differences
//! that `judge` and `DIFFERENT` allow.

use std::collections::BTreeSet;

use apiserver::RunningApiServer;
use serde_json::json;
use testkit::upstream::{Upstream, Zone};
use tests::conformance::judge::diff;
use tests::conformance::vector::Response;
use tests::e2e::write_kubeconfig;

use crate::scenario::{Case, Scenario};
use crate::server::{CoreDns, ask, assert_listed, installed};

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
        let api_server = RunningApiServer::empty();
        for object in scenario.objects() {
            api_server.set(object);
        }
        // The upstream answers every query with NXDOMAIN, so only names of the cluster exist.
        let upstream = Upstream::start(Zone::new([]).handler()).await;
        let files = tempfile::tempdir().expect("a temporary directory must be made");
        let kubeconfig = write_kubeconfig(files.path(), &api_server.url(), &json!({}))
            .expect("the file must be written");

        let mut flags = scenario.flags.clone();
        flags.extend([
            format!("--nameservers={}", upstream.addr()),
            format!("--kubecfg-file={}", kubeconfig.display()),
        ]);
        let empty = tempfile::tempdir().expect("a temporary directory must be made");
        let server = CoreDns::start(&program, &flags, empty.path()).await;
        for case in &scenario.answers {
            asked += 1;
            if let Err(how) = judge(case, &ask(server.address, &case.asks).await) {
                println!("{}: {}\n{how}", scenario.name, case.asks);
                differing.insert(format!("{}: {}", scenario.name, case.asks));
            }
        }
    }

    println!("asked a real CoreDNS {asked} questions");
    assert_listed(&differing, DIFFERENT);
}

/// Whether the test starts a real server for the scenario. The answers of the scenarios `cases-...`
/// come from unit tests of CoreDNS, which use a mock in place of the API server. Of these
/// scenarios, the test uses only those named `cases-zonal...`.
fn is_real(scenario: &Scenario) -> bool {
    let name = &scenario.name;
    !name.starts_with("cases-") || name.starts_with("cases-zonal")
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
