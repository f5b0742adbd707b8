//! Checks the documentation. The reference pages in `docs/` must agree with the flags, metrics and
//! ConfigMap keys of the programs. Commands must name existing files and subcommands. Commands that
//! a test can run must print what the page shows. Links must lead to existing files and headings.

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
