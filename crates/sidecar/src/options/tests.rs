//! Tests of the command line. The help text and some errors are compared with recorded output of
//! kube-dns.

use std::ffi::OsString;

use daemon::flags::{Exit, Style};

use super::*;
use crate::spec::PROBE_FORMAT;

fn parse(words: &[&str]) -> Result<Options, Exit> {
    daemon::flags::parse("sidecar", Style::Pflag, words.iter().map(OsString::from))
}

#[test]
fn command_line_of_manifest_is_parsed() {
    let options = parse(&[
        "--v=2",
        "--logtostderr",
        "--probe=kubedns,127.0.0.1:10053,kubernetes.default.svc.cluster.local,5,SRV",
        "--probe=dnsmasq,127.0.0.1:53,kubernetes.default.svc.cluster.local,5,SRV",
    ])
    .unwrap();
    let labels: Vec<&str> = options
        .probe
        .iter()
        .map(|probe| probe.label.as_str())
        .collect();
    assert_eq!(labels, ["kubedns", "dnsmasq"]);
    assert_eq!(Some(&options.probe[1].server), options.dnsmasq().as_ref());
    assert_eq!(parse(&["--dnsmasq-addr="]).unwrap().dnsmasq(), None);
    assert_eq!(options.probe[0].server, options.kubedns_addr);
    assert_eq!(options.health, HealthMode::SelfOnly);
    assert_eq!(options.prometheus_addr, "0.0.0.0");
    assert_eq!(options.prometheus_port, 10054);
    assert_eq!(options.prometheus_path, "/metrics");
    assert_eq!(options.prometheus_namespace.as_str(), "kubedns");
    assert_eq!(options.dnsmasq_poll_interval_ms, 5000);
    assert_eq!(options.log.v.0, 2);
}

/// kube-dns accepts these values (see `docs/differences.md`).
#[test]
fn impossible_value_is_rejected_at_start() {
    let long_label = format!("--probe={},127.0.0.1,x", "a".repeat(129));
    for flag in [
        "--prometheus-port=70000",
        "--probe=a,127.0.0.1:70000,x",
        "--probe=a,127.0.0.1,x..y",
        &long_label,
    ] {
        let exit = parse(&[flag]).unwrap_err();
        let shown = (exit.status, exit.stderr.lines().count());
        assert_eq!(shown, (2, 2), "{flag}: {}", exit.stderr);
    }
}

/// As in kube-dns, the sidecar starts in spite of these values. Nothing answers at port 0, so the
/// sidecar counts errors.
#[test]
fn invalid_values_for_dnsmasq_become_zero() {
    let options = parse(&["--dnsmasq-port=70000", "--dnsmasq-poll-interval-ms=-1"]).unwrap();
    assert_eq!(options.dnsmasq(), Some(ServerAddr::new("127.0.0.1", 0)));
    assert_eq!(options.dnsmasq_poll_interval(), Duration::ZERO);
}

#[test]
fn health_mode_is_parsed() {
    let through = parse(&["--health=through"]).unwrap();
    assert_eq!(through.health, HealthMode::Through);
    let itself = parse(&["--health", "self"]).unwrap();
    assert_eq!(itself.health, HealthMode::SelfOnly);
    let exit = parse(&["--health=x"]).unwrap_err();
    assert_eq!(
        exit.stderr.lines().last(),
        Some("invalid argument \"x\" for \"--health\" flag: must be one of self, through")
    );
}

#[test]
fn wrong_flags_fail_as_in_kube_dns() {
    let captured = include_str!("../../tests/data/sidecar-bad-flags.txt");
    let mut checked = 0;
    for case in captured.split("$ sidecar ").skip(1) {
        let mut lines = case.lines();
        let flag = lines.next().unwrap();
        let rest: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        let (status, expected) = (rest[rest.len() - 1], rest[rest.len() - 2]);
        let exit = parse(&[flag]).unwrap_err();
        // Differs from kube-dns: if the format of `--probe` is invalid, our message ends with the
        // accepted format.
        let ours = exit.stderr.lines().last().unwrap();
        let ours = ours.strip_suffix(PROBE_FORMAT).unwrap_or(ours);
        assert_eq!(ours, expected, "{flag}");
        assert_eq!(format!("--- exit status {}", exit.status), status, "{flag}");
        assert_eq!(exit.stdout, "", "{flag}");
        checked += 1;
    }
    assert_eq!(checked, 9);
}

#[test]
fn error_of_bad_number_names_range() {
    for (flag, text) in [
        (
            "--exechealthz-port=70000",
            "invalid argument \"70000\" for \"--exechealthz-port\" flag: must be a whole number from 0 to 65535",
        ),
        (
            "--upstream-probe-interval-ms=x",
            "invalid argument \"x\" for \"--upstream-probe-interval-ms\" flag: must be a whole number from 0 to \
             18446744073709551615",
        ),
    ] {
        let exit = parse(&[flag]).unwrap_err();
        assert_eq!(exit.stderr.lines().last(), Some(text));
    }
}

#[test]
fn help_has_each_captured_line() {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let exit = parse(&["--help"]).unwrap_err();
    assert_eq!((exit.status, exit.stdout.as_str()), (0, ""));
    let ours: Vec<String> = exit.stderr.lines().map(words).collect();
    let captured = include_str!("../../tests/data/sidecar-help.txt");
    for line in captured
        .lines()
        .filter(|line| !line.starts_with(['$', '-']))
    {
        // kube-dns has no probes over TCP, so its help text does not mention them.
        let line = line.replace(
            "A, AAAA, SRV. Example",
            "A, AAAA, SRV, optionally followed by /tcp to probe over TCP. Example",
        );
        assert!(
            ours.contains(&words(&line)),
            "{line}\nis not in\n{}",
            exit.stderr
        );
    }
}
