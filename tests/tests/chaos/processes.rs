//! Processes of the pod are killed and frozen. localpod, the program that runs the pod, restarts
//! containers that have ended, as a kubelet does. The nanny restarts dnsmasq within its container.

use nix::sys::signal::Signal;
use testkit::eventually;
use testkit::processes::send;
use tests::chaos::{Rig, Topology};
use tests::e2e::PATIENCE;
use tests::steady::Steady;

use super::{RATE, WHILE, kill_and_freeze_dnsmasq, wait_until_kubedns_resolves};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_sent_directly_to_kubedns_survive_dead_dnsmasq() {
    let rig = Rig::start(Topology::DropIn, &[]).await;
    let steady = Steady::start(rig.questions(), RATE);
    steady.answered(WHILE).await;

    kill_and_freeze_dnsmasq(&rig, &steady, &["cluster", "outside"]).await;

    steady.answered(WHILE).await;
    let found = rig.pod.status().containers["dnsmasq"].restarts;
    assert_eq!(
        found, 0,
        "the nanny must restart dnsmasq within the container"
    );
    steady
        .stop()
        .await
        .check("drop-in: dnsmasq is killed, and then frozen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_kubedns_loses_no_query_for_external_names() {
    let rig = Rig::start(Topology::DropIn, &[]).await;
    let steady = Steady::start(rig.questions(), RATE);
    steady.answered(WHILE).await;

    let excuse = steady.excuse(&["cluster", "kubedns"], "kubedns was killed");
    send(rig.pod.container("kubedns").await, Signal::SIGKILL);
    excuse.ends().await;

    let excuse = steady.excuse(&["cluster", "kubedns"], "kubedns was frozen");
    let frozen = rig.pod.container("kubedns").await;
    send(frozen, Signal::SIGSTOP);
    eventually(PATIENCE, || async {
        rig.pod.health("kubedns").await == Some(503)
    })
    .await;
    // A kubelet would kill the frozen container after failed liveness probes. localpod does not.
    send(frozen, Signal::SIGKILL);
    excuse.ends().await;

    steady.answered(WHILE).await;
    steady
        .stop()
        .await
        .check("drop-in: kubedns is killed, and then frozen and killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_kubedns_serves_its_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let flag = format!(
        "--kubedns-arg=--snapshot-dir={}",
        directory.path().display()
    );
    let rig = Rig::start(Topology::DropIn, &[&flag]).await;
    // kubedns writes the snapshot file at shutdown after SIGTERM. Before that, kubedns writes the
    // file only ten seconds after a change.
    let first = rig.pod.container("kubedns").await;
    send(first, Signal::SIGTERM);
    eventually(PATIENCE, || async {
        rig.pod.container("kubedns").await != first
    })
    .await;
    assert!(directory.path().join("kubedns.snapshot").exists());
    wait_until_kubedns_resolves(&rig, "web-1.shop.svc.cluster.local", "10.96.1.1").await;
    let steady = Steady::start(rig.questions(), RATE);
    steady.answered(1).await;

    rig.api_faults().down();
    let excuse = steady.excuse(&["cluster", "kubedns"], "kubedns was killed");
    send(rig.pod.container("kubedns").await, Signal::SIGKILL);
    // The API server is still down.
    excuse.ends().await;
    steady.answered(WHILE).await;
    rig.api_faults().up();
    steady.answered(WHILE).await;
    steady
        .stop()
        .await
        .check("drop-in: kubedns with a snapshot file is killed while the API server is down");
}
