//! As somebody else than root, and as the root of a pod.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use super::rig::{Plan, at, dnsmasq_is_here, upstream};

const SETPRIV: &str = "/usr/bin/setpriv";

/// Whether this test can change users; says so if not.
fn can_change_users() -> bool {
    let can = nix::unistd::geteuid().is_root() && Path::new(SETPRIV).exists();
    if !can {
        println!("SKIPPED: needs root and {SETPRIV}");
    }
    can && dnsmasq_is_here()
}

/// Lets everybody into the rig's directory.
fn open_to_all(plan: Plan) -> Plan {
    fs::set_permissions(plan.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    plan
}

/// Starts the nanny under `words`, edits the configuration, stops it.
async fn works_under(plan: Plan, words: &[&str]) {
    let (outside, stub) = (upstream("192.0.2.1").await, upstream("192.0.2.11").await);
    let upstreams = json!([at(&outside)]).to_string();
    let plan = open_to_all(plan).run_by(words).config(&[("upstreamNameservers", &upstreams)]);
    let mut rig = plan.start().await;
    rig.until("www.acme.test.", "192.0.2.1").await;
    let stubs = json!({"acme.test": [at(&stub)]}).to_string();
    rig.config(&[("upstreamNameservers", &upstreams), ("stubDomains", &stubs)]);
    rig.until("www.acme.test.", "192.0.2.11").await;
    rig.config(&[("upstreamNameservers", &upstreams)]);
    rig.until("www.acme.test.", "192.0.2.1").await;
    let hasty = rig.nanny.stderr().iter().any(|line| line.contains("sent=\"Anyway\""));
    assert!(!hasty, "quiet moments can be found");
    rig.end().await;
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
