//! The words of a command line, rewritten for clap as `--name=value`.

use std::ffi::OsString;

use clap::{Arg, Command};

use super::error::{FlagNames, bad_value};
use super::value::quote;
use super::{Style, boolean, is_bool};
use crate::version;

/// A rewritten command line.
#[derive(Debug, Default)]
pub(super) struct CommandWords {
    /// Flags as `--name=value`, in order.
    pub(super) flags: Vec<OsString>,
    /// The words before `--` that are neither flags nor values. In the style of Go's flag package,
    /// the first such word and all words from there to `--` are stray.
    pub(super) stray: Vec<OsString>,
    /// All words after `--`, in order.
    pub(super) after_dashes: Vec<OsString>,
    /// Whether the command line begins with a word that is neither a flag nor `--`, such as a
    /// misspelt subcommand. An empty word does not count, because templates may leave empty words
    /// in a command line.
    pub(super) begins_with_word: bool,
    /// The requested output format of `--version`, if any.
    pub(super) version: Option<VersionFormat>,
}

/// The output format of `--version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionFormat {
    /// `Kube-DNS 1.2.3, sidecar, commit 8e6b128`.
    Plain,
    /// `"1.2.3"`.
    Raw,
}

impl VersionFormat {
    pub(super) fn text(self, program: &str) -> String {
        match self {
            Self::Plain => format!(
                "{} {}, {program}, commit {}\n",
                version::NAME,
                version::VERSION,
                version::COMMIT
            ),
            Self::Raw => format!("{}\n", quote(version::VERSION)),
        }
    }
}

/// The reason why reading stopped.
#[derive(Debug)]
pub(super) enum WordsError {
    HelpRequested,
    /// A mistake, with Go's error text.
    Mistake(String),
}

/// Rewrites a command line for `command`.
pub(super) fn rewrite(
    command: &Command,
    style: Style,
    argv: impl IntoIterator<Item = OsString>,
) -> Result<CommandWords, WordsError> {
    let mut words = CommandWords::default();
    let mut argv = argv.into_iter().peekable();
    words.begins_with_word = argv
        .peek()
        .is_some_and(|word| !word.is_empty() && word != "--" && count_dashes(word).is_none());

    while let Some(word) = argv.next() {
        if word == "--" {
            words.after_dashes.extend(argv);
            break;
        }

        // Go's flag package reads no flags after the first word that is not a flag.
        let flags_ended = style == Style::Go && !words.stray.is_empty();
        match count_dashes(&word).filter(|_| !flags_ended) {
            None => words.stray.push(word),
            Some(dashes) => {
                let flag = TypedFlag::parse(&word, dashes, style)?;
                flag.resolve(command, &mut argv, &mut words)?;
            }
        }
    }

    Ok(words)
}

/// Number of dashes of a flag; `None` for a word that is not a flag.
fn count_dashes(word: &OsString) -> Option<usize> {
    match word.as_encoded_bytes() {
        [b'-', b'-', _, ..] => Some(2),
        [b'-', b, ..] if *b != b'-' => Some(1),
        _ => None,
    }
}

/// A flag as written on the command line.
struct TypedFlag<'a> {
    style: Style,
    dashes: usize,
    word: &'a str,
    name: &'a str,
    value: Option<&'a str>,
}

impl<'a> TypedFlag<'a> {
    /// Splits a word into the name and the value after `=`. The flag may be unknown.
    fn parse(word: &'a OsString, dashes: usize, style: Style) -> Result<Self, WordsError> {
        let Some(text) = word.to_str() else {
            return Err(bad_flag_syntax(word));
        };
        let without_dashes = text.get(dashes..).unwrap_or_default();
        let (name, value) = match without_dashes.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (without_dashes, None),
        };
        if name.is_empty() || name.starts_with('-') {
            return Err(bad_flag_syntax(word));
        }

        Ok(Self {
            style,
            dashes,
            word: text,
            name,
            value,
        })
    }

    /// Adds the flag to `words`. The value may be the next word of `argv`. `--version` sets
    /// `words.version`, and a request for help is an error.
    fn resolve(
        &self,
        command: &Command,
        argv: &mut impl Iterator<Item = OsString>,
        words: &mut CommandWords,
    ) -> Result<(), WordsError> {
        if let Some(arg) = find_long(command, self.name) {
            return self.push_flag(arg, self.value, argv, words);
        }

        // If the program has a flag with one of these names, `find_long` has found it.
        match self.name {
            "help" => return Err(WordsError::HelpRequested),
            "h" if self.dashes == 1 || self.style == Style::Go => {
                return Err(WordsError::HelpRequested);
            }
            "version" => {
                words.version = self.version_format()?;
                return Ok(());
            }
            _ => {}
        }

        match self.short_flag(command) {
            Some((arg, value)) => self.push_flag(arg, Some(value), argv, words),
            None => Err(WordsError::Mistake(self.unknown_flag())),
        }
    }

    /// A flag of one letter with its value in the same word, such as `-v2`. The letter alone, such
    /// as `-v`, is not handled here: it is also the long name of the flag, so `find_long` has found
    /// it.
    fn short_flag(&self, command: &'a Command) -> Option<(&'a Arg, &'a str)> {
        let letter = self.name.chars().next().filter(|_| self.dashes == 1)?;
        let arg = command
            .get_arguments()
            .find(|arg| arg.get_short() == Some(letter))?;
        let value = self
            .word
            .get(1 + letter.len_utf8()..)
            .filter(|value| !value.is_empty())?;

        Some((arg, value.strip_prefix('=').unwrap_or(value)))
    }

    /// Adds `arg` with `value`. If `value` is `None`, a switch gets the value `true`, and any other
    /// flag gets the next word of `argv`.
    fn push_flag(
        &self,
        arg: &Arg,
        value: Option<&str>,
        argv: &mut impl Iterator<Item = OsString>,
        words: &mut CommandWords,
    ) -> Result<(), WordsError> {
        let name = arg.get_long().unwrap_or(self.name);
        // All flags for clap are written in this form.
        let mut flag = OsString::from(format!("--{name}="));
        match value {
            Some(value) => flag.push(value),
            // As in Go, the next word is never the value of a switch.
            None if is_switch(arg) => flag.push("true"),
            None => {
                let Some(next) = argv.next() else {
                    return Err(WordsError::Mistake(self.missing_value()));
                };
                flag.push(next);
            }
        }

        words.flags.push(flag);
        Ok(())
    }

    /// The output format that the value of `--version` requests; `None` for `--version=false`.
    fn version_format(&self) -> Result<Option<VersionFormat>, WordsError> {
        let text = match self.value {
            None => return Ok(Some(VersionFormat::Plain)),
            Some("raw") => return Ok(Some(VersionFormat::Raw)),
            Some(text) => text,
        };

        match boolean(text) {
            Ok(wanted) => Ok(wanted.then_some(VersionFormat::Plain)),
            Err(wrong) => {
                let names = FlagNames {
                    long: Some("version"),
                    short: None,
                };
                let mistake = bad_value(self.style, &names, text, &wrong);
                Err(WordsError::Mistake(mistake))
            }
        }
    }

    fn unknown_flag(&self) -> String {
        match (self.style, self.dashes) {
            (Style::Go, _) => format!("flag provided but not defined: -{}", self.name),
            (Style::Pflag, 1) => {
                let letter = self.name.chars().next().unwrap_or('-');
                format!("unknown shorthand flag: {letter:?} in {}", self.word)
            }
            (Style::Pflag, _) => format!("unknown flag: --{}", self.name),
        }
    }

    fn missing_value(&self) -> String {
        match self.style {
            Style::Go => format!("flag needs an argument: -{}", self.name),
            Style::Pflag if self.name.chars().count() == 1 => {
                format!("flag needs an argument: '{0}' in -{0}", self.name)
            }
            Style::Pflag => format!("flag needs an argument: --{}", self.name),
        }
    }
}

/// Whether the flag means `true` if it has no value.
pub(super) fn is_switch(arg: &Arg) -> bool {
    is_bool(arg)
        || arg
            .get_num_args()
            .is_some_and(|range| range.min_values() == 0)
}

/// The option with the long name or alias `name`. In names, `_` and `-` are equivalent.
fn find_long<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        let names = arg.get_long().into_iter().chain(aliases);
        names.into_iter().any(|known| is_same_name(known, name))
    })
}

fn is_same_name(a: &str, b: &str) -> bool {
    a.len() == b.len()
        && a.bytes()
            .zip(b.bytes())
            .all(|(a, b)| underscore_to_dash(a) == underscore_to_dash(b))
}

fn underscore_to_dash(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte }
}

fn bad_flag_syntax(word: &OsString) -> WordsError {
    WordsError::Mistake(format!("bad flag syntax: {}", word.to_string_lossy()))
}
