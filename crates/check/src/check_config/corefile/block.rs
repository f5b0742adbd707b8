//! Server blocks of a Corefile as text.

use std::fmt::Write as _;

/// A server block, or a snippet.
#[derive(Debug)]
pub(super) struct Block {
    /// The text before the brace.
    head: String,
    lines: Vec<String>,
}

impl Block {
    /// A server block for `zones` on `port`, with the plugin `errors`.
    pub(super) fn new(zones: &[&str], port: &str) -> Self {
        let heads: Vec<String> = zones.iter().map(|zone| format!("{zone}:{port}")).collect();
        Self {
            head: heads.join(" "),
            lines: vec!["errors".to_owned()],
        }
    }

    /// A snippet, which other blocks import, with the plugin `errors`.
    pub(super) fn snippet(name: &str) -> Self {
        Self {
            head: format!("({name})"),
            lines: vec!["errors".to_owned()],
        }
    }

    /// A block that begins with the lines of a snippet.
    pub(super) fn importing(snippet: &str, zone: &str, port: &str) -> Self {
        Self {
            head: format!("{zone}:{port}"),
            lines: vec![format!("import {snippet}")],
        }
    }

    /// Adds a directive without a block of options.
    pub(super) fn add(&mut self, directive: impl Into<String>) {
        self.lines.push(directive.into());
    }

    /// Adds a directive with a block of options, or without the block if there are none.
    pub(super) fn add_with(&mut self, directive: &str, options: &[String]) {
        if options.is_empty() {
            return self.add(directive);
        }

        self.lines.push(format!("{directive} {{"));
        for option in options {
            self.lines.push(format!("    {option}"));
        }
        self.lines.push("}".to_owned());
    }

    /// Writes the block.
    pub(super) fn write(&self, out: &mut String) {
        let _ = writeln!(out, "{} {{", self.head);
        for line in &self.lines {
            let _ = writeln!(out, "    {line}");
        }
        out.push_str("}\n");
    }
}
