//! Go-style command lines on top of clap.
//!
//! Existing manifests were written for Go binaries. This module accepts the same syntax: long flags
//! with one or two dashes, `_` for `-`, and the value after `=` or as the next word. Booleans have
//! no value, or a value such as `=true`, `=0` or `=T`. Short flags such as `-v2` are accepted, and
//! words after `--` are unchanged. A command line is first rewritten to `--name=value` words, which
//! clap parses. Errors that the Go packages also report have the texts of these packages, so that
//! people find the texts when they search.
//!
//! Options are declared in clap as usual. `bool` fields become Go booleans, [`int`] and
//! [`GoDuration`] parse numbers and durations as Go does, and `value_name` is the type in `--help`.

mod error;
mod number;
mod usage;
mod value;
mod words;

use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::ValueParser;

use crate::edit_distance::edit_distance;

use self::words::{CommandWords, VersionFormat, WordsError};

pub use self::number::{Unsigned, WholeNumberError, whole_number};
pub(crate) use self::usage::OLD_LOGGING;
pub(crate) use self::value::plain_number;
pub use self::value::{GoDuration, GoPeriod, ValueError, atoi, boolean, int, quote};

/// The Go package whose error texts and help layout are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `github.com/spf13/pflag`, which kube-dns and sidecar use.
    Pflag,
    /// The standard library's `flag`, which dnsmasq-nanny uses.
    Go,
}

/// The output and the exit status of a process that ends after `--help`, `--version`, a mistake in
/// its command line, or a subcommand.
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
    /// The exit of the subcommand `name` after a mistake in its words: status 2, the mistake, and
    /// the command that prints the help.
    pub fn mistake(name: &str, mistake: &str) -> Self {
        let stderr = format!("{name}: {mistake}\nUsage of {name}: see {name} --help\n");
        Self {
            status: 2,
            stdout: String::new(),
            stderr,
        }
    }

    /// The exit of the subcommand `name` after an error: status 1 and one line.
    pub fn failure(name: &str, error: &impl Display) -> Self {
        Self {
            status: 1,
            stdout: String::new(),
            stderr: format!("{name}: {error}\n"),
        }
    }

    /// Prints both texts and returns the exit code. Write errors are ignored.
    pub fn print(&self) -> ExitCode {
        use std::io::Write as _;
        let _ = std::io::stdout().lock().write_all(self.stdout.as_bytes());
        let _ = std::io::stderr().lock().write_all(self.stderr.as_bytes());
        ExitCode::from(self.status)
    }
}

/// The options of a program, and the words of its command line that are ignored.
#[derive(Debug)]
pub struct ProgramOptions<P> {
    /// The options.
    pub options: P,
    /// The ignored words, such as the `true` of `--profiling true`. The Go programs ignore the same
    /// words.
    pub ignored: Vec<String>,
}

/// Parses the command line of a program; `argv` is without the program's name.
///
/// If the program has positional arguments, the words after `--` are these arguments. As in Go,
/// other words that are neither flags nor values are ignored. In [`Style::Go`], flags after such a
/// word are ignored, too. The caller must log the ignored words. Unlike kube-dns, this function
/// rejects a command line that begins with such a word, because the word may be a misspelt
/// subcommand. An empty first word is not rejected. The function also rejects a command line in
/// which one of the ignored words before `--` is in `subcommands`.
///
/// Returns an [`Exit`] as the error if the process must end. Its status is 0 for `--help` (printed
/// on standard error, as in Go) and `--version` (on standard output), and 2 for any mistake.
pub fn parse_program<P: Parser>(
    program: &str,
    style: Style,
    subcommands: &[&str],
    argv: impl IntoIterator<Item = OsString>,
) -> Result<ProgramOptions<P>, Exit> {
    let command = go_command(P::command());
    let words = read_words(&command, program, style, argv)?;

    let takes_words = command.get_positionals().next().is_some();
    // A word before all flags is probably a misspelt subcommand. A known subcommand after a flag is
    // in the wrong place.
    let first_word = words.stray.first().filter(|_| words.begins_with_word);
    let subcommand = words
        .stray
        .iter()
        .find(|word| subcommands.iter().any(|known| word == known));
    if let Some(word) = first_word.or(subcommand) {
        return Err(unexpected_word(
            program,
            style,
            word,
            subcommands,
            takes_words,
        ));
    }

    // Only words after `--` are positional arguments, because other words may belong to a flag.
    let (positional, stray) = match (takes_words, words.stray) {
        (true, stray) => (words.after_dashes, stray),
        (false, stray) => (Vec::new(), [stray, words.after_dashes].concat()),
    };
    // The caller logs the ignored words, because they often show a mistake.
    let ignored = stray
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();

    let options = parse_values(&command, program, style, words.flags, positional)?;
    exit_with_version(program, words.version)?;
    Ok(ProgramOptions { options, ignored })
}

/// Parses a command line in which the words that are neither flags nor values are positional
/// arguments. If the command has no positional arguments, such a word is a mistake. Returns an
/// [`Exit`] as the error for `--help`, for `--version` and for any mistake, with the same status as
/// [`parse_program`].
pub fn parse<P: Parser>(
    program: &str,
    style: Style,
    argv: impl IntoIterator<Item = OsString>,
) -> Result<P, Exit> {
    let command = go_command(P::command());
    let words = read_words(&command, program, style, argv)?;
    let positional = [words.stray, words.after_dashes].concat();

    let takes_words = command.get_positionals().next().is_some();
    if let (false, Some(word)) = (takes_words, positional.first()) {
        return Err(unexpected_word(program, style, word, &[], takes_words));
    }

    let options = parse_values(&command, program, style, words.flags, positional)?;
    exit_with_version(program, words.version)?;
    Ok(options)
}

fn read_words(
    command: &clap::Command,
    program: &str,
    style: Style,
    argv: impl IntoIterator<Item = OsString>,
) -> Result<CommandWords, Exit> {
    words::rewrite(command, style, argv).map_err(|stop| match stop {
        WordsError::HelpRequested => Exit {
            status: 0,
            stdout: String::new(),
            stderr: usage::render(command, program, style),
        },
        WordsError::Mistake(text) => error::exit(program, style, &text),
    })
}

/// Parses the values of `flags`, each written as `--name=value`.
fn parse_values<P: Parser>(
    command: &clap::Command,
    program: &str,
    style: Style,
    flags: Vec<OsString>,
    positional: Vec<OsString>,
) -> Result<P, Exit> {
    let mut line = vec![OsString::from(program)];
    line.extend(flags);
    if !positional.is_empty() {
        // A positional word may begin with a dash: clap must not take it for a flag.
        line.push("--".into());
        line.extend(positional);
    }

    let matches = command.clone().try_get_matches_from(line);
    let parsed = matches.and_then(|mut matches| P::from_arg_matches_mut(&mut matches));
    parsed.map_err(|wrong| {
        let text = error::render_clap_error(command, style, &wrong);
        error::exit(program, style, &text)
    })
}

/// The exit of a command that does not accept `word`, which may be a misspelt subcommand.
fn unexpected_word(
    program: &str,
    style: Style,
    word: &OsString,
    subcommands: &[&str],
    takes_words: bool,
) -> Exit {
    let word = word.to_string_lossy();
    let flags = if takes_words {
        "flags and words after --"
    } else {
        "flags"
    };
    let accepted = if subcommands.contains(&&*word) {
        format!("{word} must be the first word")
    } else if let Some(similar) = similar_subcommand(&word, subcommands) {
        format!("did you mean {similar}?")
    } else if subcommands.is_empty() {
        format!("{program} accepts only {flags}")
    } else {
        let commands = subcommands.join(", ");
        format!("{program} accepts only {flags}, or one of {commands} as the first word")
    };

    let word = quote(&word);
    error::exit(
        program,
        style,
        &format!("unexpected word {word}: {accepted}"),
    )
}

/// The subcommand that differs from `word` by the fewest letters; `None` if none is similar.
fn similar_subcommand<'s>(word: &str, subcommands: &[&'s str]) -> Option<&'s str> {
    let similar = subcommands
        .iter()
        .filter_map(|known| Some((edit_distance(word, known)?, *known)));
    similar.min().map(|(_, known)| known)
}

/// The exit for `--version`, if the command line has this flag.
fn exit_with_version(program: &str, version: Option<VersionFormat>) -> Result<(), Exit> {
    match version {
        Some(version) => Err(Exit {
            status: 0,
            stdout: version.text(program),
            stderr: String::new(),
        }),
        None => Ok(()),
    }
}

/// Parses the words of the subcommand `name` as [`parse`] does, in pflag's style. The help begins
/// with `about`, and is printed on standard output.
pub fn parse_subcommand<P: Parser>(
    name: &str,
    about: &str,
    words: impl IntoIterator<Item = OsString>,
) -> Result<P, Exit> {
    parse(name, Style::Pflag, words).map_err(|exit| {
        let is_help = exit.status == 0 && !exit.stderr.is_empty();
        if is_help {
            subcommand_help(&format!("{about}{}", exit.stderr))
        } else {
            exit
        }
    })
}

/// The exit for `--help` of a subcommand.
pub fn subcommand_help(text: &str) -> Exit {
    Exit {
        status: 0,
        stdout: text.to_owned(),
        stderr: String::new(),
    }
}

/// The exit for `--version` of a subcommand that has no flags of its own.
pub fn subcommand_version(name: &str) -> Exit {
    Exit {
        status: 0,
        stdout: VersionFormat::Plain.text(name),
        stderr: String::new(),
    }
}

/// Configures a clap command as in Go: booleans accept a value, and the last value of a repeated
/// flag wins, unless the flag collects all values. clap's own `--help` and `--version` are off.
fn go_command(command: clap::Command) -> clap::Command {
    let mut command = command
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .mut_args(|arg| if is_bool(&arg) { go_bool(arg) } else { arg });

    // `build` completes the arguments, for example with the number of their values. This module
    // needs the completed arguments before clap parses the line.
    command.build();
    command
}

fn go_bool(arg: clap::Arg) -> clap::Arg {
    let is_off_by_default = arg.get_default_values().is_empty();
    let arg = arg
        .action(clap::ArgAction::Set)
        .num_args(0..=1)
        // The next word is never the value of a boolean.
        .require_equals(true)
        .default_missing_value("true")
        .value_parser(ValueParser::new(boolean));

    if is_off_by_default {
        arg.default_value("false")
    } else {
        arg
    }
}

/// Whether the argument is a boolean flag, before or after [`go_bool`] has changed it.
fn is_bool(arg: &clap::Arg) -> bool {
    matches!(arg.get_action(), clap::ArgAction::SetTrue)
        || (matches!(arg.get_action(), clap::ArgAction::Set)
            && arg.get_value_parser().type_id() == std::any::TypeId::of::<bool>())
}

#[cfg(test)]
mod tests;
