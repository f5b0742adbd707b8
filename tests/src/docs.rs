//! Parsers for the Markdown pages of the repository, and for the metrics of the binaries. The
//! module [`flags`] lists the flags of the binaries.
//!
//! The tests in `tests/tests/docs/` compare the parsed pages with the binaries.

#![allow(
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a page that cannot be read fails the test that reads it"
)]

pub mod commands;
pub mod exposition;
pub mod flags;
pub mod markdown;
pub mod metrics;
