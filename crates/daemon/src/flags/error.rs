//! Error texts of the Go flag packages.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

use super::value::{ValueError, quote};
use super::{Exit, Style};

/// The long and the short name of a flag.
pub(super) struct Flag<'a> {
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

/// The text of a clap error, as Go words it.
pub(super) fn text(command: &Command, style: Style, wrong: &clap::Error) -> String {
    let context = |kind| match wrong.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let known = match (
        wrong.kind(),
        context(ContextKind::InvalidArg),
        context(ContextKind::InvalidValue),
    ) {
        (ErrorKind::ValueValidation | ErrorKind::InvalidValue, Some(arg), Some(value)) => command
            .get_arguments()
            .find(|candidate| candidate.to_string() == arg)
            .map(|arg| bad_value(style, &flag(arg), value, reason(wrong).as_ref())),
        _ => None,
    };
    known.unwrap_or_else(|| first_line(wrong))
}

/// The text for an invalid value of a flag.
pub(super) fn bad_value(
    style: Style,
    flag: &Flag<'_>,
    value: &str,
    reason: &(dyn std::error::Error + 'static),
) -> String {
    let long = flag.long.unwrap_or_default();
    match style {
        Style::Pflag => {
            let name = match flag.short {
                Some(short) => format!("-{short}, --{long}"),
                None => format!("--{long}"),
            };
            format!(
                "invalid argument {} for \"{name}\" flag: {reason}",
                quote(value)
            )
        }
        Style::Go => match reason.downcast_ref::<ValueError>() {
            Some(wrong @ ValueError::Bool { .. }) => {
                format!(
                    "invalid boolean value {} for -{long}: {}",
                    quote(value),
                    wrong.in_brief()
                )
            }
            Some(wrong) => format!(
                "invalid value {} for flag -{long}: {}",
                quote(value),
                wrong.in_brief()
            ),
            None => format!("invalid value {} for flag -{long}: {reason}", quote(value)),
        },
    }
}

fn flag(arg: &Arg) -> Flag<'_> {
    Flag {
        long: arg.get_long(),
        short: arg.get_short(),
    }
}

/// The error of the value parser, or the first line of clap's own text.
fn reason(wrong: &clap::Error) -> Box<dyn std::error::Error + 'static> {
    match std::error::Error::source(wrong) {
        Some(source) => match source.downcast_ref::<ValueError>() {
            Some(known) => Box::new(known.clone()),
            None => source.to_string().into(),
        },
        None => choices(wrong).into(),
    }
}

/// The accepted values of an enumeration, according to clap.
fn choices(wrong: &clap::Error) -> String {
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
