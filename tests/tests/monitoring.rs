//! Checks the files in `manifests/monitoring`. The dashboard and the alerts must be well-formed,
//! and must use only existing metrics. The alerts must match the documentation, and must fire when
//! they should.
//!
//! If promtool is not installed (Debian: `prometheus`), its checks are skipped with a message.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has to end there"
)]
#![allow(
    clippy::print_stderr,
    reason = "a skipped test must not look like a passed one"
)]

#[path = "monitoring/dashboard.rs"]
mod dashboard;
#[path = "monitoring/kustomize.rs"]
mod kustomize;
#[path = "monitoring/promql.rs"]
mod promql;
#[path = "monitoring/promtool.rs"]
mod promtool;
#[path = "monitoring/rules.rs"]
mod rules;
#[path = "monitoring/topologies.rs"]
mod topologies;
