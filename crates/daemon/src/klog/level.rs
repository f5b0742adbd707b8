//! The filter of events: `-v` and `--vmodule`.

use std::str::FromStr;

use thiserror::Error;
use tracing::Metadata;
use wildmatch::WildMatch;

use crate::flags::{ValueError, plain_number};

/// The crates of this project, except some that never log. Info, debug and trace events of other
/// crates need a higher verbosity.
const OURS: [&str; 19] = [
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
    "reports",
    "querylog",
    "kubedns",
    "nanny",
    "sidecar",
    "localpod",
    "tests",
];

/// klog's verbosity, `-v`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verbosity(pub i32);

/// An invalid verbosity.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct VerbosityError(#[from] ValueError);

impl FromStr for Verbosity {
    type Err = VerbosityError;

    fn from_str(text: &str) -> Result<Self, VerbosityError> {
        Ok(Self(plain_number("ParseInt", text)?))
    }
}

/// `--vmodule`: patterns of source file names, each with a level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmoduleLevels(Vec<(String, i32)>);

/// An invalid `--vmodule`.
#[derive(Debug, Error)]
pub enum ParseVmoduleError {
    /// A setting has no `=`, or nothing before or after it.
    #[error("syntax error: expect comma-separated list of filename=N")]
    Syntax,
    /// A level is invalid.
    #[error(transparent)]
    Level(#[from] VerbosityError),
}

impl FromStr for VmoduleLevels {
    type Err = ParseVmoduleError;

    fn from_str(text: &str) -> Result<Self, ParseVmoduleError> {
        let mut all = Vec::new();

        for setting in text.split(',').filter(|setting| !setting.is_empty()) {
            let (pattern, level) = setting.split_once('=').ok_or(ParseVmoduleError::Syntax)?;
            if pattern.is_empty() || level.is_empty() {
                return Err(ParseVmoduleError::Syntax);
            }
            all.push((pattern.to_owned(), level.parse::<Verbosity>()?.0));
        }

        Ok(Self(all))
    }
}

impl VmoduleLevels {
    /// The level that is set for a source file, if any; the first match wins.
    fn level_of_file(&self, file: &str) -> Option<i32> {
        let name = file.strip_suffix(".rs").unwrap_or(file);
        for (pattern, level) in &self.0 {
            let pattern = pattern.strip_suffix(".rs").unwrap_or(pattern);
            if WildMatch::new(pattern).matches(name) {
                return Some(*level);
            }
        }
        None
    }
}

#[derive(Clone, Debug)]
pub(super) struct LogFilter {
    v: i32,
    modules: VmoduleLevels,
}

impl LogFilter {
    pub(super) fn new(v: Verbosity, modules: VmoduleLevels) -> Self {
        Self { v: v.0, modules }
    }

    /// Whether `-v` and `--vmodule` allow an event with this metadata.
    pub(super) fn allows(&self, metadata: &Metadata<'_>) -> bool {
        let file = basename(metadata.file().unwrap_or_default());
        // A file named by `--vmodule` has its own level, which may also be lower than `-v`.
        let v = self.modules.level_of_file(file).unwrap_or(self.v);
        v >= least_verbosity(is_ours(metadata.target()), *metadata.level())
    }

    /// The most detailed level that this filter may allow.
    pub(super) fn most_detailed(&self) -> tracing::level_filters::LevelFilter {
        let levels = self.modules.0.iter().map(|(_, level)| *level);
        // A single file may be more detailed than the rest.
        match levels.fold(self.v, i32::max) {
            ..4 => tracing::level_filters::LevelFilter::INFO,
            4..6 => tracing::level_filters::LevelFilter::DEBUG,
            _ => tracing::level_filters::LevelFilter::TRACE,
        }
    }
}

/// The verbosity from which events of a level are written.
fn least_verbosity(ours: bool, level: tracing::Level) -> i32 {
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
