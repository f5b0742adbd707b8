//! `--help` in the layout of the Go flag packages.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

use super::{Style, is_bool, quote};

/// The clap help heading of options that are only accepted for old manifests. The help in the style
/// of pflag omits these options.
pub(crate) const OLD_LOGGING: &str = "old logging flags";

/// The whole help text.
pub(super) fn render(command: &Command, program: &str, style: Style) -> String {
    let mut text = format!("Usage of {program}:\n");
    if style == Style::Go
        && let Some(about) = command.get_long_about().or_else(|| command.get_about())
    {
        let _ = write!(text, "\n{}\n\n", about.to_string().trim_end());
    }

    // Go sorts flags by name in the help.
    let mut args: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| arg.get_long().is_some() && !arg.is_hide_set())
        .filter(|arg| style == Style::Go || arg.get_help_heading() != Some(OLD_LOGGING))
        .collect();
    args.sort_by_key(|arg| arg.get_long());

    let mut rows: Vec<HelpRow> = args.into_iter().map(HelpRow::new).collect();
    // The module `words` reads `--version`, unless the program itself declares this flag.
    if !rows.iter().any(|row| row.name == "version") {
        let at = rows.partition_point(|row| row.name.as_str() < "version");
        rows.insert(at, HelpRow::version(style));
    }

    match style {
        Style::Pflag => write_pflag_rows(&mut text, &rows),
        Style::Go => write_go_rows(&mut text, &rows),
    }
    if let Some(more) = command.get_after_help() {
        let _ = write!(text, "\n{more}\n");
    }
    text
}

/// One flag in the help text.
struct HelpRow {
    name: String,
    short: Option<char>,
    /// The type's name. Empty if the value is optional, except for `--version` in pflag's style.
    kind: String,
    help: String,
    /// The default value as printed; empty if none is printed.
    default: String,
}

impl HelpRow {
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
            default: default_text(arg, &kind),
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

    /// The first column in pflag's help.
    fn pflag_head(&self) -> String {
        let short = match self.short {
            Some(short) => format!("-{short}, "),
            None => "    ".to_owned(),
        };
        let space = if self.kind.is_empty() { "" } else { " " };
        format!("  {short}--{}{space}{}", self.name, self.kind)
    }

    fn help_text(&self) -> String {
        match self.default.as_str() {
            "" => self.help.clone(),
            default => format!("{} (default {default})", self.help),
        }
    }
}

/// The default as Go prints it: nothing for zero values, strings in quotes, and `"[]"` for lists.
fn default_text(arg: &Arg, kind: &str) -> String {
    if matches!(arg.get_action(), ArgAction::Append) {
        return "\"[]\"".to_owned();
    }

    let value = match arg.get_default_values() {
        [value] => value.to_string_lossy().into_owned(),
        _ => String::new(),
    };
    match value.as_str() {
        // Go prints no default that is the zero value of its type.
        "" | "0" | "0s" | "false" => String::new(),
        text if kind == "string" => quote(text),
        text => text.to_owned(),
    }
}

fn write_pflag_rows(text: &mut String, rows: &[HelpRow]) {
    let longest = rows.iter().map(|row| row.pflag_head().len()).max();
    let width = longest.unwrap_or_default() + 3;

    for row in rows {
        let head = row.pflag_head();
        let _ = writeln!(text, "{head:width$}{}", row.help_text());
    }
}

fn write_go_rows(text: &mut String, rows: &[HelpRow]) {
    for row in rows {
        // Go's flag package names only the types that it knows, and calls all other types `value`.
        let kind = match row.kind.as_str() {
            "" => "",
            known @ ("string" | "int" | "uint" | "duration" | "float") => known,
            _ => "value",
        };
        let space = if kind.is_empty() { "" } else { " " };
        let _ = write!(
            text,
            "  -{}{space}{kind}\n    \t{}\n",
            row.name,
            row.help_text()
        );
    }
}
