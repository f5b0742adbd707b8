//! `--help` in the layout of the Go flag packages.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

use super::{Style, is_bool, quote};

/// The clap help heading of options that are only accepted for old manifests. pflag's help omits
/// these options.
pub(crate) const OLD_LOGGING: &str = "old logging flags";

/// The whole help text.
pub(super) fn render(command: &Command, program: &str, style: Style) -> String {
    let mut text = format!("Usage of {program}:\n");
    if style == Style::Go
        && let Some(about) = command.get_long_about().or_else(|| command.get_about())
    {
        let _ = write!(text, "\n{}\n\n", about.to_string().trim_end());
    }
    let mut args: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| arg.get_long().is_some() && !arg.is_hide_set())
        .filter(|arg| style == Style::Go || arg.get_help_heading() != Some(OLD_LOGGING))
        .collect();
    args.sort_by_key(|arg| arg.get_long());
    let mut rows: Vec<Row> = args.into_iter().map(Row::new).collect();
    if !rows.iter().any(|row| row.name == "version") {
        let at = rows.partition_point(|row| row.name.as_str() < "version");
        rows.insert(at, Row::version(style));
    }
    match style {
        Style::Pflag => pflag(&mut text, &rows),
        Style::Go => go(&mut text, &rows),
    }
    if let Some(more) = command.get_after_help() {
        let _ = write!(text, "\n{more}\n");
    }
    text
}

/// One flag in the help text.
struct Row {
    name: String,
    short: Option<char>,
    /// The type's name; empty for booleans.
    kind: String,
    help: String,
    /// The default value as printed; empty if there is none.
    default: String,
}

impl Row {
    fn new(arg: &Arg) -> Self {
        let kind = match arg.get_value_names() {
            _ if super::words::is_switch(arg) || is_bool(arg) => String::new(),
            Some([kind, ..]) => kind.to_string(),
            _ => "string".to_owned(),
        };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        Self {
            name: arg.get_long().unwrap_or_default().to_owned(),
            short: arg.get_short(),
            default: default(arg, &kind),
            kind,
            help,
        }
    }

    fn version(style: Style) -> Self {
        let kind = match style {
            Style::Pflag => "version[=true]",
            Style::Go => "",
        };
        Self {
            name: "version".to_owned(),
            short: None,
            kind: kind.to_owned(),
            help: "Print version information and quit".to_owned(),
            default: String::new(),
        }
    }

    fn help(&self) -> String {
        match self.default.as_str() {
            "" => self.help.clone(),
            default => format!("{} (default {default})", self.help),
        }
    }
}

/// The default as Go prints it: nothing for zero values, text in quotes.
fn default(arg: &Arg, kind: &str) -> String {
    if matches!(arg.get_action(), ArgAction::Append) {
        return "\"[]\"".to_owned();
    }
    let value = match arg.get_default_values() {
        [value] => value.to_string_lossy().into_owned(),
        _ => String::new(),
    };
    match value.as_str() {
        "" | "0" | "0s" | "false" => String::new(),
        text if kind == "string" => quote(text),
        text => text.to_owned(),
    }
}

fn pflag(text: &mut String, rows: &[Row]) {
    let head = |row: &Row| {
        let short = row
            .short
            .map_or_else(|| "    ".to_owned(), |short| format!("-{short}, "));
        format!(
            "  {short}--{}{}{}",
            row.name,
            if row.kind.is_empty() { "" } else { " " },
            row.kind
        )
    };
    let width = rows
        .iter()
        .map(|row| head(row).len())
        .max()
        .unwrap_or_default()
        + 3;
    for row in rows {
        let _ = writeln!(text, "{:width$}{}", head(row), row.help());
    }
}

fn go(text: &mut String, rows: &[Row]) {
    for row in rows {
        let kind = match row.kind.as_str() {
            "" => "",
            known @ ("string" | "int" | "uint" | "duration" | "float") => known,
            _ => "value",
        };
        let space = if kind.is_empty() { "" } else { " " };
        let _ = write!(text, "  -{}{space}{kind}\n    \t{}\n", row.name, row.help());
    }
}
