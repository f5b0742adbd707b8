//! The filter of events: `-v` and `--vmodule`.

use std::str::FromStr;

use thiserror::Error;
use tracing::Metadata;

use crate::flags::{ValueError, plain};

/// The crates of this project, except development tools without this log. Events of other crates
/// need a higher verbosity.
const OURS: [&str; 18] = [
    "treecache",
    "wire",
    "dnsconfig",
    "daemon",
    "apiserver",
    "testkit",
    "skydns",
    "cluster",
    "etcd",
    "dnsclient",
    "explain",
    "check",
    "querylog",
    "kubedns",
    "nanny",
    "sidecar",
    "localpod",
    "tests",
];

/// klog's verbosity, `-v`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level(pub i32);

/// A verbosity that is not a number.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct LevelError(#[from] ValueError);

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        Ok(Self(plain("ParseInt", text)?))
    }
}

/// `--vmodule`: patterns of source file names, each with a level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules(Vec<(String, i32)>);

/// An invalid `--vmodule`.
#[derive(Debug, Error)]
pub enum ModulesError {
    /// A setting has no `=`.
    #[error("syntax error: expect comma-separated list of filename=N")]
    Syntax,
    /// A level is not a number.
    #[error(transparent)]
    Level(#[from] LevelError),
}

impl FromStr for Modules {
    type Err = ModulesError;

    fn from_str(text: &str) -> Result<Self, ModulesError> {
        let mut all = Vec::new();
        for setting in text.split(',').filter(|setting| !setting.is_empty()) {
            let (pattern, level) = setting.split_once('=').ok_or(ModulesError::Syntax)?;
            if pattern.is_empty() || level.is_empty() {
                return Err(ModulesError::Syntax);
            }
            all.push((pattern.to_owned(), level.parse::<Level>()?.0));
        }
        Ok(Self(all))
    }
}

impl Modules {
    /// The level that is set for a source file, if any; the first match wins.
    fn level(&self, file: &str) -> Option<i32> {
        let name = file.strip_suffix(".rs").unwrap_or(file);
        let found = self.0.iter().find(|(pattern, _)| {
            let pattern = pattern.strip_suffix(".rs").unwrap_or(pattern);
            glob(pattern.as_bytes(), name.as_bytes())
        });
        found.map(|(_, level)| *level)
    }
}

/// Whether `text` matches a pattern of `*` and `?`.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (pattern, text);
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        match (p, t) {
            ([b'*', rest @ ..], _) => {
                retry = Some((rest, t));
                p = rest;
            }
            ([], []) => return true,
            ([b'?', p_rest @ ..], [_, t_rest @ ..]) => (p, t) = (p_rest, t_rest),
            ([a, p_rest @ ..], [b, t_rest @ ..]) if a == b => (p, t) = (p_rest, t_rest),
            _ => match retry {
                Some((after, [_, later @ ..])) => {
                    retry = Some((after, later));
                    (p, t) = (after, later);
                }
                _ => return false,
            },
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Filter {
    v: i32,
    modules: Modules,
}

impl Filter {
    pub(super) fn new(v: Level, modules: Modules) -> Self {
        Self { v: v.0, modules }
    }

    /// Whether this event is written.
    pub(super) fn allows(&self, metadata: &Metadata<'_>) -> bool {
        let v = self
            .modules
            .level(basename(metadata.file().unwrap_or_default()))
            .unwrap_or(self.v);
        v >= threshold(is_ours(metadata.target()), *metadata.level())
    }

    /// The most detailed level that this filter may allow.
    pub(super) fn most(&self) -> tracing::level_filters::LevelFilter {
        let v = self
            .modules
            .0
            .iter()
            .map(|(_, level)| *level)
            .fold(self.v, i32::max);
        match v {
            ..4 => tracing::level_filters::LevelFilter::INFO,
            4..6 => tracing::level_filters::LevelFilter::DEBUG,
            _ => tracing::level_filters::LevelFilter::TRACE,
        }
    }
}

/// The verbosity from which events of a level are written.
fn threshold(ours: bool, level: tracing::Level) -> i32 {
    match level {
        tracing::Level::ERROR | tracing::Level::WARN => i32::MIN,
        tracing::Level::INFO if ours => i32::MIN,
        tracing::Level::INFO => 5,
        tracing::Level::DEBUG if ours => 4,
        tracing::Level::DEBUG => 8,
        tracing::Level::TRACE if ours => 6,
        tracing::Level::TRACE => 10,
    }
}

fn is_ours(target: &str) -> bool {
    let name = target.split("::").next().unwrap_or_default();
    OURS.contains(&name)
}

/// The file name at the end of a path.
pub(super) fn basename(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
