//! Successful and failing starts.

use nix::sys::signal::Signal;
use testkit::process::Process;

use crate::running::{PATIENCE, Sidecar, program};

async fn run_to_end(flags: &[&str]) -> (i32, Vec<String>) {
    // The sidecar must not print a backtrace, even with RUST_BACKTRACE set.
    let mut process: Process = program(flags).env("RUST_BACKTRACE", "full").start();
    let status = process.wait(PATIENCE).await;
    assert!(process.stdout().is_empty(), "{:?}", process.stdout());
    (
        status
            .code()
            .expect("the sidecar must exit by itself, not because of a signal"),
        process.stderr(),
    )
}

#[tokio::test]
async fn failed_start_logs_one_line() {
    let taken = Sidecar::start::<&str>(&[]).await;
    let port = format!("--prometheus-port={}", taken.address.port());
    let any_port = "--prometheus-port=0";
    let port_in_use = ["--prometheus-addr=127.0.0.1", &port];
    let foreign = ["--prometheus-addr=192.0.2.1", "--prometheus-port=1"];
    let twice = [any_port, "--probe=a,127.0.0.1,x", "--probe=a,127.0.0.1,y"];
    let no_slash = [any_port, "--prometheus-path=metrics"];
    for (flags, expected) in [
        (&port_in_use[..], "cannot listen on 127.0.0.1:"),
        (&foreign, "cannot listen on 192.0.2.1:1: "),
        (&twice, "the label a is used twice"),
        (&no_slash, "\"metrics\" does not begin with a slash"),
    ] {
        let (status, lines) = run_to_end(flags).await;
        assert_eq!(status, 255, "{flags:?}");
        let [line] = lines.as_slice() else {
            panic!("{flags:?}: {lines:?}")
        };
        let is_error = line.starts_with('E') && line.contains(expected);
        assert!(is_error, "{flags:?}: {line}");
    }
}

#[tokio::test]
async fn signal_ends_sidecar_with_success() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        // The first probe is delayed, so the signal arrives before it.
        let mut sidecar = Sidecar::start(&["--probe=silent,192.0.2.1,x"]).await;
        sidecar.process.signal(signal);
        let status = sidecar.process.wait(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{signal}");
        let last = sidecar.process.stderr().pop().unwrap_or_default();
        let stopping = format!("stopping signal=\"{signal}\"");
        assert!(last.contains(&stopping), "{last}");
    }
}

/// The sidecar of kube-dns starts with each of these arguments, so existing manifests may have
/// them.
#[tokio::test]
async fn odd_values_do_not_prevent_start() {
    let not_a_port = "--dnsmasq-port is not a port number from 1 to 65535: \
                      the counters and upstreams of dnsmasq cannot be read port=";
    let cases = [
        ("--dnsmasq-port=70000", not_a_port),
        ("--dnsmasq-port=-1", not_a_port),
        ("--dnsmasq-poll-interval-ms=-1", "sidecar is ready"),
        ("--prometheus-addr=localhost", "sidecar is ready"),
        (
            "--prometheus-namespace=my-ns",
            "given=\"my-ns\" used=\"my_ns\"",
        ),
        ("false", "neither flags nor values words=\"false\""),
    ];
    for (flag, expected) in cases {
        let mut sidecar = Sidecar::start(&[flag]).await;
        sidecar.process.line_with(expected, PATIENCE).await;
        let prefix = if flag.contains("my-ns") {
            "my_ns"
        } else {
            "kubedns"
        };
        let errors = format!("{prefix}_dnsmasq_errors");
        assert!(sidecar.metric(&errors).await.is_some(), "{flag}");
    }
}

#[tokio::test]
async fn unexpected_word_ends_the_start() {
    let accepted = "sidecar accepts only flags, or one of tap, top as the first word";
    for (words, hint) in [
        (&["stray", "--v=2"][..], accepted),
        (&["--v=2", "tap", "web"], "tap must be the first word"),
    ] {
        let word = words
            .iter()
            .find(|word| !word.starts_with('-'))
            .expect("one word must not be a flag");
        let line = format!("unexpected word {word:?}: {hint}");
        let lines = vec!["Usage of sidecar: see sidecar --help".to_owned(), line];
        assert_eq!(run_to_end(words).await, (2, lines), "{words:?}");
    }
}

#[tokio::test]
async fn json_format_logs_json() {
    let process = Sidecar::start(&["--log-format=json"]).await.process;
    for line in process.stderr() {
        let value: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(
            value["msg"].is_string() && value["level"].is_string(),
            "{line}"
        );
    }
}
