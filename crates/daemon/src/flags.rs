//! Go-style command lines on top of clap.
//!
//! Manifests in the field were written for Go binaries. This module reads what they say: long flags with one or two
//! dashes, `_` for `-`, `=` or a following word for the value, booleans alone or with `=true`, `=0`, `=T`..., `-v2`,
//! and everything after `--` untouched. Each command line is first rewritten to `--name=value` words, then
//! clap fills the options, and what went wrong is said in the words of the Go packages, because that is what people
//! find when they search for it.
//!
//! A clap option needs nothing special: `bool` fields become Go booleans by themselves, [`int`] and [`GoDuration`] read
//! numbers and durations as Go does, the `value_name` is the type that `--help` shows. This module does not know what
//! any flag means.

mod error;
mod usage;
mod value;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::ValueParser;

pub(crate) use self::usage::OLD_LOGGING;
pub(crate) use self::value::plain;
pub use self::value::{GoDuration, ValueError, atoi, boolean, int, quote};

/// Which Go package the error texts and the help layout follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `github.com/spf13/pflag`: kube-dns and sidecar.
    Pflag,
    /// The standard library's `flag`: dnsmasq-nanny.
    Go,
}

/// Why a process ends before it has started: `--help`, `--version` or a command line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The exit status.
    pub status: u8,
    /// Text for standard output.
    pub stdout: String,
    /// Text for standard error.
    pub stderr: String,
}

impl Exit {
    /// Prints both texts and returns the exit code. A closed stream is not an error.
    pub fn print(&self) -> ExitCode {
        use std::io::Write as _;
        let _ = std::io::stdout().lock().write_all(self.stdout.as_bytes());
        let _ = std::io::stderr().lock().write_all(self.stderr.as_bytes());
        ExitCode::from(self.status)
    }
}

/// Reads a command line; `argv` does not hold the program's name.
///
/// An [`Exit`] when the process is to end at once: status 0 for `--help` (on standard error, as Go prints it) and
/// `--version` (on standard output), status 2 for everything that is wrong.
pub fn parse<P: Parser>(
    program: &str,
    style: Style,
    argv: impl IntoIterator<Item = OsString>,
) -> Result<P, Exit> {
    let command = go_command(P::command());
    let fail = |text: &str| error::exit(program, style, text);
    let words = match words::read(&command, style, argv) {
        Ok(words) => words,
        Err(words::Stop::Help) => {
            return Err(Exit {
                status: 0,
                stdout: String::new(),
                stderr: usage::render(&command, program, style),
            });
        }
        Err(words::Stop::Wrong(text)) => return Err(fail(&text)),
    };
    let takes_words = command.get_positionals().next().is_some();
    let mut line = vec![OsString::from(program)];
    line.extend(words.flags);
    // Differs from kube-dns: it overlooks such words, and so the flag that was meant.
    if let (false, Some(word)) = (takes_words, words.rest.first()) {
        let word = quote(&word.to_string_lossy());
        return Err(fail(&format!("unexpected word {word}: {program} takes flags alone")));
    }
    if takes_words {
        line.push("--".into());
        line.extend(words.rest);
    }
    let mut matches = command
        .clone()
        .try_get_matches_from(line)
        .map_err(|wrong| fail(&error::text(&command, style, &wrong)))?;
    let options =
        P::from_arg_matches_mut(&mut matches).map_err(|wrong| fail(&error::text(&command, style, &wrong)))?;
    match words.version {
        Some(version) => Err(Exit { status: 0, stdout: version.text(program), stderr: String::new() }),
        None => Ok(options),
    }
}

/// Gives a clap command the habits of Go: booleans take a value, the last of two equal flags wins, no built-in help.
fn go_command(command: clap::Command) -> clap::Command {
    let mut command = command
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .mut_args(|arg| if is_bool(&arg) { go_bool(arg) } else { arg });
    command.build();
    command
}

fn go_bool(arg: clap::Arg) -> clap::Arg {
    let off = arg.get_default_values().is_empty();
    let arg = arg
        .action(clap::ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .value_parser(ValueParser::new(boolean));
    if off { arg.default_value("false") } else { arg }
}

/// Is this a flag that stands for `true` when it stands alone?
fn is_bool(arg: &clap::Arg) -> bool {
    matches!(arg.get_action(), clap::ArgAction::SetTrue)
        || (matches!(arg.get_action(), clap::ArgAction::Set)
            && arg.get_value_parser().type_id() == std::any::TypeId::of::<bool>())
}

#[cfg(test)]
mod tests;
