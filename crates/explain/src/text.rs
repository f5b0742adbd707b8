//! Prints an explanation as text: one fact per line, the most important facts first.

mod detail;
mod page;

use self::detail::{render_detail, server_line};
use self::page::{TextPage, without_dot};
use crate::document::{Explanation, LookupOutcome, NameDetail, QuestionReport, TriedName};

/// The complete text, ending with a line feed.
pub(crate) fn render_explanation(explanation: &Explanation) -> String {
    let Explanation {
        question,
        verdict,
        warnings,
        near,
        tried,
        detail,
        server,
        at,
    } = explanation;

    let mut page = TextPage::default();
    page.line(&format!("{} {}", question.meant, verdict.text));
    if question.meant != question.name {
        page.section("typed", &question.name);
    }
    // The warnings come before the details: a warning may say that the details are outdated.
    for warning in warnings {
        page.section("WARNING", &warning.text);
    }

    // For a name that resolves, the reasons are printed as notes.
    let label = match verdict.outcome {
        LookupOutcome::Answered => "note",
        _ => "why",
    };
    page.notes(label, &detail.reasons);

    let mut suggestions = Vec::with_capacity(near.len());
    for similar in near {
        suggestions.push([similar.name.clone(), similar.why.text.clone()]);
    }
    page.table("try", &suggestions);
    render_tried_names(&mut page, question, tried, detail);
    render_detail(&mut page, detail, *at);
    page.section("kubedns", &server_line(server, *at));
    if let Some(node) = &server.node {
        page.section("node", &node.to_string());
    }
    page.into_text()
}

/// Prints the names that result from the search list, and the outcome of each.
fn render_tried_names(
    page: &mut TextPage,
    question: &QuestionReport,
    tried: &[TriedName],
    detail: &NameDetail,
) {
    // If there is only one name, the first line already shows the name and its outcome.
    if tried.len() < 2 {
        return;
    }

    page.section("queries", &search_line(question));
    let reason = detail.reasons.first().map(|reason| reason.text.as_str());
    let rows: Vec<[String; 3]> = tried.iter().map(|name| tried_row(name, reason)).collect();
    page.table("", &rows);
}

/// The search list of the resolver, and the namespace of the pod that has this list.
fn search_line(question: &QuestionReport) -> String {
    // If the resolver applies no search list, there are several names only because kubedns walks
    // its own search list.
    if question.search.is_empty() {
        return "kubedns walks the search list (--search-suffix)".to_owned();
    }

    let whose = match &question.namespace {
        Some(namespace) => format!("of a pod in namespace {namespace}: "),
        None => String::new(),
    };
    let search: Vec<&str> = question
        .search
        .iter()
        .map(|domain| without_dot(domain))
        .collect();
    let walked = if question.autopath {
        "; kubedns walks the list (--autopath)"
    } else {
        ""
    };

    let ndots = question.ndots;
    format!("{whose}search {}, ndots:{ndots}{walked}", search.join(" "))
}

/// The row of one tried name; `reason` is printed above the rows.
fn tried_row(tried: &TriedName, reason: Option<&str>) -> [String; 3] {
    let name = tried.name.clone();
    if !tried.asked {
        return [name, "(not asked)".to_owned(), String::new()];
    }

    let outcome = tried.outcome.label().to_owned();
    // The summary is printed above as the first reason, so it is not printed again.
    if reason == Some(&tried.summary) {
        return [name, outcome, "see above".to_owned()];
    }
    [name, outcome, tried.summary.clone()]
}
