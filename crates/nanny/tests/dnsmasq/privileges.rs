//! As somebody else than root, and as the root of a pod.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use testkit::ports::free_port;
use testkit::upstream::Upstream;
use testkit::{eventually, http};

use super::rig::{PATIENCE, Plan, at, only, open_to_all, stubs};

const SETPRIV: &str = "/usr/bin/setpriv";

/// Whether this test can change users; says so if not.
fn can_change_users() -> bool {
    let can = nix::unistd::geteuid().is_root() && Path::new(SETPRIV).exists();
    if !can {
        println!("SKIPPED: needs root and {SETPRIV}");
    }
    can
}

/// Starts the nanny under `words`, edits the configuration, stops it.
async fn works_under(plan: Plan, words: &[&str]) {
    assert!(!has_hasty_reloads(plan, words).await, "quiet moments can be found");
}

/// Does so, and tells whether it found no quiet moment for a reload.
async fn has_hasty_reloads(plan: Plan, words: &[&str]) -> bool {
    let (outside, stub) = (Upstream::answering("192.0.2.1").await, Upstream::answering("192.0.2.11").await);
    let mut rig = open_to_all(plan).run_by(words).forwarding_to(&outside).start().await;
    rig.until("www.acme.test.", "192.0.2.1").await;
    let stubs = stubs(&[("acme.test", &stub)]);
    rig.config(&[("upstreamNameservers", &only(&outside)), ("stubDomains", &stubs)]);
    rig.until("www.acme.test.", "192.0.2.11").await;
    rig.forward_to(&outside);
    rig.until("www.acme.test.", "192.0.2.1").await;
    let hasty = rig.nanny.stderr().iter().any(|line| line.contains("sent=\"Anyway\""));
    rig.end().await;
    hasty
}

#[tokio::test]
async fn as_a_user_without_any_capability() {
    if !can_change_users() {
        return;
    }
    works_under(
        Plan::new(),
        &[SETPRIV, "--reuid=1001", "--regid=1001", "--clear-groups", "--bounding-set=-all", "--no-new-privs"],
    )
    .await;
}

#[tokio::test]
async fn as_a_user_that_may_only_bind_low_ports() {
    if !can_change_users() {
        return;
    }
    let low = (600..1023).find(|port| std::net::UdpSocket::bind(("127.0.0.1", *port)).is_ok()).unwrap();
    works_under(
        Plan::new().on_port(low),
        &[
            SETPRIV,
            "--reuid=1001",
            "--regid=1001",
            "--clear-groups",
            "--inh-caps=-all,+net_bind_service",
            "--ambient-caps=-all,+net_bind_service",
            "--bounding-set=-all,+net_bind_service",
            "--no-new-privs",
        ],
    )
    .await;
}

#[tokio::test]
async fn as_root_with_the_capabilities_of_the_stock_manifest() {
    if !can_change_users() {
        return;
    }
    // The configuration belongs to root here, as it does in a pod.
    works_under(
        Plan::new(),
        &[SETPRIV, "--inh-caps=-all", "--bounding-set=-all,+net_bind_service,+setgid", "--no-new-privs"],
    )
    .await;
}

#[tokio::test]
async fn as_root_that_may_not_signal_the_user_of_dnsmasq() {
    if !can_change_users() {
        return;
    }
    let capabilities = "--bounding-set=-all,+net_bind_service,+setgid,+setuid";
    let words = [SETPRIV, "--inh-caps=-all", capabilities, "--no-new-privs"];
    has_hasty_reloads(Plan::new().dnsmasq("--user=nobody"), &words).await;
}

/// A dnsmasq of another user that nobody here may become.
#[tokio::test]
async fn an_edit_that_cannot_be_signalled_is_pending() {
    if !can_change_users() {
        return;
    }
    let (first, second) = (Upstream::answering("192.0.2.1").await, Upstream::answering("192.0.2.2").await);
    let port = free_port();
    let plan = open_to_all(Plan::new()).flag(format!("-statusAddr=127.0.0.1:{port}"));
    let (setpriv, script) = (plan.path("setpriv"), plan.path("dnsmasq"));
    fs::copy(SETPRIV, &setpriv).unwrap();
    fs::set_permissions(&setpriv, fs::Permissions::from_mode(0o4755)).unwrap();
    let line = format!(
        "#!/bin/sh\nexec {} --reuid=65534 --regid=65534 --clear-groups /usr/sbin/dnsmasq \"$@\"\n",
        setpriv.display()
    );
    fs::write(&script, line).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let plan = plan.flag(format!("-dnsmasqExec={}", script.display()));
    let plan = plan.run_by(&[SETPRIV, "--reuid=1001", "--regid=1001", "--clear-groups"]);
    let mut rig = plan.forwarding_to(&first).start().await;
    let dnsmasq = rig.dnsmasq();

    rig.forward_to(&second);
    let reason = |status: &Value| status["routes"]["pending"]["reason"].as_str().map(str::to_owned);
    let status = rig.status_with("pending routes", |status| reason(status).is_some()).await;
    let reason = reason(&status).unwrap();
    assert_eq!(reason, "dnsmasq cannot be signalled: EPERM: Operation not permitted");
    assert_eq!(status["routes"]["upstreams"], json!([at(&first)]), "in force");
    let failures = async || {
        let page = http::get((Ipv4Addr::LOCALHOST, port).into(), "/metrics").await.unwrap().body;
        let line = page.lines().find_map(|line| line.strip_prefix("nanny_reload_failures_total "));
        line.and_then(|number| number.parse::<u64>().ok()).unwrap_or_default()
    };
    eventually(PATIENCE, || async { failures().await >= 2 }).await;

    let exit = rig.nanny.terminate(PATIENCE).await;
    let log = rig.nanny.stderr().join("\n");
    kill(dnsmasq, Signal::SIGKILL).unwrap();
    assert_eq!(exit.code(), Some(255), "{log}");
    assert!(log.lines().last().unwrap_or_default().contains("dnsmasq cannot be stopped"), "{log}");
}
