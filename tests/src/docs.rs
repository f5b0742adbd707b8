//! The pages in `docs/`, and the output of the binaries to compare them with.
//!
//! This module only reads; the tests decide what has to agree.

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
