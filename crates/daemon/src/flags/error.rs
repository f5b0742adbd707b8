//! Error texts of the Go flag packages.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

use super::value::{ValueError, quote};
use super::{Exit, Style};

/// The long and the short name of a flag.
pub(super) struct FlagNames<'a> {
    pub(super) long: Option<&'a str>,
    pub(super) short: Option<char>,
}

/// The exit after a mistake in the command line. Differs from kube-dns: a hint of one line replaces
/// forty lines of usage, so that people see the mistake.
pub(super) fn exit(program: &str, style: Style, text: &str) -> Exit {
    let hint = match style {
        Style::Pflag => format!("Usage of {program}: see {program} --help"),
        Style::Go => format!("Usage of {program}: see {program} -help"),
    };
    // pflag prints the mistake last, Go's flag package first.
    let stderr = match style {
        Style::Pflag => format!("{hint}\n{text}\n"),
        Style::Go => format!("{text}\n{hint}\n"),
    };
    Exit {
        status: 2,
        stdout: String::new(),
        stderr,
    }
}

/// The text of a clap error: as in Go for an invalid value, otherwise the first line of clap's own
/// text.
pub(super) fn render_clap_error(command: &Command, style: Style, wrong: &clap::Error) -> String {
    bad_value_of(command, style, wrong).unwrap_or_else(|| first_line(wrong))
}

/// The text for an invalid value; `None` for other errors.
fn bad_value_of(command: &Command, style: Style, wrong: &clap::Error) -> Option<String> {
    let is_bad_value = matches!(
        wrong.kind(),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue
    );
    if !is_bad_value {
        return None;
    }

    let name = context_text(wrong, ContextKind::InvalidArg)?;
    let value = context_text(wrong, ContextKind::InvalidValue)?;
    // clap's error gives the flag in the form `--flag <VALUE>`. `Arg` is displayed in the same
    // form.
    let arg = command
        .get_arguments()
        .find(|candidate| candidate.to_string() == name)?;
    let reason = value_error(wrong);
    Some(bad_value(style, &flag_names(arg), value, reason.as_ref()))
}

fn context_text(wrong: &clap::Error, kind: ContextKind) -> Option<&str> {
    match wrong.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    }
}

/// The text for an invalid value of a flag.
pub(super) fn bad_value(
    style: Style,
    flag: &FlagNames<'_>,
    value: &str,
    reason: &(dyn std::error::Error + 'static),
) -> String {
    let long = flag.long.unwrap_or_default();
    let value = quote(value);

    // The text depends on the Go package.
    if style == Style::Pflag {
        let name = match flag.short {
            Some(short) => format!("-{short}, --{long}"),
            None => format!("--{long}"),
        };
        return format!("invalid argument {value} for \"{name}\" flag: {reason}");
    }
    match reason.downcast_ref::<ValueError>() {
        Some(wrong @ ValueError::Bool { .. }) => {
            let reason = wrong.short_text();
            format!("invalid boolean value {value} for -{long}: {reason}")
        }
        Some(wrong) => {
            let reason = wrong.short_text();
            format!("invalid value {value} for flag -{long}: {reason}")
        }
        None => format!("invalid value {value} for flag -{long}: {reason}"),
    }
}

fn flag_names(arg: &Arg) -> FlagNames<'_> {
    FlagNames {
        long: arg.get_long(),
        short: arg.get_short(),
    }
}

/// The error of the value parser, or the text of [`accepted_values`] if there is no such error.
fn value_error(wrong: &clap::Error) -> Box<dyn std::error::Error + 'static> {
    match std::error::Error::source(wrong) {
        Some(source) => match source.downcast_ref::<ValueError>() {
            // `bad_value` distinguishes the variants of `ValueError`.
            Some(known) => Box::new(known.clone()),
            None => source.to_string().into(),
        },
        None => accepted_values(wrong).into(),
    }
}

/// A text with the accepted values of an enumeration; `parse error` if clap's error has no such
/// values.
fn accepted_values(wrong: &clap::Error) -> String {
    match wrong.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(all)) => format!("must be one of {}", all.join(", ")),
        _ => "parse error".to_owned(),
    }
}

fn first_line(wrong: &clap::Error) -> String {
    let text = wrong.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
