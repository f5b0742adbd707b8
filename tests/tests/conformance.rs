//! Runs the conformance suite against server processes over real sockets.
//!
//! The environment variable `KUBE_DNS_BINARY` selects another binary, which must accept the flags
//! of kube-dns. The answers of that binary must equal the recorded answers: the listed differences
//! of kubedns do not apply to it. The environment variable `CONFORMANCE` selects the scenarios
//! whose name contains its value. `tests/conformance/README.md` describes both variables.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test helper may panic if the set-up fails, and may print a report"
)]

use std::path::PathBuf;

use tests::conformance::difference::Mode;
use tests::conformance::wire::{READ_SLICES, Target, run};

fn foreign() -> Option<PathBuf> {
    std::env::var_os("KUBE_DNS_BINARY").map(PathBuf::from)
}

async fn agrees(target: Target, mode: Mode) {
    let filter = std::env::var("CONFORMANCE").unwrap_or_default();
    let report = run(target, mode, &filter)
        .await
        .expect("every scenario must be played");
    println!("{report}");
    assert!(
        report.asked() > 0,
        "no question was asked: no scenario has {filter:?} in its name, or all such scenarios were skipped"
    );
    assert!(
        report.is_clean(),
        "there are unlisted or stale differences: the report above shows them"
    );
}

/// Runs the suite against our binary with a further flag. Does nothing if `KUBE_DNS_BINARY` selects
/// another binary, because that binary does not have the flag.
async fn agrees_with(flag: &str, mode: Mode) {
    if foreign().is_none() {
        agrees(Target::Ours(vec![flag.to_owned()]), mode).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_agree_except_for_listed_differences() {
    match foreign() {
        Some(path) => agrees(Target::Foreign(path), Mode::Recorded).await,
        None => agrees(Target::Ours(Vec::new()), Mode::Default).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_answers_agree_except_for_listed_differences() {
    agrees_with("--strict-dns", Mode::Strict).await;
}

/// The scenarios contain Endpoints. In this run, the suite's API server mirrors the Endpoints to
/// EndpointSlices, and kubedns reads the EndpointSlices. The answers must be the same as with
/// Endpoints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoint_slices_give_same_answers() {
    agrees_with(READ_SLICES, Mode::Default).await;
}
