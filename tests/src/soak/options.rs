//! The soak test's command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};

const USAGE: &str = "soak [--minutes=30] [--rate=1500] [--changes=10] [--direct] [--csv=FILE]";

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// For how long.
    pub minutes: u32,
    /// Queries a second.
    pub rate: u32,
    /// Changes of the cluster a second.
    pub changes: u32,
    /// kubedns in front.
    pub direct: bool,
    /// Where the samples are written.
    pub csv: Option<PathBuf>,
}

impl Options {
    /// Reads a command line, the program's name included.
    ///
    /// # Errors
    ///
    /// When it is not understood; the error says what is accepted.
    pub fn read(args: impl IntoIterator<Item = OsString>) -> anyhow::Result<Self> {
        let mut options = Self { minutes: 30, rate: 1500, changes: 10, direct: false, csv: None };
        for arg in args.into_iter().skip(1) {
            let arg = arg.to_string_lossy();
            let (name, value) = arg.split_once('=').unwrap_or((&arg, ""));
            let number = || value.parse().with_context(|| format!("{arg}: not a number; {USAGE}"));
            match name {
                "--minutes" => options.minutes = number()?,
                "--rate" => options.rate = number()?,
                "--changes" => options.changes = number()?,
                "--direct" => options.direct = true,
                "--csv" => options.csv = Some(PathBuf::from(value)),
                _ => bail!("{arg}: not understood; {USAGE}"),
            }
        }
        Ok(options)
    }

    pub(super) fn duration(&self) -> Duration {
        Duration::from_mins(1) * self.minutes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> anyhow::Result<Options> {
        Options::read(std::iter::once("soak").chain(args.iter().copied()).map(OsString::from))
    }

    #[test]
    fn everything_can_be_said() {
        let options = read(&["--minutes=2", "--rate=7", "--changes=3", "--direct", "--csv=x.csv"]).unwrap();
        let csv = Some(PathBuf::from("x.csv"));
        assert_eq!(options, Options { minutes: 2, rate: 7, changes: 3, direct: true, csv });
        assert_eq!(read(&[]).unwrap().duration(), Duration::from_mins(30));
    }

    #[test]
    fn mistakes_are_said() {
        for mistake in ["--minutes", "--rate=fast", "--no-such-flag", "stray"] {
            let error = format!("{:#}", read(&[mistake]).unwrap_err());
            assert!(error.contains(mistake) && error.contains(USAGE), "{error}");
        }
    }
}
