//! The conformance suite: compares the answers of a server with recorded ones of kube-dns, and with our listed
//! differences.
//!
//! * [`vector`]: the recorded scenarios (`tests/conformance/vectors`); `tests/conformance/README.md` describes their
//!   format.
//! * [`question`], [`answer`]: convert a recorded question to a packet, and a packet to a normalised answer.
//! * [`memory`]: the upstream's recorded responses of all vectors together.
//! * [`judge`]: compares an answer with the expected one.
//! * [`difference`]: our deliberate differences (`tests/conformance/differences`).
//! * [`verdict`], [`report`]: the result of each question, per category, with small diffs.
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
