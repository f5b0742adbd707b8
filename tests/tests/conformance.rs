//! The recorded answers of kube-dns, asked of a real server process over real sockets.
//!
//! `KUBE_DNS_BINARY` points the suite at another kube-dns-like binary, which is then held against the recorded answers
//! alone. `CONFORMANCE` chooses the scenarios whose name holds its value. Both are told in
//! `tests/conformance/README.md`.

use std::path::PathBuf;

use tests::conformance::difference::Mode;
use tests::conformance::wire::{READ_SLICES, Target, run};

fn filter() -> String {
    std::env::var("CONFORMANCE").unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_agree_or_are_listed() {
    let (target, mode) = match std::env::var_os("KUBE_DNS_BINARY") {
        Some(path) => (Target::Foreign(PathBuf::from(path)), Mode::Recorded),
        None => (Target::Ours(Vec::new()), Mode::Default),
    };
    let report = run(target, mode, &filter()).await.expect("every scenario can be played");
    println!("{report}");
    assert!(report.asked() > 0, "no scenario is called like {:?}", filter());
    assert!(report.is_clean(), "answers differ, see above");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_under_strict_dns_agree_or_are_listed() {
    if std::env::var_os("KUBE_DNS_BINARY").is_some() {
        return;
    }
    let target = Target::Ours(vec!["--strict-dns".to_owned()]);
    let report = run(target, Mode::Strict, &filter()).await.expect("every scenario can be played");
    println!("{report}");
    assert!(report.asked() > 0, "no scenario is called like {:?}", filter());
    assert!(report.is_clean(), "answers differ, see above");
}

/// The vectors hold Endpoints; mirrored into slices they have to give the same answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_from_endpoint_slices_are_the_same() {
    if std::env::var_os("KUBE_DNS_BINARY").is_some() {
        return;
    }
    let target = Target::Ours(vec![READ_SLICES.to_owned()]);
    let report = run(target, Mode::Default, &filter()).await.expect("every scenario can be played");
    println!("{report}");
    assert!(report.asked() > 0, "no scenario is called like {:?}", filter());
    assert!(report.is_clean(), "answers differ, see above");
}
