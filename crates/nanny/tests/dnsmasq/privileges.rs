//! A nanny that runs as a user other than root, or as root with few capabilities, as in a pod.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use testkit::upstream::Upstream;
use testkit::{eventually, http};

use super::rig::{NannySetup, PATIENCE, allow_all_users, at, routes};

const SETPRIV: &str = "/usr/bin/setpriv";

/// Returns whether this test can change users. If not, prints that the test is skipped.
fn can_change_users() -> bool {
    let can = nix::unistd::geteuid().is_root() && Path::new(SETPRIV).exists();
    if !can {
        println!("SKIPPED: this test needs root and {SETPRIV}");
    }
    can
}

/// Starts the nanny with `rights` (options of setpriv(1)), edits the configuration, and stops the
/// nanny. Returns whether each reload that removed servers waited for a moment in which dnsmasq was
/// idle.
async fn works_with(plan: NannySetup, rights: &str) -> bool {
    let outside = Upstream::answering("192.0.2.1").await;
    let stub = Upstream::answering("192.0.2.11").await;
    let words: Vec<&str> = [SETPRIV, "--no-new-privs"]
        .into_iter()
        .chain(rights.split(' '))
        .collect();
    let mut rig = allow_all_users(plan)
        .run_by(&words)
        .forwarding_to(&outside)
        .start()
        .await;
    rig.until("www.acme.test.", "192.0.2.1").await;
    rig.config(&routes(&outside, &[("acme.test", &stub)]));
    rig.until("www.acme.test.", "192.0.2.11").await;
    rig.forward_to(&outside);
    rig.until("www.acme.test.", "192.0.2.1").await;
    let hasty = rig.hasty_reloads();
    rig.end().await;
    hasty == 0
}

#[tokio::test]
async fn nanny_works_as_user_without_capabilities() {
    let rights = "--reuid=1001 --regid=1001 --clear-groups --bounding-set=-all";
    assert!(!can_change_users() || works_with(NannySetup::new(), rights).await);
}

#[tokio::test]
async fn user_with_net_bind_service_binds_low_port() {
    let low = || {
        (600..1023)
            .find(|port| std::net::UdpSocket::bind(("127.0.0.1", *port)).is_ok())
            .unwrap()
    };
    let rights = "--reuid=1001 --regid=1001 --clear-groups --inh-caps=-all,+net_bind_service \
                  --ambient-caps=-all,+net_bind_service --bounding-set=-all,+net_bind_service";
    assert!(!can_change_users() || works_with(NannySetup::new().on_port(low()), rights).await);
}

/// Root with the capabilities of the stock manifest, so without `CAP_DAC_OVERRIDE`. Root can read
/// the configuration, because its files belong to root, as in a pod.
#[tokio::test]
async fn stock_capabilities_suffice() {
    let rights = "--inh-caps=-all --bounding-set=-all,+net_bind_service,+setgid";
    assert!(!can_change_users() || works_with(NannySetup::new(), rights).await);
}

#[tokio::test]
async fn nanny_signals_dnsmasq_of_other_user() {
    if can_change_users() {
        let rights = "--inh-caps=-all --bounding-set=-all,+net_bind_service,+setgid,+setuid";
        works_with(NannySetup::new().dnsmasq("--user=nobody"), rights).await;
    }
}

/// dnsmasq runs as another user, and the nanny has no right to signal dnsmasq.
#[tokio::test]
async fn edit_is_pending_if_dnsmasq_cannot_be_signalled() {
    if !can_change_users() {
        return;
    }
    let first = Upstream::answering("192.0.2.1").await;
    let second = Upstream::answering("192.0.2.2").await;
    let (plan, page) = allow_all_users(NannySetup::new()).with_status_page();
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
    let (status, reason) = rig.pending_routes().await;
    let expected = "dnsmasq cannot be signalled: EPERM: Operation not permitted";
    assert_eq!(reason, expected);
    let upstreams = &status["routes"]["upstreams"];
    assert_eq!(
        *upstreams,
        json!([at(&first)]),
        "the first server must stay in force"
    );
    let metrics = async || http::get(page, "/metrics").await.unwrap();
    eventually(PATIENCE, || async {
        metrics().await.metric("nanny_reload_failures_total") >= Some(2.0)
    })
    .await;

    let exit = rig.nanny.terminate(PATIENCE).await;
    let log = rig.nanny.stderr().join("\n");
    kill(dnsmasq, Signal::SIGKILL).unwrap();
    assert_eq!(exit.code(), Some(255), "{log}");
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains("dnsmasq cannot be stopped"), "{log}");
}
