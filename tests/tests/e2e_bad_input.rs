//! Mistakes of users. Each mistake ends the program with one clear error line on standard error and
//! a failure status, without a backtrace.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has to end there"
)]

use std::net::{Ipv4Addr, UdpSocket};

use testkit::ports::free_port;
use testkit::process::Program;
use testkit::table;
use tests::e2e::{PATIENCE, example_cluster};

/// The program, its arguments, and a text that the error line must contain. `$DIR` is a directory
/// with unusable kubeconfigs, `$EXAMPLE` is the directory of the example cluster, and `$PORT` is a
/// port in use.
const MISTAKES: &str = "
    localpod | --no-such-flag                               | no-such-flag
    kubedns  | --no-such-flag                               | no-such-flag
    nanny    | --no-such-flag                               | no-such-flag
    sidecar  | --no-such-flag                               | no-such-flag
    localpod | stray                                        | 'stray'
    localpod | --port-base 99999                            | 99999 is not in 0..=65535
    localpod | --nameservers dns.example                    | invalid socket address
    localpod | --manifests x --kubecfg-file y               | cannot be used with
    localpod | --port-base $PORT --manifests $EXAMPLE       | $PORT
    localpod | --port-base $PORT --manifests $EXAMPLE       | in use
    localpod | --port-base $PORT --manifests $EXAMPLE       | --port-base
    localpod | --port-base=0 --kubecfg-file=$DIR/absent     | $DIR/absent
    localpod | --port-base=0 --kubecfg-file=$DIR/broken     | $DIR/broken
    localpod | --port-base=0 --kubecfg-file=$DIR/empty      | $DIR/empty
    kubedns  | --dns-port=0 --kubecfg-file=$DIR/absent      | $DIR/absent
    kubedns  | --dns-port=0 --kubecfg-file=$DIR/broken      | $DIR/broken
    kubedns  | --dns-port=0 --kubecfg-file=$DIR/empty       | $DIR/empty
    localpod | --port-base=0 --dnsmasq=/nonexistent/dnsmasq | --dnsmasq /nonexistent/dnsmasq
    nanny    | -configDir=$DIR -dnsmasqExec=/nonexistent/dnsmasq -- -k | /nonexistent/dnsmasq
    localpod | --port-base=0 --manifests=/nonexistent       | /nonexistent
    localpod | --port-base=0 --dnsmasq=/etc/passwd          | --dnsmasq /etc/passwd: no such executable
    localpod | --port-base=0 --bin-dir=$DIR                 | no kubedns in $DIR: build it with `cargo build
";

#[tokio::test]
async fn mistake_ends_program_with_one_error_line() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("broken"), "{ not: [a kubeconfig").unwrap();
    std::fs::write(directory.path().join("empty"), "").unwrap();
    let port = free_port();
    let _taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let mistakes = MISTAKES
        .replace("$DIR", &directory.path().display().to_string())
        .replace("$EXAMPLE", &example_cluster().display().to_string())
        .replace("$PORT", &port.to_string());
    for [program, args, said] in table::rows(&mistakes) {
        check(program, args, said).await;
    }
}

async fn check(program: &str, args: &str, said: &str) {
    let mut process = Program::named(program)
        .args(args.split(' '))
        .env("RUST_BACKTRACE", "1")
        .start();
    let status = process.wait(PATIENCE).await;
    let stderr = process.stderr();
    let what = format!("{program} {args}: {status}\n{}", stderr.join("\n"));
    assert!(!status.success(), "{what}");
    assert!(
        status.code().is_some(),
        "a signal must not end the program: {what}"
    );
    let reasons: Vec<&String> = stderr.iter().filter(|line| !is_log_or_hint(line)).collect();
    assert_eq!(
        reasons.len(),
        1,
        "exactly one error line is expected: {what}"
    );
    assert!(
        reasons[0].contains(said),
        "the error line must contain {said:?}: {what}"
    );
    for trace in ["panicked", "stack backtrace", "RUST_BACKTRACE"] {
        assert!(!what.contains(trace), "{what}");
    }
}

/// Returns whether a line may be printed besides the error line: a log line of level info (`I1121
/// 02:36:24...`), or the hint `Usage of ...`. The nanny prints the hint after the error line.
fn is_log_or_hint(line: &str) -> bool {
    let mut start = line.chars();
    line.starts_with("Usage of ")
        || start.next() == Some('I') && start.take(4).all(|c| c.is_ascii_digit())
}
