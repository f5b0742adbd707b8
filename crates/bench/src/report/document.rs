//! The report in the documentation: `performance.json`, and the part of `performance.md` between
//! two markers.

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Map, Value};

use super::Report;

const PAGE: &str = "performance.md";
const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// Merges `report` into the documents of `directory`. Results that `report` lacks stay in the
/// documents, if this program can read the earlier results. Returns the merged report.
pub fn merge_into(directory: &Path, report: Report) -> anyhow::Result<Report> {
    let data = directory.join("performance.json");
    let earlier = std::fs::read_to_string(&data).unwrap_or_default();
    let mut merged: Map<String, Value> = serde_json::from_str(&earlier).unwrap_or_default();
    let measured: Map<String, Value> = serde_json::from_value(serde_json::to_value(&report)?)?;
    merged.extend(measured.into_iter().filter(|(_, result)| !result.is_null()));
    // If the merged results do not have the form of a `Report`, for example because another version
    // of this program wrote the earlier results, all earlier results are dropped.
    let report = serde_json::from_value(merged.into()).unwrap_or(report);

    let mut json = serde_json::to_string_pretty(&report)?;
    json.push('\n');
    std::fs::write(&data, json).with_context(|| format!("cannot write {}", data.display()))?;

    let page = page_with(directory, &report.to_markdown())?;
    let file = directory.join(PAGE);
    std::fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(report)
}

/// Checks that the page exists and has a place for results. The check comes before the
/// measurements, which take minutes.
pub fn check_page(directory: &Path) -> anyhow::Result<()> {
    page_with(directory, "").map(drop)
}

/// The page with these results.
fn page_with(directory: &Path, results: &str) -> anyhow::Result<String> {
    let file = directory.join(PAGE);
    let page = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}", file.display()))?;
    replaced(&page, results)
        .with_context(|| format!("{} has no markers {BEGIN} and {END}", file.display()))
}

fn replaced(page: &str, between: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{between}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::super::Outside;
    use super::*;
    use crate::distribution::Distribution;

    fn outside(lost: usize) -> Outside {
        let fast = Distribution {
            count: 1,
            p50: 0.1,
            p99: 0.2,
            max: 0.3,
        };
        Outside {
            without: fast,
            with: fast,
            lost,
            asked: 1,
            unanswered: 0,
            longest: 2.0,
            peak: 1,
        }
    }

    #[test]
    fn performance_page_matches_its_data() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let data = std::fs::read_to_string(docs.join("performance.json")).unwrap();
        let page = std::fs::read_to_string(docs.join("performance.md")).unwrap();
        let report: Report = serde_json::from_str(&data).unwrap();
        assert_eq!(replaced(&page, &report.to_markdown()).unwrap(), page);
    }

    #[test]
    fn merge_needs_markers_and_keeps_earlier_results_and_other_text() {
        let directory = tempfile::tempdir().unwrap();
        let page = directory.path().join("performance.md");
        std::fs::write(&page, format!("# Title\n\n{BEGIN}\nold\n{END}\nend\n")).unwrap();
        let first = Report {
            outside: Some(outside(7)),
            ..Report::default()
        };
        merge_into(directory.path(), first).unwrap();
        let second = merge_into(directory.path(), Report::default()).unwrap();
        assert_eq!(second.outside, Some(outside(7)));
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(
            text.starts_with("# Title\n") && text.ends_with("\nend\n"),
            "{text}"
        );
        assert!(
            text.contains("Lost queries for cluster names: 7.") && !text.contains("old"),
            "{text}"
        );
        std::fs::write(&page, "no markers").unwrap();
        assert!(check_page(directory.path()).is_err());
        assert!(merge_into(directory.path(), second).is_err());
    }
}
