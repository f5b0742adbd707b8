//! Findings of failing pods, and the duration of these findings.

use std::time::Duration;

use super::*;
use crate::document::example::{good, probe, told, upstream};
use crate::document::kind::ROWS;
use crate::peers::{Fetched, Kubedns, Nanny};
use crate::upstreams::{Condition, UpstreamStatus};

/// The kinds and texts of the findings.
fn found(status: &Status) -> Vec<String> {
    let show = |found: &Finding| {
        let detail = if found.detail.is_empty() {
            String::new()
        } else {
            format!(" ({})", found.detail)
        };
        format!("{}: {}{detail}", found.kind.label(), found.text)
    };
    findings(status).iter().map(show).collect()
}

fn kubedns(text: &str) -> Status {
    let base = "kubedns_synced 1\nkubedns_watch_connected{kind=\"services\"} 1\n";
    Status {
        kubedns: told(Kubedns::read(&format!("{base}{text}"))),
        ..good()
    }
}

fn nanny(json: &str) -> Status {
    Status {
        nanny: told(Nanny::read(json).unwrap()),
        ..good()
    }
}

fn probed(probes: Vec<ProbeStatus>) -> Status {
    Status { probes, ..good() }
}

/// dnsmasq with these upstreams.
fn forwarding(upstreams: Vec<UpstreamStatus>) -> Status {
    let mut status = good();
    status.dnsmasq.as_mut().unwrap().upstreams = upstreams;
    status
}

/// kubedns with these routes and upstreams, each up (1) or down (0).
fn routes(routes: &[(&str, &str, u8)]) -> Status {
    let lines = routes.iter().map(|(route, upstream, up)| {
        format!("kubedns_forward_upstream_up{{route=\"{route}\",upstream=\"{upstream}\"}} {up}\n")
    });
    let status = kubedns(&lines.collect::<String>());
    Status {
        nanny: told(Nanny::read(r#"{"routes":{"upstreamsFrom":"kubedns"}}"#).unwrap()),
        dnsmasq: None,
        ..status
    }
}

#[test]
fn a_pod_that_is_well_has_no_findings() {
    assert_eq!(found(&good()), Vec::<String>::new());
    let unknown = |status: Status| Status {
        kubedns: Fetched {
            source: String::new(),
            known: None,
            error: None,
        },
        nanny: Fetched {
            source: String::new(),
            known: None,
            error: Some("refused".to_owned()),
        },
        ..status
    };
    assert_eq!(
        found(&unknown(good())),
        Vec::<String>::new(),
        "unknown values are no findings"
    );
}

#[test]
fn probes_tell_who_does_not_answer() {
    let lost = ProbeStatus {
        failures: 2,
        ..probe("kubedns", State::Failed, "i/o timeout")
    };
    let refused = || {
        vec![
            probe("kubedns", State::Itself, "no RRs"),
            probe("dnsmasq", State::Itself, "no RRs"),
        ]
    };
    let cases = [
        ("lost packets", probed(vec![lost]), vec![]),
        (
            "kubedns hangs",
            probed(vec![
                probe("kubedns", State::Failed, "i/o timeout"),
                probe("dnsmasq", State::Itself, "i/o timeout"),
            ]),
            vec!["kubedns_silent: kubedns does not answer (i/o timeout)"],
        ),
        (
            "dnsmasq is cut off from kubedns",
            probed(vec![
                probe("kubedns", State::Ok, ""),
                probe("dnsmasq", State::Itself, "i/o timeout"),
            ]),
            vec![
                "names_unanswered: dnsmasq does not answer kubernetes.default.svc.cluster.local. (i/o timeout)",
            ],
        ),
        (
            "dnsmasq hangs",
            probed(vec![probe("dnsmasq", State::Failed, "i/o timeout")]),
            vec!["dnsmasq_silent: dnsmasq does not answer (i/o timeout)"],
        ),
        (
            "a probe of the user's own",
            probed(vec![probe("other", State::Failed, "no RRs")]),
            vec!["probe_fails: the probe other fails (no RRs)"],
        ),
        (
            "the first seconds",
            probed(vec![ProbeStatus {
                failures: 0,
                ..probe("kubedns", State::Waiting, "")
            }]),
            vec!["starting: no probe has ended yet"],
        ),
        (
            "not synced",
            Status {
                probes: refused(),
                ..kubedns("kubedns_synced 0\nkubedns_initial_sync_overdue 1\n")
            },
            vec!["not_synced: kubedns refuses cluster names: its first lists are incomplete"],
        ),
        (
            "not synced yet",
            Status {
                probes: refused(),
                ..kubedns("kubedns_synced 0\nkubedns_initial_sync_overdue 0\n")
            },
            vec!["starting: kubedns waits for its first lists"],
        ),
    ];
    for (case, status, expected) in cases {
        assert_eq!(found(&status), expected, "{case}");
    }
}

#[test]
fn upstreams_are_judged_by_the_names_they_are_there_for() {
    let [live, other] = ["192.0.2.1:53", "192.0.2.2:53"];
    let silent = |address, serves: &[&str]| upstream(address, serves, "i/o timeout");
    let fails = |address, serves: &[&str]| UpstreamStatus {
        condition: Condition::Fails,
        ..silent(address, serves)
    };
    let none =
        "upstreams_down: external names are not answered: no upstream answers (192.0.2.2:53)";
    let one = "upstream_down: 1 of 2 upstreams for external names does not answer: 192.0.2.2:53";
    let stub = "stub_domain_down: names of acme.local are not answered: none of their servers answers (192.0.2.2:53)";
    let cases = [
        (
            "the only one",
            forwarding(vec![silent(other, &["."])]),
            vec![none],
        ),
        (
            "of unknown purpose",
            forwarding(vec![silent(other, &[])]),
            vec![none],
        ),
        (
            "one of two",
            forwarding(vec![upstream(live, &["."], ""), silent(other, &["."])]),
            vec![one],
        ),
        (
            "a stub domain",
            forwarding(vec![
                upstream(live, &["."], ""),
                silent(other, &["acme.local"]),
            ]),
            vec![stub],
        ),
        (
            "a stub domain fails",
            forwarding(vec![fails(other, &["acme.local"])]),
            vec![stub],
        ),
        (
            "the root is refused",
            forwarding(vec![fails(other, &["."])]),
            vec![],
        ),
        (
            "the only one of kubedns",
            routes(&[(".", other, 0)]),
            vec![none],
        ),
        (
            "one of two of kubedns",
            routes(&[(".", live, 1), (".", other, 0)]),
            vec![one],
        ),
        (
            "a stub domain of kubedns",
            routes(&[(".", live, 1), ("acme.local", other, 0)]),
            vec![stub],
        ),
    ];
    for (case, status, expected) in cases {
        assert_eq!(found(&status), expected, "{case}");
    }
    let behind = kubedns("kubedns_forward_upstream_up{route=\".\",upstream=\"127.0.0.1:53\"} 0\n");
    assert_eq!(
        found(&behind),
        Vec::<String>::new(),
        "dnsmasq asks them, and is probed"
    );
}

#[test]
fn what_kubedns_and_the_nanny_say_is_found() {
    let rejected = r#"{"configuration":{"version":"00ff","error":{"text":"bad IP"}}}"#;
    let cases = [
        (
            nanny(rejected),
            "config_rejected: the newest ConfigMap is rejected (bad IP)",
        ),
        (
            kubedns("kubedns_config_current 0\n"),
            "config_rejected: the newest ConfigMap is rejected (by kubedns, see its log)",
        ),
        (
            nanny(
                r#"{"configuration":{"warnings":["upstreamNameserver: did you mean upstreamNameservers?"]}}"#,
            ),
            "config_unknown_keys: keys of the ConfigMap are unknown and ignored \
             (upstreamNameserver: did you mean upstreamNameservers?)",
        ),
        (
            kubedns("kubedns_config_unknown_keys 1\n"),
            "config_unknown_keys: keys of the ConfigMap are unknown and ignored (the log of kubedns names them)",
        ),
        (
            nanny(r#"{"routes":{"pending":{"reason":"no space"}}}"#),
            "routes_pending: dnsmasq does not have the newest servers (no space)",
        ),
        (
            nanny(r#"{"configuration":{"version":"1"},"routes":{"kubednsConfiguration":"2"}}"#),
            "config_differs: kubedns and dnsmasq have different configurations in force",
        ),
        (
            nanny(r#"{"routes":{"unresolved":["a.test","b.test"]}}"#),
            "stub_server_unresolved: names of stub domains' servers have no address: a.test, b.test",
        ),
        (
            nanny(r#"{"routes":{"loops":["127.0.0.53"]}}"#),
            "forwarding_loop: upstreams forward to dnsmasq and are left out: 127.0.0.53",
        ),
        (
            kubedns("kubedns_forward_loops 1\n"),
            "forwarding_loop: an upstream of kubedns forwards to kubedns and is left out",
        ),
        (
            kubedns("kubedns_stub_servers_unresolved 1\n"),
            "stub_server_unresolved: names of stub domains' servers have no address for kubedns",
        ),
        (
            kubedns("kubedns_stale 1\n"),
            "serving_stale: kubedns serves the records of its snapshot file",
        ),
        (
            kubedns("kubedns_watch_connected{kind=\"services\"} 0\n"),
            "api_server_lost: kubedns does not see changes of the cluster: no watch is open",
        ),
        (
            kubedns("kubedns_forward_tls_trusted{upstream=\"tls://192.0.2.3:853\"} 0\n"),
            "upstream_not_trusted: the TLS certificate of the upstream tls://192.0.2.3:853 is not trusted",
        ),
    ];
    for (status, expected) in cases {
        assert_eq!(found(&status), [expected]);
    }
    let both = Status {
        nanny: nanny(rejected).nanny,
        ..kubedns("kubedns_config_current 0\n")
    };
    assert_eq!(found(&both).len(), 1, "one ConfigMap, one finding");
}

#[test]
fn the_worst_finding_is_the_verdict_and_its_time_is_kept() {
    let metrics = Metrics::new("x").unwrap();
    let verdicts = Verdicts::new("kubedns", true, &metrics).unwrap();
    let at = |seconds| Now::at(Duration::from_secs(seconds));
    let exported = || {
        let text = metrics.render().unwrap();
        let lines = text.lines().filter(|line| !line.ends_with("} 0"));
        let lines = lines.filter_map(|line| line.strip_prefix("kubedns_verdict"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(verdicts.judge(Vec::new(), at(0)).level, Level::Well);
    assert_eq!(exported(), [" 0"]);

    let finding = |kind, text: &str| Finding::new(kind, "it", text);
    let rejected = || finding(Kind::ConfigRejected, "rejected");
    verdicts.judge(vec![rejected()], at(10));
    let silent = finding(Kind::KubednsSilent, "silent, from port 1");
    verdicts.judge(vec![rejected(), silent], at(20));
    let silent = finding(Kind::KubednsSilent, "silent, from port 2");
    let verdict = verdicts.judge(vec![rejected(), silent], at(30));
    assert_eq!(verdict.level, Level::Down);
    let kept: Vec<_> = verdict
        .findings
        .iter()
        .map(|found| (found.kind, found.since))
        .collect();
    assert_eq!(
        kept,
        [
            (Kind::KubednsSilent, 20_000),
            (Kind::ConfigRejected, 10_000)
        ]
    );
    assert_eq!(
        exported(),
        [
            " 2",
            "_findings{kind=\"config_rejected\"} 1",
            "_findings{kind=\"kubedns_silent\"} 1"
        ]
    );

    assert_eq!(
        verdicts.judge(vec![rejected()], at(40)).level,
        Level::Degraded
    );
    verdicts.judge(Vec::new(), at(50));
    assert_eq!(
        verdicts.judge(vec![rejected()], at(60)).findings[0].since,
        60_000,
        "it is new again"
    );
}

#[test]
fn what_passes_by_itself_is_no_finding_at_once() {
    let verdicts = Verdicts::new("kubedns", true, &Metrics::new("x").unwrap()).unwrap();
    let lost = || vec![Finding::new(Kind::ApiServerLost, "", "lost")];
    let at = |seconds| Now::at(Duration::from_secs(seconds));
    assert_eq!(verdicts.judge(lost(), at(0)).level, Level::Well);
    assert_eq!(verdicts.judge(lost(), at(29)).level, Level::Well);
    let verdict = verdicts.judge(lost(), at(30));
    assert_eq!(
        (verdict.level, verdict.findings[0].since),
        (Level::Degraded, 0)
    );
}

#[test]
fn set_clock_hides_no_finding() {
    let verdicts = Verdicts::new("kubedns", true, &Metrics::new("x").unwrap()).unwrap();
    let lost = || vec![Finding::new(Kind::ApiServerLost, "", "lost")];
    let at = |seconds| Now::at(Duration::from_secs(seconds));
    let day = std::time::UNIX_EPOCH + Duration::from_hours(24);
    assert_eq!(verdicts.judge(lost(), at(3600)).level, Level::Well);
    assert_eq!(
        verdicts.judge(lost(), at(3601).set_to(day)).level,
        Level::Well,
        "set forward"
    );
    let verdict = verdicts.judge(
        lost(),
        at(3630).set_to(std::time::UNIX_EPOCH + Duration::from_mins(1)),
    );
    assert_eq!(
        (verdict.level, verdict.findings[0].since),
        (Level::Degraded, 30_000),
        "set back"
    );
}

#[test]
fn each_kind_has_a_section_of_the_runbook() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/troubleshooting.md");
    let page = std::fs::read_to_string(path).unwrap();
    let anchors: Vec<String> = page
        .lines()
        .filter(|line| line.starts_with("##"))
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .replace(' ', "-")
        })
        .collect();
    for (at, (kind, _, _, anchor, _)) in ROWS.iter().enumerate() {
        assert_eq!(*kind as usize, at, "the rows are in the order of the kinds");
        assert!(
            anchors.iter().any(|found| found == anchor),
            "{kind:?}: no section {anchor}"
        );
    }
}
