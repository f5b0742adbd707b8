//! The context of all scenarios: the options, the kubedns binary, and a directory for temporary
//! files.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use crate::options::Measuring;

/// The context of every scenario.
#[derive(Debug)]
pub struct Bench {
    /// Settings of the measurement.
    pub options: Measuring,
    /// The kubedns binary.
    pub kubedns: PathBuf,
    directory: TempDir,
}

impl Bench {
    /// Finds the kubedns binary: the file of `--kubedns`, or else the file `kubedns` in the
    /// directory of this program.
    pub(crate) fn new(options: Measuring) -> anyhow::Result<Self> {
        let kubedns = match &options.kubedns {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("kubedns"),
        };
        if !kubedns.is_file() {
            bail!(
                "{} is not a file; build it with `cargo build --release -p kubedns`, or name a binary with --kubedns",
                kubedns.display()
            );
        }
        let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
        Ok(Self {
            options,
            kubedns,
            directory,
        })
    }

    /// The directory for files of this run; removed afterwards.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// Reports progress on stderr.
pub(crate) fn say(what: &str) {
    // A failed write of progress does not stop the measurement.
    drop(writeln!(std::io::stderr(), "{what}"));
}
