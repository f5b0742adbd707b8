//! The third-party crates of the workspace, with their sources and licences, as cargo lists them.
//!
//! * [`graph`]: the dependency graph of the workspace.
//! * [`licence`]: the allowed licences (`deny.toml`), and the check of an SPDX expression.
//! * [`lock`]: the sources of crates in `Cargo.lock`.
//! * [`page`]: the list of third-party software, `THIRD-PARTY-LICENCES.md`.
//!
//! `make deny` runs cargo-deny for the checks that need more than cargo: duplicates, licence files
//! and advisories.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a graph that cannot be read fails the test that reads it"
)]

pub mod graph;
pub mod licence;
pub mod lock;
pub mod page;

use crate::repository;

/// The text of a file at the root of the repository.
pub fn read(name: &str) -> String {
    let path = repository().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
