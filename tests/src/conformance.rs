//! The conformance suite: recorded answers of kube-dns, played against a server, and our listed differences from them.
//!
//! * [`vector`]: the recorded scenarios (`tests/conformance/vectors`); their format is told in `tests/conformance/README.md`.
//! * [`question`], [`answer`]: from a recorded question to a packet, and from a packet to a normalised answer.
//! * [`memory`]: what the recorded resolver said, over all vectors.
//! * [`judge`]: whether an answer is the expected one.
//! * [`difference`]: where we answer otherwise on purpose (`tests/conformance/differences`).
//! * [`verdict`], [`report`]: what came of each question, per category, with small diffs.
//! * [`wire`]: the suite against a real server process over real sockets. The faster form inside one process is in
//!   `tests/tests/conformance_in_process.rs`.

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

/// The directory of the suite's data.
pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance")
}
