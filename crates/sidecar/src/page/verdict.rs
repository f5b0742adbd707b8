//! Shows the verdict in the title, in the icon, and at the top of the page.

use maud::{Markup, html};

use super::text::ago;
use crate::document::{Lasting, Level, Status};

/// The appearance of a level: a CSS class for the colour, a sign for readers who do not see
/// colours, and a word.
fn look(level: Level) -> (&'static str, &'static str, &'static str) {
    match level {
        Level::Well => ("ok", "\u{2713}", "well"),
        Level::Degraded => ("itself", "\u{25d0}", "degraded"),
        Level::Down => ("failed", "\u{2717}", "down"),
    }
}

pub(super) fn title(status: &Status) -> String {
    let (_, mark, word) = look(status.verdict.level);
    format!("{mark} {word} {} kube-dns", status.pod)
}

/// The icon of the tab, with another shape and colour for each level.
pub(super) fn icon(level: Level) -> String {
    let shape = match level {
        Level::Well => "%3Ccircle cx='8' cy='8' r='7' fill='%231a7f37'/%3E",
        Level::Degraded => "%3Cpath d='M8 1 15 15H1Z' fill='%23bf8700'/%3E",
        Level::Down => "%3Cpath d='M1 1h14v14H1Z' fill='%23cf222e'/%3E",
    };
    format!(
        "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E{shape}%3C/svg%3E"
    )
}

pub(super) fn section(status: &Status) -> Markup {
    let (class, mark, word) = look(status.verdict.level);
    html! {
        section class={ "verdict " (class) } aria-label="verdict" {
            h2 { (mark) " " (word) }
            @if status.verdict.findings.is_empty() { p { "Nothing wrong was found." } }
            ul { @for finding in &status.verdict.findings { (item(finding, status.time)) } }
        }
    }
}

/// A finding with its age and its remedy.
fn item(finding: &Lasting, now: u64) -> Markup {
    let (class, mark, _) = look(finding.level);
    let since =
        chrono::DateTime::from_timestamp_millis(i64::try_from(finding.since).unwrap_or(i64::MAX));
    html! {
        li class=(class) {
            b { (mark) " " (finding.text) }
            " for " (ago(now.saturating_sub(finding.since) / 1000))
            @if let Some(since) = since { ", since " (since.format("%H:%M:%S UTC")) }
            ". " (finding.action) " "
            a href=(finding.runbook) rel="noreferrer" target="_blank" { "runbook" }
            @if !finding.detail.is_empty() { code { (finding.detail) } }
        }
    }
}
