//! The pages in `docs/` and what they are held against: what the binaries print and export.
//!
//! Reading only; what has to agree with what is decided in the tests.

#![allow(
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a page that cannot be read fails the test that reads it"
)]

pub mod exposition;
pub mod help;
pub mod markdown;
pub mod metrics;
