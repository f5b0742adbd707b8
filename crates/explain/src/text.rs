//! Prints an explanation as text: one fact per line, the most important facts first.

mod detail;

use std::fmt::Write;

use crate::document::{Detail, Explanation, Note, Outcome, Question, Tried};

/// Width of the column with the labels of sections.
const LABEL: usize = 10;

/// The complete text, ending with a line feed.
pub(crate) fn render(explanation: &Explanation) -> String {
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
    let mut page = Page::default();
    page.line(&format!("{} {}", question.meant, verdict.text));
    if question.meant != question.name {
        page.section("typed", &question.name);
    }
    page.notes("WARNING", warnings);
    // For a name that resolves, the reasons are printed as notes.
    page.notes(
        if verdict.outcome == Outcome::Answered {
            "note"
        } else {
            "why"
        },
        &detail.reasons,
    );
    let near: Vec<_> = near
        .iter()
        .map(|miss| [miss.name.clone(), miss.why.text.clone()])
        .collect();
    page.table("try", &near);
    tried_names(&mut page, question, tried, detail);
    detail::render(&mut page, detail, *at);
    page.section("kubedns", &detail::server(server, *at));
    page.0
}

fn tried_names(page: &mut Page, question: &Question, tried: &[Tried], detail: &Detail) {
    if tried.len() < 2 {
        return;
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
    page.section(
        "queries",
        &format!(
            "{whose}search {}, ndots:{}{walked}",
            search.join(" "),
            question.ndots
        ),
    );
    let explained = |tried: &Tried| {
        detail
            .reasons
            .first()
            .is_some_and(|reason| reason.text == tried.summary)
    };
    let row = |tried: &Tried| match tried {
        Tried {
            asked: false, name, ..
        } => [name.clone(), "(not asked)".to_owned(), String::new()],
        Tried { name, outcome, .. } if explained(tried) => [
            name.clone(),
            outcome.label().to_owned(),
            "see why".to_owned(),
        ],
        Tried {
            name,
            outcome,
            summary,
            ..
        } => [name.clone(), outcome.label().to_owned(), summary.clone()],
    };
    page.table("", &tried.iter().map(row).collect::<Vec<_>>());
}

/// A domain without its trailing dot; the root keeps it.
fn without_dot(domain: &str) -> &str {
    match domain.strip_suffix('.') {
        None | Some("") => domain,
        Some(name) => name,
    }
}

/// The text printed so far.
#[derive(Debug, Default)]
struct Page(String);

impl Page {
    fn line(&mut self, line: &str) {
        // Names and objects may contain control characters such as line feeds.
        self.0.extend(
            line.trim_end()
                .chars()
                .map(|c| if c.is_control() { '?' } else { c }),
        );
        self.0.push('\n');
    }

    /// Prints a line of a section; an empty label continues the previous section.
    fn section(&mut self, label: &str, text: &str) {
        self.line(&format!("{label:LABEL$} {text}"));
    }

    /// Prints an indented line about an object.
    fn fact(&mut self, label: &str, text: &str) {
        self.section("", &format!("  {label:10} {text}"));
    }

    fn notes(&mut self, label: &str, notes: &[Note]) {
        for (at, note) in notes.iter().enumerate() {
            self.section(
                if at == 0 || label == "WARNING" {
                    label
                } else {
                    ""
                },
                &note.text,
            );
        }
    }

    /// Prints rows with aligned columns.
    fn table<const N: usize>(&mut self, label: &str, rows: &[[String; N]]) {
        let mut widths = [0; N];
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for (at, row) in rows.iter().enumerate() {
            let mut text = String::new();
            for (width, cell) in widths.iter().zip(row) {
                // Writing to a String cannot fail.
                let _ = write!(text, "{cell:width$}  ");
            }
            self.section(if at == 0 { label } else { "" }, &text);
        }
    }
}
