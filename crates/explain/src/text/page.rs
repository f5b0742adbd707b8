//! The lines, sections and tables of the text.

use std::fmt::Write;

use crate::document::CodedNote;

/// Width of the column with the labels of sections.
const LABEL_WIDTH: usize = 10;

/// The text printed so far.
#[derive(Debug, Default)]
pub(super) struct TextPage(String);

impl TextPage {
    pub(super) fn into_text(self) -> String {
        self.0
    }

    pub(super) fn line(&mut self, line: &str) {
        // Names and objects may contain control characters such as line feeds.
        for c in line.trim_end().chars() {
            self.0.push(if c.is_control() { '?' } else { c });
        }
        self.0.push('\n');
    }

    /// Prints a line of a section; an empty label continues the previous section.
    pub(super) fn section(&mut self, label: &str, text: &str) {
        self.line(&format!("{label:LABEL_WIDTH$} {text}"));
    }

    /// Prints an indented line about an object.
    pub(super) fn fact(&mut self, label: &str, text: &str) {
        self.section("", &format!("  {label:10} {text}"));
    }

    /// Prints a section with a line for each note.
    pub(super) fn notes(&mut self, label: &str, notes: &[CodedNote]) {
        for (at, note) in notes.iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            self.section(label, &note.text);
        }
    }

    /// Prints rows with aligned columns.
    pub(super) fn table<const N: usize>(&mut self, label: &str, rows: &[[String; N]]) {
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

/// A domain without its trailing dot; the root keeps it.
pub(super) fn without_dot(domain: &str) -> &str {
    match domain.strip_suffix('.') {
        None | Some("") => domain,
        Some(name) => name,
    }
}
