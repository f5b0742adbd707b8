//! Mistakes of users: each ends with one clear line on standard error and a failure status, without
//! a backtrace.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has to end there"
)]

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;

use testkit::process::Program;
use tests::e2e::{PATIENCE, example_cluster};

/// A command line with a mistake, and the expected error.
struct Mistake<'a> {
    program: &'a str,
    args: Vec<String>,
    /// Words that the error line must contain.
    said: Vec<String>,
}

fn mistake<'a>(program: &'a str, args: &[&str], said: &[&str]) -> Mistake<'a> {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Mistake {
        program,
        args: owned(args),
        said: owned(said),
    }
}

impl Mistake<'_> {
    async fn check(&self) {
        let mut process = Program::named(self.program)
            .args(&self.args)
            .env("RUST_BACKTRACE", "1")
            .start();
        let status = process.wait(PATIENCE).await;
        let stderr = process.stderr();
        let what = format!(
            "{} {}: {status}\n{}",
            self.program,
            self.args.join(" "),
            stderr.join("\n")
        );
        assert!(!status.success(), "{what}");
        assert!(status.code().is_some(), "ended by a signal: {what}");
        let reasons: Vec<&String> = stderr.iter().filter(|line| !is_preamble(line)).collect();
        assert_eq!(reasons.len(), 1, "one line: {what}");
        for expected in &self.said {
            assert!(
                reasons[0].contains(expected.as_str()),
                "says {expected:?}: {what}"
            );
        }
        for trace in ["panicked", "stack backtrace", "RUST_BACKTRACE"] {
            assert!(!what.contains(trace), "{what}");
        }
    }
}

/// Returns whether a line may precede the error line: a log line of level info (`I1121
/// 02:36:24...`), or the first line of the usage text.
fn is_preamble(line: &str) -> bool {
    let mut start = line.chars();
    line.starts_with("Usage of ")
        || start.next() == Some('I') && start.take(4).all(|c| c.is_ascii_digit())
}

#[tokio::test]
async fn unknown_flag_is_one_error() {
    for program in ["localpod", "kubedns", "nanny", "sidecar"] {
        mistake(program, &["--no-such-flag"], &["no-such-flag"])
            .check()
            .await;
    }
}

#[tokio::test]
async fn port_in_use_is_one_error() {
    let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let manifests = example_cluster();
    let localpod = [
        "--port-base",
        &port,
        "--manifests",
        manifests.to_str().unwrap(),
    ];
    mistake("localpod", &localpod, &[&port, "in use", "--port-base"])
        .check()
        .await;
}

#[tokio::test]
async fn unreadable_kubeconfig_is_one_error() {
    let directory = tempfile::tempdir().unwrap();
    let absent = directory.path().join("absent");
    let broken = directory.path().join("broken");
    std::fs::write(&broken, "{ not: [a kubeconfig").unwrap();
    let empty = directory.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    for file in [absent, broken, empty] {
        let flag = format!("--kubecfg-file={}", file.display());
        mistake(
            "localpod",
            &["--port-base=0", &flag],
            &[file.to_str().unwrap()],
        )
        .check()
        .await;
        mistake(
            "kubedns",
            &["--dns-port=0", &flag],
            &[file.to_str().unwrap()],
        )
        .check()
        .await;
    }
}

#[tokio::test]
async fn missing_dnsmasq_is_one_error() {
    let nowhere = Path::new("/nonexistent/dnsmasq");
    let flag = format!("--dnsmasq={}", nowhere.display());
    mistake(
        "localpod",
        &["--port-base=0", &flag],
        &["--dnsmasq", "/nonexistent/dnsmasq"],
    )
    .check()
    .await;
    let directory = tempfile::tempdir().unwrap();
    let config = format!("-configDir={}", directory.path().display());
    let exec = format!("-dnsmasqExec={}", nowhere.display());
    mistake(
        "nanny",
        &[&config, &exec, "--", "-k"],
        &["/nonexistent/dnsmasq"],
    )
    .check()
    .await;
}

#[tokio::test]
async fn missing_manifests_are_one_error() {
    mistake(
        "localpod",
        &["--port-base=0", "--manifests=/nonexistent"],
        &["/nonexistent"],
    )
    .check()
    .await;
}

#[tokio::test]
async fn missing_binaries_are_one_error() {
    mistake(
        "localpod",
        &["--port-base=0", "--bin-dir=/nonexistent"],
        &["/nonexistent", "cargo build"],
    )
    .check()
    .await;
}
