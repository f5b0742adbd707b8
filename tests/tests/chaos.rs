//! Chaos tests: inject faults into the pod. In most tests, a steady client sends queries with known
//! answers meanwhile.
//!
//! Such a test ends with a report of the steady client: the numbers of queries, right answers,
//! wrong answers and lost queries. The report is shown with `--no-capture` and after a failure.
//! Wrong answers are never permitted. Each query belongs to a path, such as `cluster`. Queries on
//! the same path pass through the same servers. A test excuses a path during a fault that the path
//! cannot survive, such as a crash of its only server. Queries may be lost, or fail with SERVFAIL
//! or REFUSED, only while their path is excused. The report lists the excuses. docs/resilience.md
//! has such reports.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has to end there"
)]

#[path = "chaos/agreement.rs"]
mod agreement;
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

use nix::sys::signal::Signal;
use testkit::eventually;
use testkit::objects::mk_cluster_ip;
use testkit::processes::send;
use tests::chaos::Rig;
use tests::e2e::{Dig, PATIENCE};
use tests::steady::Steady;

/// Queries of the steady client per second.
const RATE: u32 = 240;

/// Number of right answers on each path that a test awaits before it goes on.
const WHILE: u64 = 60;

/// Adds a Service, and returns the domain name of the Service.
fn add_service(rig: &Rig, name: &str, address: &str) -> String {
    rig.set(mk_cluster_ip("shop", name, &[address], &["http:80"]));
    format!("{name}.shop.svc.cluster.local")
}

/// Kills dnsmasq, and waits until the nanny has replaced it and `paths` have recovered. Then
/// freezes the new dnsmasq, and waits in the same way. Queries on `paths` may fail meanwhile.
async fn kill_and_freeze_dnsmasq(rig: &Rig, steady: &Steady, paths: &[&'static str]) {
    for (signal, why) in [
        (Signal::SIGKILL, "dnsmasq was killed"),
        (Signal::SIGSTOP, "dnsmasq was frozen"),
    ] {
        let before = rig.dnsmasq().await;
        let excuse = steady.excuse(paths, why);
        send(before, signal);
        eventually(PATIENCE, || async { rig.dnsmasq().await != before }).await;
        excuse.ends().await;
    }
}

/// Waits until kubedns answers with this address.
async fn wait_until_kubedns_resolves(rig: &Rig, name: &str, address: &str) {
    let kubedns = Dig::on(rig.pod.ports.kubedns);
    eventually(PATIENCE, || async {
        kubedns.short(name).await == [address]
    })
    .await;
}
