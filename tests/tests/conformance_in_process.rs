//! Runs the conformance suite inside one process and without sockets, which is faster. Events go
//! into the index, and packets into the engine.
//!
//! Upstream answers come from the recorded exchanges. If the engine forwards a query, this suite
//! checks only that the expected answer does not come from records of the cluster. The suite over
//! real sockets compares the whole answer.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests: a broken set-up ends the test with its reason"
)]

#[path = "conformance_in_process/bench.rs"]
mod bench;
#[path = "conformance_in_process/cluster.rs"]
mod cluster;
#[path = "conformance_in_process/objects.rs"]
mod objects;

use tests::conformance::difference::{Differences, Mode};
use tests::conformance::memory::Memory;
use tests::conformance::report::Report;
use tests::conformance::vector;

fn agrees(mode: Mode) {
    let scenarios = vector::load_all().expect("the vectors");
    let differences = Differences::load(&scenarios).expect("the differences");
    let memory = Memory::of(&scenarios).expect("the exchanges");
    let filter = std::env::var("CONFORMANCE").unwrap_or_default();
    let mut report = Report::default();
    let mut forwarded = 0;
    for scenario in scenarios
        .iter()
        .filter(|scenario| scenario.name.contains(&filter))
    {
        let played = bench::play(scenario, mode, &differences, &memory);
        forwarded += played.forwarded;
        report.add(played.verdicts);
    }
    println!("{report}{forwarded} questions were sent on");
    assert!(report.asked() > 0);
    assert!(report.is_clean(), "answers differ, see above");
}

#[test]
fn answers_agree_or_are_listed() {
    agrees(Mode::Default);
}

#[test]
fn strict_answers_agree_or_are_listed() {
    agrees(Mode::Strict);
}
