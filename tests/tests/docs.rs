//! Compares the reference pages in `docs/` with the binaries. Everything documented must exist, and
//! everything that exists must be documented.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has to end there"
)]

#[path = "docs/commands.rs"]
mod commands;
#[path = "docs/configmap.rs"]
mod configmap;
#[path = "docs/flags.rs"]
mod flags;
#[path = "docs/links.rs"]
mod links;
#[path = "docs/metrics.rs"]
mod metrics;
#[path = "docs/processes.rs"]
mod processes;
#[path = "docs/runs.rs"]
mod runs;
