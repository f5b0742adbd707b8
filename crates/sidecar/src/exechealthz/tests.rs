//! The probes of each HTTP path, for command lines of published manifests and for others.

use std::ffi::OsString;

use daemon::flags::Style;
use daemon::metrics::Metrics;
use reports::sidecar::PodPart;

use super::*;
use crate::options::HealthMode;

const NAME: &str = "kubernetes.default.svc.cluster.local";

/// Returns the plan of a command line as lines `path: label@server ...`, or the error.
fn plan(words: &[&str]) -> Result<Vec<String>, String> {
    let words = words
        .iter()
        .map(|word| OsString::from(word.replace("NAME", NAME)));
    let options: Options =
        daemon::flags::parse("sidecar", Style::Pflag, words).map_err(|exit| exit.stderr)?;
    let plan = HealthPlan::new(&options).map_err(|error| error.to_string())?;
    let shown = |i: &usize| format!(" {}@{}", plan.specs[*i].label, plan.specs[*i].server);
    let lines = plan
        .paths
        .iter()
        .map(|(path, of)| format!("{path}:{}", of.iter().map(shown).collect::<String>()));
    Ok(lines.collect())
}

/// Probes, as [`plan`] shows them.
const DNSMASQ: &str = "dnsmasq@127.0.0.1:53";
const KUBEDNS: &str = "kubedns@127.0.0.1:10053";

#[test]
fn flags_determine_paths_and_their_probes() {
    let kubedns = "--probe=kubedns,127.0.0.1:10053,NAME";
    let dnsmasq = "--probe=dnsmasq,127.0.0.1,NAME";
    let both = [
        "-cmd=nslookup NAME 127.0.0.1 >/dev/null && nslookup NAME 127.0.0.1:10053 >/dev/null",
        "-port=8080",
        "-quiet",
    ];
    let each = [
        "--cmd=nslookup NAME 127.0.0.1 >/dev/null",
        "--url=/healthz-dnsmasq",
        "--cmd=nslookup NAME 127.0.0.1:10053 >/dev/null",
        "--url=/healthz-kubedns",
        "--port=8080",
        "--quiet",
    ];
    let others =
        ["--cmd=nslookup NAME 10.0.0.10 && nslookup NAME 127.0.0.1 && nslookup x 127.0.0.1"];
    let existing = [
        "--probe=mine,127.0.0.1:53,NAME,1,A",
        "--cmd=nslookup NAME 127.0.0.1",
    ];
    let probes = ["--exechealthz-port=8080", kubedns, dnsmasq];

    let of_dnsmasq = format!("/healthz-dnsmasq: {DNSMASQ}");
    let of_kubedns = format!("/healthz-kubedns: {KUBEDNS}");
    let of_each = vec![of_dnsmasq.clone(), of_kubedns.clone()];
    let of = |probes: &str| format!("/healthz: {probes}");
    let of_both = of(&format!("{DNSMASQ} {KUBEDNS}"));
    let of_others = of(&format!(
        "healthz_1@10.0.0.10:53 {DNSMASQ} healthz_3@127.0.0.1:53"
    ));
    let of_probes = of(&format!("{KUBEDNS} {DNSMASQ}"));
    let of_probes = vec![of_kubedns.clone(), of_dnsmasq, of_probes];
    for (case, words, paths) in [
        ("no flag of exechealthz", &[kubedns][..], vec![]),
        (
            "Kubernetes 1.4.0: one command for both",
            &both,
            vec![of_both],
        ),
        ("Kubernetes 1.4 and 1.5: a path for each", &each, of_each),
        ("another server, another name", &others, vec![of_others]),
        (
            "an existing probe",
            &existing,
            vec![of("mine@127.0.0.1:53")],
        ),
        ("probes alone", &probes, of_probes),
        (
            "--port, the old name of --exechealthz-port",
            &["--port=8080", kubedns],
            vec![of_kubedns, of(KUBEDNS)],
        ),
    ] {
        assert_eq!(plan(words), Ok(paths), "{case}");
    }
}

#[test]
fn wrong_flags_are_rejected_with_reason() {
    let nothing = "--exechealthz-port: there is nothing to check without a --probe or a --cmd";
    let no_slash = "--url: \"healthz\" does not begin with a slash";
    let not_run = "Usage of sidecar: see sidecar --help\ninvalid argument \"echo healthz\" for \"--cmd\" flag: \
                   commands are not run; only \"nslookup NAME SERVER\" is accepted, or several of these joined with \"&&\"\n";
    let [a, b] = ["--cmd=nslookup a 127.0.0.1", "--cmd=nslookup b 127.0.0.1"];
    for (words, line) in [
        (&["--exechealthz-port=8080"][..], nothing),
        (
            &["--url=/healthz"],
            "the number of commands (--cmd) is 0, but the number of paths (--url, /healthz by default) is 1",
        ),
        (
            &[a, b],
            "the number of commands (--cmd) is 2, but the number of paths (--url, /healthz by default) is 1",
        ),
        (&[a, "--url=healthz"], no_slash),
        (&["--cmd=echo healthz"], not_run),
    ] {
        assert_eq!(plan(words).unwrap_err(), line);
    }
}

#[test]
fn overdue_result_fails_the_check() {
    let spec: ProbeSpec = format!("kubedns,127.0.0.1:10053,{NAME},5,A")
        .parse()
        .unwrap();
    let metrics = Metrics::new("sidecar").unwrap();
    let mode = HealthMode::SelfOnly;
    let probe = Probe::new(spec, PodPart::Kubedns, mode, "kubedns", &metrics).unwrap();
    let waiting = probe.health().since;
    let after = |seconds| probe_error(&probe, waiting + Duration::from_secs(seconds));
    assert_eq!(
        after(35),
        None,
        "the check must succeed while the probe has no result and is not overdue"
    );
    let said = after(36);
    assert_eq!(
        said.as_deref(),
        Some("kubedns: latest result too old to be useful")
    );
}
