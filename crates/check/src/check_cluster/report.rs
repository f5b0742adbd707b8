//! The report as text lines, and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use daemon::version::RUNBOOKS;
use reports::finding::FindingKind;
use serde::Serialize;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckOutcome {
    Passed,
    /// The checked part works, but needs attention.
    Warning,
    Failed,
    /// The check was not possible, or does not apply.
    Skipped,
}

/// A line of the report, and the detail and the advice below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct CheckLine {
    pub(super) group: &'static str,
    pub(super) outcome: CheckOutcome,
    pub(super) text: String,
    /// The reason for the outcome; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) detail: String,
    /// The recommended action; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) action: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) runbook: String,
}

impl CheckLine {
    fn new(outcome: CheckOutcome, group: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            group,
            outcome,
            text,
            detail: String::new(),
            action: String::new(),
            runbook: String::new(),
        }
    }

    pub(super) fn passed(group: &'static str, text: impl Into<String>) -> Self {
        Self::new(CheckOutcome::Passed, group, text)
    }

    pub(super) fn warning(group: &'static str, text: impl Into<String>) -> Self {
        Self::new(CheckOutcome::Warning, group, text)
    }

    pub(super) fn failed(group: &'static str, text: impl Into<String>) -> Self {
        Self::new(CheckOutcome::Failed, group, text)
    }

    pub(super) fn skipped(group: &'static str, text: impl Into<String>) -> Self {
        Self::new(CheckOutcome::Skipped, group, text)
    }

    pub(super) fn with_detail(self, detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            ..self
        }
    }

    /// Adds a recommended action, without a section of docs/troubleshooting.md.
    pub(super) fn with_action(self, action: impl Into<String>) -> Self {
        Self {
            action: action.into(),
            ..self
        }
    }

    /// Adds a recommended action, and the section of docs/troubleshooting.md about it.
    pub(super) fn with_advice(self, action: impl Into<String>, section: &str) -> Self {
        Self {
            runbook: format!("{RUNBOOKS}{section}"),
            ..self.with_action(action)
        }
    }

    /// Adds the advice for findings of this kind.
    pub(super) fn with_advice_for(self, kind: FindingKind) -> Self {
        self.with_advice(kind.action(), kind.section())
    }

    fn mark(&self) -> &'static str {
        match self.outcome {
            CheckOutcome::Passed => "\u{221a}",
            CheckOutcome::Warning => "\u{203c}",
            CheckOutcome::Failed => "\u{d7}",
            CheckOutcome::Skipped => "-",
        }
    }
}

/// A duration as text, in milliseconds.
pub(super) fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// A number with its noun in singular or plural.
pub(super) fn counted(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

fn count(checks: &[CheckLine], outcome: CheckOutcome) -> usize {
    checks
        .iter()
        .filter(|check| check.outcome == outcome)
        .count()
}

/// Whether no check failed.
pub(super) fn is_healthy(checks: &[CheckLine]) -> bool {
    count(checks, CheckOutcome::Failed) == 0
}

/// The report as text: the checks in groups, and then a summary. Control characters are replaced,
/// because parts of the text come from other servers.
pub(super) fn render_text(checks: &[CheckLine]) -> String {
    let mut text = String::new();
    let mut group = "";
    for check in checks {
        if check.group != group {
            if !text.is_empty() {
                text.push('\n');
            }
            group = check.group;
            let _ = writeln!(text, "{group}");
        }
        write_check(&mut text, check);
    }

    let _ = writeln!(text, "\n{}", summary(checks));
    text
}

/// Writes the line of a check, and below it the detail and the advice.
fn write_check(text: &mut String, check: &CheckLine) {
    let _ = writeln!(text, "{} {}", check.mark(), without_controls(&check.text));

    let advice = match (check.action.as_str(), check.runbook.as_str()) {
        (action, "") => action.to_owned(),
        ("", runbook) => runbook.to_owned(),
        (action, runbook) => format!("{action} See {runbook}"),
    };
    for line in [&check.detail, &advice] {
        if !line.is_empty() {
            let _ = writeln!(text, "    {}", without_controls(line));
        }
    }
}

fn summary(checks: &[CheckLine]) -> String {
    let verdict = if is_healthy(checks) {
        "kube-dns is healthy"
    } else {
        "kube-dns is not healthy"
    };
    let passed = count(checks, CheckOutcome::Passed);
    let warnings = counted(count(checks, CheckOutcome::Warning), "warning", "warnings");
    let failed = count(checks, CheckOutcome::Failed);
    let skipped = count(checks, CheckOutcome::Skipped);
    format!("{verdict}: {passed} passed, {warnings}, {failed} failed, {skipped} skipped")
}

fn without_controls(line: &str) -> String {
    line.replace(char::is_control, "?")
}

/// The report as JSON: `{"healthy": ..., "checks": [...]}`.
pub(super) fn render_json(checks: &[CheckLine]) -> String {
    let document = serde_json::json!({ "healthy": is_healthy(checks), "checks": checks });
    format!("{document:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Vec<CheckLine> {
        vec![
            CheckLine::passed("API server", "it answers"),
            CheckLine::warning("pod", "one of two")
                .with_detail("a\nb")
                .with_advice("Wait.", "no-answers"),
            CheckLine::failed("pod", "it is silent"),
            CheckLine::skipped("names", "none"),
        ]
    }

    #[test]
    fn text_report_has_groups_advice_and_summary() {
        let expected = format!(
            "API server\n\u{221a} it answers\n\npod\n\u{203c} one of two\n    a?b\n    Wait. See {RUNBOOKS}no-answers\n\
             \u{d7} it is silent\n\nnames\n- none\n\n\
             kube-dns is not healthy: 1 passed, 1 warning, 1 failed, 1 skipped\n"
        );
        assert_eq!(render_text(&checks()), expected);
        let healthy: Vec<CheckLine> = checks()
            .into_iter()
            .filter(|check| check.outcome != CheckOutcome::Failed)
            .collect();
        assert!(is_healthy(&healthy) && render_text(&healthy).contains("\nkube-dns is healthy: "));
    }

    #[test]
    fn json_report_has_verdict_and_checks() {
        let document: serde_json::Value = serde_json::from_str(&render_json(&checks())).unwrap();
        assert_eq!(document["healthy"], false);
        assert_eq!(
            document["checks"][0],
            serde_json::json!({"group": "API server", "outcome": "passed", "text": "it answers"})
        );
        assert_eq!(
            document["checks"][1]["runbook"],
            format!("{RUNBOOKS}no-answers")
        );
    }
}
