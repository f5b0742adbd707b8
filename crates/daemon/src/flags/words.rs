//! The words of a command line, rewritten for clap as `--name=value`.

use std::ffi::OsString;

use clap::{Arg, Command};

use super::value::quote;
use super::{Style, boolean, is_bool};
use crate::version;

/// A rewritten command line.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// Flags as `--name=value`, in order.
    pub(super) flags: Vec<OsString>,
    /// The words before `--` that are neither flags nor values. In Go's flag package, all words
    /// from the first of them on.
    pub(super) stray: Vec<OsString>,
    /// All words after `--`, in order.
    pub(super) after_dashes: Vec<OsString>,
    /// Whether the command line begins with a word that is not a flag, such as a misspelt
    /// subcommand. An empty word does not count: templates leave such words behind.
    pub(super) begins_with_word: bool,
    /// The requested output format of `--version`, if any.
    pub(super) version: Option<Version>,
}

/// The output format of `--version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// `Kube-DNS 1.2.3, sidecar, commit 8e6b128`.
    Plain,
    /// `"1.2.3"`.
    Raw,
}

impl Version {
    pub(super) fn text(self, program: &str) -> String {
        let (name, version, commit) = (version::NAME, version::VERSION, version::COMMIT);
        match self {
            Self::Plain => format!("{name} {version}, {program}, commit {commit}\n"),
            Self::Raw => format!("{}\n", quote(version::VERSION)),
        }
    }
}

/// The reason why reading stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// Help was requested.
    Help,
    /// A mistake, with Go's error text.
    Wrong(String),
}

/// Rewrites a command line for `command`.
pub(super) fn read(
    command: &Command,
    style: Style,
    argv: impl IntoIterator<Item = OsString>,
) -> Result<Words, Stop> {
    let mut words = Words::default();
    let mut argv = argv.into_iter().peekable();
    words.begins_with_word = argv
        .peek()
        .is_some_and(|word| !word.is_empty() && word != "--" && dashes(word).is_none());

    while let Some(word) = argv.next() {
        if word == "--" {
            words.after_dashes.extend(argv);
            break;
        }

        // Go's flag package reads no flags after the first word that is not a flag.
        let flags_ended = style == Style::Go && !words.stray.is_empty();
        match dashes(&word).filter(|_| !flags_ended) {
            None => words.stray.push(word),
            Some(flag) => {
                Typed::new(&word, flag, style)?.resolve(command, &mut argv, &mut words)?;
            }
        }
    }

    Ok(words)
}

/// Number of dashes of a flag; `None` for a word that is not a flag.
fn dashes(word: &OsString) -> Option<usize> {
    match word.as_encoded_bytes() {
        [b'-', b'-', _, ..] => Some(2),
        [b'-', b, ..] if *b != b'-' => Some(1),
        _ => None,
    }
}

/// A flag as written on the command line.
struct Typed<'a> {
    style: Style,
    dashes: usize,
    word: &'a str,
    name: &'a str,
    value: Option<&'a str>,
}

impl<'a> Typed<'a> {
    fn new(word: &'a OsString, dashes: usize, style: Style) -> Result<Self, Stop> {
        let bad = || Stop::Wrong(format!("bad flag syntax: {}", word.to_string_lossy()));
        let word = word.to_str().ok_or_else(bad)?;
        let text = word.get(dashes..).unwrap_or_default();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        if name.is_empty() || name.starts_with('-') {
            return Err(bad());
        }
        Ok(Self {
            style,
            dashes,
            word,
            name,
            value,
        })
    }

    fn resolve(
        &self,
        command: &Command,
        argv: &mut impl Iterator<Item = OsString>,
        words: &mut Words,
    ) -> Result<(), Stop> {
        if let Some(arg) = long(command, self.name) {
            return self.push(arg, self.value, argv, words);
        }
        match self.name {
            "help" => return Err(Stop::Help),
            "h" if self.dashes == 1 || self.style == Style::Go => return Err(Stop::Help),
            "version" => {
                words.version = self.version()?;
                return Ok(());
            }
            _ => {}
        }
        match self.short(command) {
            Some((arg, value)) => self.push(arg, value, argv, words),
            None => Err(Stop::Wrong(self.unknown())),
        }
    }

    /// A flag of one letter with its value, such as `-v2`.
    fn short(&self, command: &'a Command) -> Option<(&'a Arg, Option<&'a str>)> {
        let letter = self.name.chars().next().filter(|_| self.dashes == 1)?;
        let arg = command
            .get_arguments()
            .find(|arg| arg.get_short() == Some(letter))?;
        let value = self
            .word
            .get(1 + letter.len_utf8()..)
            .filter(|value| !value.is_empty())?;
        Some((arg, Some(value.strip_prefix('=').unwrap_or(value))))
    }

    fn push(
        &self,
        arg: &Arg,
        value: Option<&str>,
        argv: &mut impl Iterator<Item = OsString>,
        words: &mut Words,
    ) -> Result<(), Stop> {
        let name = arg.get_long().unwrap_or(self.name);
        let mut flag = OsString::from(format!("--{name}="));
        match value {
            Some(value) => flag.push(value),
            None if is_switch(arg) => flag.push("true"),
            None => flag.push(argv.next().ok_or_else(|| Stop::Wrong(self.lacks_value()))?),
        }
        words.flags.push(flag);
        Ok(())
    }

    fn version(&self) -> Result<Option<Version>, Stop> {
        match self.value {
            None => Ok(Some(Version::Plain)),
            Some("raw") => Ok(Some(Version::Raw)),
            Some(text) => match boolean(text) {
                Ok(wanted) => Ok(wanted.then_some(Version::Plain)),
                Err(wrong) => Err(Stop::Wrong(super::error::bad_value(
                    self.style,
                    &super::error::Flag {
                        long: Some("version"),
                        short: None,
                    },
                    text,
                    &wrong,
                ))),
            },
        }
    }

    fn unknown(&self) -> String {
        match (self.style, self.dashes) {
            (Style::Go, _) => format!("flag provided but not defined: -{}", self.name),
            (Style::Pflag, 1) => {
                let letter = self.name.chars().next().unwrap_or('-');
                format!("unknown shorthand flag: {letter:?} in {}", self.word)
            }
            (Style::Pflag, _) => format!("unknown flag: --{}", self.name),
        }
    }

    fn lacks_value(&self) -> String {
        match self.style {
            Style::Go => format!("flag needs an argument: -{}", self.name),
            Style::Pflag if self.name.chars().count() == 1 => {
                format!("flag needs an argument: '{0}' in -{0}", self.name)
            }
            Style::Pflag => format!("flag needs an argument: --{}", self.name),
        }
    }
}

/// Whether the flag may have no value and then means `true`. [`super::go_command`] declares such
/// flags.
pub(super) fn is_switch(arg: &Arg) -> bool {
    is_bool(arg)
        || arg
            .get_num_args()
            .is_some_and(|range| range.min_values() == 0)
}

/// The option with that long name, in which `_` and `-` are equivalent.
fn long<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let same = |other: &str| {
        other.len() == name.len()
            && other
                .bytes()
                .zip(name.bytes())
                .all(|(a, b)| dash(a) == dash(b))
    };
    command.get_arguments().find(|arg| {
        arg.get_long().is_some_and(same)
            || arg
                .get_all_aliases()
                .is_some_and(|all| all.into_iter().any(same))
    })
}

fn dash(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte }
}
