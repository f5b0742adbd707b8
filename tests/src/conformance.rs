//! The conformance suite: compares the answers of a server with recorded answers of kube-dns. Where
//! this project differs on purpose, listed answers replace the recorded answers, or rules change
//! the answers that are expected.
//!
//! * [`vector`]: the recorded scenarios (`tests/conformance/vectors`);
//!   `tests/conformance/README.md` describes their format.
//! * [`question`], [`answer`]: convert a recorded question to a packet, and a packet to a
//!   normalised answer.
//! * [`memory`]: the recorded responses of the upstream, from all scenarios.
//! * [`judge`]: compares an answer with the expected ones.
//! * [`difference`]: our deliberate differences (`tests/conformance/differences`).
//! * [`verdict`], [`report`]: the result of each question, and a table of the results by category.
//! * [`wire`]: runs the suite against a server process over real sockets.

pub mod answer;
pub mod difference;
pub mod judge;
pub mod memory;
pub mod question;
pub mod report;
pub mod vector;
pub mod verdict;
pub mod wire;

use std::path::PathBuf;

use anyhow::Context as _;

/// The directory of the suite's data.
pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance")
}

/// The files of a directory of the suite's data, sorted.
fn files(name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let directory = directory().join(name);
    let entries =
        std::fs::read_dir(&directory).with_context(|| format!("{}", directory.display()))?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
