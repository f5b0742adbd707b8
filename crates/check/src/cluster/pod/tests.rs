use std::time::Duration;

use serde_json::{Value, json};

use super::super::report::Outcome;
use super::*;

fn status(document: Value) -> Status {
    serde_json::from_value(document).unwrap()
}

fn lines(checks: &[Check]) -> Vec<(Outcome, &str)> {
    checks
        .iter()
        .map(|check| (check.outcome, check.text.as_str()))
        .collect()
}

#[test]
fn each_upstream_has_a_line_and_findings_keep_their_advice() {
    let dnsmasq = |condition: &str, error: &str| json!({"address": "192.0.2.9:53", "serves": ["."], "condition": condition, "latencyMs": 4.25, "error": error});
    let well = status(json!({"dnsmasq": {"upstreams": [dnsmasq("answers", "")]}}));
    assert_eq!(
        lines(&upstreams(&well)),
        [
            (
                Outcome::Passed,
                "192.0.2.9:53 answers in 4.2 ms, for external names"
            ),
            (Outcome::Passed, "none forwards back to this pod"),
        ]
    );
    let finding = json!({"kind": "upstreams_down", "text": "external names are not answered", "action": "Ask.", "runbook": "runbook#upstream-down"});
    let dead = status(json!({
        "dnsmasq": {"upstreams": [dnsmasq("silent", "i/o timeout")]}, "verdict": {"findings": [finding]}
    }));
    let checks = upstreams(&dead);
    assert_eq!(
        lines(&checks)[..2],
        [
            (
                Outcome::Warning,
                "192.0.2.9:53 does not answer, for external names"
            ),
            (Outcome::Failed, "external names are not answered"),
        ]
    );
    assert_eq!(
        (checks[0].detail.as_str(), checks[1].action.as_str()),
        ("i/o timeout", "Ask.")
    );
    assert_eq!(
        checks[1].runbook,
        format!("{}upstream-down", daemon::version::RUNBOOKS)
    );
}

#[test]
fn a_latency_may_be_any_number() {
    for (latency_ms, expected) in [
        (2.5, Duration::from_micros(2500)),
        (-1.0, Duration::ZERO),
        (1e300, Duration::MAX),
    ] {
        let status = status(json!({"probes": [{"label": "dnsmasq", "latencyMs": latency_ms}]}));
        assert_eq!(status.probes[0].latency(), expected, "{latency_ms}");
    }
}

#[test]
fn without_dnsmasq_the_upstreams_are_those_of_kubedns() {
    let known = json!({"routes": [[".", "192.0.2.1:53", true], ["acme.example", "192.0.2.2:53", false]],
                       "upstreams": [{"address": "192.0.2.1:53", "meanMs": 2.5}]});
    let alone = status(json!({"dnsmasq": null, "kubedns": {"known": known}}));
    assert_eq!(
        lines(&upstreams(&alone))[..2],
        [
            (
                Outcome::Passed,
                "kubedns: 192.0.2.1:53 answers in 2.5 ms on average, for external names"
            ),
            (
                Outcome::Warning,
                "kubedns: 192.0.2.2:53 does not answer, for names of acme.example"
            ),
        ]
    );
    assert_eq!(alone.stub_domains(), ["acme.example"]);
}

#[test]
fn findings_stand_in_their_group_and_fail_but_for_those_with_answers() {
    for (kind, group, outcome) in [
        ("upstream_down", UPSTREAMS, Outcome::Warning),
        ("stub_domain_down", UPSTREAMS, Outcome::Failed),
        ("forwarding_loop", UPSTREAMS, Outcome::Failed),
        ("config_rejected", CONFIGURATION, Outcome::Failed),
        ("config_unknown_keys", CONFIGURATION, Outcome::Warning),
        ("api_server_lost", GROUP, Outcome::Failed),
        ("starting", GROUP, Outcome::Warning),
        ("something_new", GROUP, Outcome::Failed),
    ] {
        let status = status(json!({"verdict": {"findings": [{"kind": kind, "text": "t"}]}}));
        for other in [GROUP, UPSTREAMS, CONFIGURATION] {
            let found: Vec<Check> = findings(&status, other).collect();
            let expected = if other == group {
                vec![(outcome, "t")]
            } else {
                Vec::new()
            };
            assert_eq!(lines(&found), expected, "{kind} in {other}");
        }
    }
}

#[test]
fn a_configuration_without_findings_is_in_force() {
    let nanny = json!({"source": "x", "known": {"configuration": {"version": "00ff"}, "dnsmasq": {"version": "2.90"}}});
    let status = status(json!({"nanny": nanny}));
    assert_eq!(
        lines(&configuration(&status)),
        [(
            Outcome::Passed,
            "the newest version in the pod is in force (version 00ff)"
        )]
    );
    assert_eq!(
        nanny_line(&status),
        "the nanny answers, and runs dnsmasq 2.90"
    );
}

fn nanny_line(status: &Status) -> String {
    nanny(status).unwrap().text
}
