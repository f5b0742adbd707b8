//! Shows the verdict in the title, in the icon, and at the top of the page.

use maud::{Markup, html};
use reports::finding::{FindingLevel, PodFinding};
use reports::sidecar::SidecarStatus;

use super::Look;
use super::text::largest_two_units;

/// The appearance of a level.
fn level_look(level: FindingLevel) -> Look {
    let (class, mark, words) = match level {
        FindingLevel::Healthy => ("ok", "\u{2713}", "healthy"),
        FindingLevel::Degraded => ("itself", "\u{25d0}", "degraded"),
        FindingLevel::Down => ("failed", "\u{2717}", "down"),
    };
    Look { class, mark, words }
}

pub(super) fn title(status: &SidecarStatus) -> String {
    let Look { mark, words, .. } = level_look(status.verdict.level);
    format!("{mark} {words} {} kube-dns", status.pod)
}

/// The icon of the tab. Each level has its own shape and colour. `None` means that the level is
/// unknown.
pub(super) fn icon(level: Option<FindingLevel>) -> String {
    let shape = match level {
        None => {
            "%3Ccircle cx='8' cy='8' r='5.5' fill='none' stroke='%23808890' stroke-width='3'/%3E"
        }
        Some(FindingLevel::Healthy) => "%3Ccircle cx='8' cy='8' r='7' fill='%231a7f37'/%3E",
        Some(FindingLevel::Degraded) => "%3Cpath d='M8 1 15 15H1Z' fill='%23bf8700'/%3E",
        Some(FindingLevel::Down) => "%3Cpath d='M1 1h14v14H1Z' fill='%23cf222e'/%3E",
    };
    format!(
        "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E{shape}%3C/svg%3E"
    )
}

pub(super) fn section(status: &SidecarStatus) -> Markup {
    let Look { class, mark, words } = level_look(status.verdict.level);
    html! {
        section class={ "verdict " (class) } aria-label="verdict" {
            h2 { (mark) " " (words) }
            @if status.verdict.findings.is_empty() { p { "No problems found." } }
            ul { @for finding in &status.verdict.findings { (finding_item(finding, status.time)) } }
        }
    }
}

/// A finding with its age and its remedy.
fn finding_item(finding: &PodFinding, now: u64) -> Markup {
    let Look { class, mark, .. } = level_look(finding.level);
    let age = largest_two_units(now.saturating_sub(finding.since) / 1000);
    let since =
        chrono::DateTime::from_timestamp_millis(i64::try_from(finding.since).unwrap_or(i64::MAX));

    html! {
        li class=(class) {
            b { (mark) " " (finding.text) }
            " (since " @if let Some(since) = since { (since.format("%H:%M:%S UTC, ")) }
            (age) " ago). " (finding.action) " "
            a href=(finding.runbook) rel="noreferrer" target="_blank" { "runbook" }
            @if !finding.detail.is_empty() { code { (finding.detail) } }
        }
    }
}
