//! The recorded answers of kube-dns, asked of a real server process over real sockets.
//!
//! `KUBE_DNS_BINARY` points the suite at another kube-dns-like binary, which is then held against the recorded answers
//! alone. `CONFORMANCE` chooses the scenarios whose name holds its value. Both are told in
//! `tests/conformance/README.md`.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "helpers of tests: a broken set-up ends the test with its reason"
)]

use std::path::PathBuf;

use tests::conformance::difference::Mode;
use tests::conformance::wire::{READ_SLICES, Target, run};

fn foreign() -> Option<PathBuf> {
    std::env::var_os("KUBE_DNS_BINARY").map(PathBuf::from)
}

async fn agrees(target: Target, mode: Mode) {
    let filter = std::env::var("CONFORMANCE").unwrap_or_default();
    let report = run(target, mode, &filter).await.expect("every scenario can be played");
    println!("{report}");
    assert!(report.asked() > 0, "no scenario is called like {filter:?}");
    assert!(report.is_clean(), "answers differ, see above");
}

/// Ours with a further flag; another binary has no such flags.
async fn agrees_with(flag: &str, mode: Mode) {
    if foreign().is_none() {
        agrees(Target::Ours(vec![flag.to_owned()]), mode).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_agree_or_are_listed() {
    match foreign() {
        Some(path) => agrees(Target::Foreign(path), Mode::Recorded).await,
        None => agrees(Target::Ours(Vec::new()), Mode::Default).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_under_strict_dns_agree_or_are_listed() {
    agrees_with("--strict-dns", Mode::Strict).await;
}

/// The vectors hold Endpoints; mirrored into slices they have to give the same answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_from_endpoint_slices_are_the_same() {
    agrees_with(READ_SLICES, Mode::Default).await;
}
