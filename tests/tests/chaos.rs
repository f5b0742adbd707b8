//! Chaos: the pod under faults, while a steady client sends queries with known answers.
//!
//! Every test ends with a report of the steady client (shown with `--no-capture` and with a failure): how many
//! queries were sent, answered, wrong and lost. Wrong answers are never allowed. Lost queries are allowed only on a
//! path whose only server was down, and only until it is back; the report lists these excuses with their duration.
//! docs/resilience.md has such reports.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has to end there")]

#[path = "chaos/api.rs"]
mod api;
#[path = "chaos/clock.rs"]
mod clock;
#[path = "chaos/direct.rs"]
mod direct;
#[path = "chaos/edits.rs"]
mod edits;
#[path = "chaos/processes.rs"]
mod processes;
#[path = "chaos/rolling.rs"]
mod rolling;
#[path = "chaos/upstreams.rs"]
mod upstreams;

use testkit::eventually;
use testkit::objects::mk_cluster_ip;
use tests::chaos::Rig;
use tests::e2e::{Dig, PATIENCE};

/// Queries per second.
const RATE: u32 = 120;

/// Number of answers that a test waits for on a path during a fault.
const WHILE: u64 = 60;

/// Adds a Service; returns its domain name.
fn add_service(rig: &Rig, name: &str, address: &str) -> String {
    rig.set(mk_cluster_ip("shop", name, &[address], &["http:80"]));
    format!("{name}.shop.svc.cluster.local")
}

/// Waits until kubedns answers with this address.
async fn resolves(rig: &Rig, name: &str, address: &str) {
    let kubedns = Dig::on(rig.pod.ports.kubedns);
    eventually(PATIENCE, || async { kubedns.short(name).await == [address] }).await;
}
