use std::time::Duration;

use serde_json::{Value, json};

use super::super::report::CheckOutcome;
use super::*;

fn status(document: Value) -> SidecarStatus {
    serde_json::from_value(document).unwrap()
}

fn lines(checks: &[CheckLine]) -> Vec<(CheckOutcome, &str)> {
    checks
        .iter()
        .map(|check| (check.outcome, check.text.as_str()))
        .collect()
}

#[test]
fn upstream_finding_keeps_text_action_and_runbook() {
    let finding = json!({"kind": "upstreams_down", "text": "external names are not answered", "action": "Ask.", "runbook": "runbook/upstream-down"});
    let down = status(json!({"verdict": {"findings": [finding]}}));
    let checks = findings_in(&down, FindingGroup::Upstreams);
    assert_eq!(
        lines(&checks),
        [(CheckOutcome::Failed, "external names are not answered")]
    );
    assert_eq!(checks[0].action, "Ask.");
    let runbook = format!("{}upstream-down", daemon::version::RUNBOOKS);
    assert_eq!(checks[0].runbook, runbook);
}

/// `has_loop` does not use the finding `forwarding_loop`. If every upstream for external names is
/// in a loop, the sidecar may report only the finding `upstreams_down`.
#[test]
fn loops_come_from_reports_of_kubedns_and_nanny() {
    let kubedns = |loops: f64| json!({"source": "x", "known": {"forwardLoops": loops}});
    let nanny = |loops: &[&str]| json!({"source": "x", "known": {"routes": {"loops": loops}}});
    for (case, document, expected) in [
        ("nothing is known", json!({}), None),
        ("no nanny", json!({"kubedns": kubedns(0.0)}), Some(false)),
        (
            "the nanny is silent",
            json!({"kubedns": kubedns(0.0), "nanny": {"source": "x"}}),
            None,
        ),
        (
            "both know of none",
            json!({"kubedns": kubedns(0.0), "nanny": nanny(&[])}),
            Some(false),
        ),
        (
            "through dnsmasq",
            json!({"kubedns": kubedns(0.0), "nanny": nanny(&["192.0.2.1:53"])}),
            Some(true),
        ),
        (
            "through kubedns",
            json!({"kubedns": kubedns(1.0), "nanny": nanny(&[])}),
            Some(true),
        ),
    ] {
        assert_eq!(has_loop(&status(document)), expected, "{case}");
    }
}

#[test]
fn latency_is_clamped_to_range_of_duration() {
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
fn kind_decides_group_and_outcome_of_finding() {
    use FindingGroup::{Configuration, Pod, Upstreams};
    for (kind, group, outcome) in [
        ("upstream_down", Upstreams, CheckOutcome::Warning),
        ("stub_domain_down", Upstreams, CheckOutcome::Failed),
        ("forwarding_loop", Upstreams, CheckOutcome::Failed),
        ("servers_added", Upstreams, CheckOutcome::Warning),
        ("config_rejected", Configuration, CheckOutcome::Failed),
        ("config_unknown_keys", Configuration, CheckOutcome::Warning),
        ("api_server_lost", Pod, CheckOutcome::Failed),
        ("starting", Pod, CheckOutcome::Warning),
        ("something_new", Pod, CheckOutcome::Failed),
    ] {
        let status = status(json!({"verdict": {"findings": [{"kind": kind, "text": "t"}]}}));
        for other in [Pod, Upstreams, Configuration] {
            let found: Vec<CheckLine> = findings_in(&status, other);
            let expected = if other == group {
                vec![(outcome, "t")]
            } else {
                Vec::new()
            };
            assert_eq!(lines(&found), expected, "{kind} in {other:?}");
        }
    }
}

#[test]
fn without_findings_configuration_is_in_force_and_nanny_answers() {
    let nanny = json!({"source": "x", "known": {"configuration": {"version": "00ff"}, "dnsmasq": {"version": "2.90"}}});
    let status = status(json!({"nanny": nanny}));
    let in_force = "the newest configuration in the pod is in force (version 00ff)";
    let checks = check_configuration(&status);
    assert_eq!(lines(&checks), [(CheckOutcome::Passed, in_force)]);
    let nanny = check_nanny(&status).unwrap();
    assert_eq!(nanny.text, "the nanny answers, and runs dnsmasq 2.90");
}
