//! Checks of the alerts in `manifests/monitoring/rules.yaml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use reports::finding::{FindingKind, FindingLevel};
use serde::{Deserialize, Serialize};
use serde_norway::Value;
use tests::docs::markdown::{Page, code, codes};
use tests::repository;

use crate::promql;
use crate::promtool::promtool;

const RUNBOOKS: &str = concat!(
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/main/docs/troubleshooting.md"
);

#[derive(Deserialize)]
struct PrometheusRule {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    spec: Rules,
}

/// A rule file of Prometheus.
#[derive(Deserialize, Serialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize, Serialize)]
struct Group {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interval: Option<String>,
    rules: Vec<Alert>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Alert {
    #[serde(rename = "alert")]
    name: String,
    expr: String,
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pending: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

fn directory() -> PathBuf {
    repository().join("manifests/monitoring")
}

fn rules() -> Rules {
    let text = fs::read_to_string(directory().join("rules.yaml")).unwrap();
    let rule: PrometheusRule = serde_norway::from_str(&text).unwrap();
    let kind = (rule.api_version.as_str(), rule.kind.as_str());
    assert_eq!(kind, ("monitoring.coreos.com/v1", "PrometheusRule"));
    rule.spec
}

fn alerts() -> Vec<Alert> {
    rules()
        .groups
        .into_iter()
        .flat_map(|group| group.rules)
        .collect()
}

/// The names and expressions of the alerts.
pub(crate) fn alert_expressions() -> Vec<(String, String)> {
    let alerts = alerts().into_iter();
    alerts.map(|alert| (alert.name, alert.expr)).collect()
}

/// The names and contents of promtool's test files.
fn tests_of_rules() -> Vec<(String, String)> {
    let files = fs::read_dir(directory().join("tests"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    files
        .iter()
        .map(|path| (name(path), fs::read_to_string(path).unwrap()))
        .collect()
}

#[test]
fn alerts_use_existing_metrics_and_labels() {
    for alert in alerts() {
        promql::check(&alert.name, &alert.expr);
        for (annotation, text) in &alert.annotations {
            for label in text.split("$labels.").skip(1) {
                let label = label
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .next()
                    .unwrap();
                let kept = promql::named(&alert.expr).grouping;
                assert!(
                    kept.contains(label),
                    "{}: {annotation} shows the label {label}, which the alert does not have",
                    alert.name
                );
            }
        }
    }
}

#[test]
fn alerts_are_complete_and_match_docs() {
    let page = Page::read("metrics.md");
    let rows = page.rows(
        "Dashboards and alerts",
        &["alert", "severity", "it fires when", "runbook"],
    );
    let documented: BTreeMap<&str, (&str, String)> = rows
        .iter()
        .map(|row| {
            (
                code(&row[0]),
                (row[1].as_str(), format!("{RUNBOOKS}{}", code(&row[3]))),
            )
        })
        .collect();
    let alerts = alerts();
    let found: BTreeMap<&str, (&str, String)> = alerts
        .iter()
        .map(|alert| {
            let runbook = alert.annotations["runbook_url"].clone();
            (
                alert.name.as_str(),
                (alert.labels["severity"].as_str(), runbook),
            )
        })
        .collect();
    assert_eq!(found.len(), alerts.len(), "duplicate alert");
    assert_eq!(found, documented);
    for alert in &alerts {
        assert!(
            ["critical", "warning", "info"].contains(&alert.labels["severity"].as_str()),
            "{}",
            alert.name
        );
        for annotation in ["summary", "description", "action"] {
            assert!(
                alert.annotations[annotation].ends_with('.'),
                "{}: {annotation}",
                alert.name
            );
        }
    }
}

/// Alerts, each with the finding of the sidecar about the same fault.
const ALERTS_OF_FINDINGS: [(&str, FindingKind); 16] = [
    ("KubeDNSNotSynced", FindingKind::NotSynced),
    ("KubeDNSConfigRejected", FindingKind::ConfigRejected),
    ("KubeDNSConfigDiffers", FindingKind::ConfigDiffers),
    (
        "KubeDNSStubServerUnresolved",
        FindingKind::StubServerUnresolved,
    ),
    ("KubeDNSForwardingLoop", FindingKind::ForwardingLoop),
    ("KubeDNSServingStale", FindingKind::ServingStale),
    ("KubeDNSAPIServerLost", FindingKind::ApiServerLost),
    ("KubeDNSUpstreamsDown", FindingKind::UpstreamsDown),
    ("KubeDNSUpstreamDown", FindingKind::UpstreamDown),
    ("KubeDNSUpstreamNotTrusted", FindingKind::UpstreamNotTrusted),
    ("KubeDNSDnsmasqRestarts", FindingKind::DnsmasqRestarts),
    ("KubeDNSStubDomainDown", FindingKind::StubDomainDown),
    ("KubeDNSContainerRestarts", FindingKind::ContainerRestarts),
    ("KubeDNSReportMissing", FindingKind::ReportMissing),
    ("KubeDNSClientsLimited", FindingKind::ClientsLimited),
    (
        "KubeDNSNodeAnsweredElsewhere",
        FindingKind::NodeAnsweredElsewhere,
    ),
];

/// The kinds of findings without an alert of their own. The comments name the alerts that cover
/// them, if any.
const FINDINGS_OF_OTHER_ALERTS: [FindingKind; 9] = [
    // KubeDNSNoAnswers covers the next three kinds.
    FindingKind::KubednsSilent,
    FindingKind::DnsmasqSilent,
    FindingKind::NamesUnanswered,
    // The next kind has no alert.
    FindingKind::ProbeFails,
    // KubeDNSDnsmasqUpstreamFailing covers the next kind.
    FindingKind::UpstreamsUnproven,
    // KubeDNSConfigRejected covers the next kind.
    FindingKind::RoutesPending,
    // The next three kinds need no alert.
    FindingKind::ServersAdded,
    FindingKind::ConfigUnknownKeys,
    FindingKind::Starting,
];

#[test]
fn alerts_agree_with_findings() {
    let alerts: BTreeMap<String, Alert> = alerts()
        .into_iter()
        .map(|alert| (alert.name.clone(), alert))
        .collect();
    let mut kinds = BTreeSet::from(FINDINGS_OF_OTHER_ALERTS);
    for (name, kind) in ALERTS_OF_FINDINGS {
        let alert = &alerts[name];
        assert_eq!(alert.annotations["action"], kind.action(), "{name}");
        let runbook = format!("{RUNBOOKS}#{}", kind.section());
        assert_eq!(alert.annotations["runbook_url"], runbook, "{name}");
        let is_critical = alert.labels["severity"] == "critical";
        assert_eq!(is_critical, kind.level() == FindingLevel::Down, "{name}");
        assert!(kinds.insert(kind), "{kind:?} is listed twice");
    }
    assert_eq!(kinds, FindingKind::all().collect());
}

/// The text below the heading with this anchor, up to the next heading. Ignores headings of level
/// one.
fn section_of(page: &str, anchor: &str) -> Option<String> {
    // A line with a single `#` may be a comment in an example.
    let is_heading = |line: &&str| line.starts_with("##");
    let of_anchor = |line: &&str| is_heading(line) && Page::parse(line).anchors == [anchor];
    let mut lines = page.lines().skip_while(|line| !of_anchor(line));
    lines.next()?;
    Some(
        lines
            .take_while(|line| !is_heading(line))
            .collect::<Vec<_>>()
            .join("\n"),
    )
}

/// The runbook URL of each alert leads to a section of docs/troubleshooting.md that names the
/// alert.
#[test]
fn runbook_links_match_alerts() {
    let page = fs::read_to_string(repository().join("docs/troubleshooting.md")).unwrap();
    for alert in alerts() {
        let anchor = alert.annotations["runbook_url"]
            .split_once('#')
            .unwrap()
            .1
            .to_owned();
        let section = section_of(&page, &anchor);
        let section = section
            .unwrap_or_else(|| panic!("{}: troubleshooting.md has no #{anchor}", alert.name));
        let named = section.contains(&format!("`{}`", alert.name));
        assert!(
            named,
            "{}: the section #{anchor} does not name the alert",
            alert.name
        );
    }
}

/// Each alert fires in one of promtool's test files.
#[test]
fn each_alert_is_tested() {
    let texts: String = tests_of_rules().into_iter().map(|(_, text)| text).collect();
    let firing = |alert: &str| {
        let as_series = format!("- labels: ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"");
        let as_alert = format!("- alertname: {alert}\n");
        texts.contains(&as_series) || texts.contains(&as_alert)
    };
    let alerts = alerts();
    let untested: BTreeSet<&str> = alerts
        .iter()
        .map(|a| a.name.as_str())
        .filter(|a| !firing(a))
        .collect();
    assert!(untested.is_empty(), "{untested:?}");
}

/// For a Prometheus without the operator, the command in docs/metrics.md makes the rule file.
#[test]
fn documented_command_makes_rule_file() {
    let page = fs::read_to_string(repository().join("docs/metrics.md")).unwrap();
    let mut codes = page.lines().flat_map(codes);
    let command = codes.find(|code| code.starts_with("sed "));
    let output = Command::new("sh")
        .args(["-c", command.unwrap()])
        .current_dir(directory())
        .output()
        .unwrap();
    let made: Value = serde_norway::from_slice(&output.stdout).unwrap();
    assert_eq!(made, serde_norway::to_value(rules()).unwrap());
}

#[test]
fn alerts_fire_when_they_should() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(
        directory.path().join("rules.yaml"),
        serde_norway::to_string(&rules()).unwrap(),
    )
    .unwrap();
    promtool(directory.path(), &["check", "rules", "rules.yaml"]);
    let tests = tests_of_rules();
    assert!(!tests.is_empty());
    for (name, text) in tests {
        let name = format!("test-{name}");
        fs::write(directory.path().join(&name), text).unwrap();
        promtool(directory.path(), &["test", "rules", &name]);
    }
}
