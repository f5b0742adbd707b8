//! Parsers for the pages in `docs/`, and for the `--help` and metrics of the binaries.
//!
//! The tests in `tests/tests/docs/` compare the parsed pages with the binaries.

#![allow(
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a page that cannot be read fails the test that reads it"
)]

pub mod commands;
pub mod exposition;
pub mod help;
pub mod markdown;
pub mod metrics;
