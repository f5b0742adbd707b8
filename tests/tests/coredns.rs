//! Compares the answers of kubedns with answers of CoreDNS' kubernetes plugin
//! (`tests/conformance/coredns`). Some answers were recorded, and some come from the tests of
//! CoreDNS. The flags of kubedns correspond to the options of the plugin. The test puts objects
//! directly into the index, and passes queries directly to the engine.
//!
//! `COREDNS=pods cargo test -p tests --test coredns` limits this comparison to the scenarios with
//! `pods` in their name.
//!
//! `kube-dns check config --corefile` writes a Corefile for the flags of a scenario. If the answers
//! of the scenario were recorded, the module `corefile` checks that this Corefile has the plugin
//! options of the scenario. For all recorded scenarios and a few others, the module `real` starts a
//! real CoreDNS with this Corefile. The answers of CoreDNS must be those of the scenario, apart
//! from the differences that the module `real` allows. The module `config_maps` starts kubedns and a
//! real CoreDNS for the same `ConfigMap`, and compares their answers. The environment variable
//! `COREDNS_BIN` has the path of CoreDNS. Without the variable, `coredns` is taken from `PATH`.
//! Without CoreDNS, the tests in `real` and `config_maps` are skipped with a message.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test helper may panic if the set-up fails, and may print a report"
)]

#[path = "coredns/bench.rs"]
mod bench;
#[path = "coredns/config_maps.rs"]
mod config_maps;
#[path = "coredns/corefile.rs"]
mod corefile;
#[path = "coredns/real.rs"]
mod real;
#[path = "coredns/scenario.rs"]
mod scenario;
#[path = "coredns/server.rs"]
mod server;

use scenario::Scenario;

#[test]
fn answers_agree_with_coredns_or_scenario_lists_difference() {
    let filter = std::env::var("COREDNS").unwrap_or_default();
    let (mut asked, mut wrong) = (0, 0);
    for scenario in Scenario::all()
        .iter()
        .filter(|scenario| scenario.name.contains(&filter))
    {
        let cluster = bench::Cluster::new(scenario);
        for case in &scenario.answers {
            asked += 1;
            if let Err(how) = case.judge(cluster.ask(&case.asks).as_ref()) {
                wrong += 1;
                println!("{}: {}\n{how}", scenario.name, case.asks);
            }
        }
    }
    assert!(asked > 0, "no scenario has {filter:?} in its name");
    assert_eq!(
        wrong, 0,
        "{wrong} of {asked} cases fail: the text above says how"
    );
}
