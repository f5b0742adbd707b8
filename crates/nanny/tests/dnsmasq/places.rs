//! The state directory: full, removed, or blocked by a file.

use std::fs;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use testkit::http;
use testkit::upstream::Upstream;

use super::rig::{NannySetup, at};

/// Returns whether this test can mount file systems in a mount namespace of its own. Prints a line
/// if it cannot.
fn can_mount() -> bool {
    let can = Command::new("unshare")
        .args(["-m", "true"])
        .status()
        .is_ok_and(|status| status.success());
    if !can {
        println!("SKIPPED: this test needs root and unshare(1)");
    }
    can
}

#[tokio::test]
async fn other_directory_is_used_if_one_is_full() {
    if !can_mount() {
        return;
    }
    for is_given in [false, true] {
        let first = Upstream::answering("192.0.2.1").await;
        let second = Upstream::answering("192.0.2.2").await;
        let (plan, page) = NannySetup::new().with_status_page();
        let state = plan.path("state");
        fs::create_dir(&state).unwrap();
        let (plan, full) = if is_given {
            (plan, state.display().to_string())
        } else {
            (plan.flag("-stateDir="), "/run".to_owned())
        };
        let script = format!(
            "mount -t tmpfs -o size=16k none {full}; cat /dev/zero 2>/dev/null >{full}/all; exec \"$@\""
        );
        let plan = plan.run_by(&["unshare", "-m", "sh", "-c", &script, "sh"]);
        let mut rig = plan.forwarding_to(&first).spawn();
        rig.until("before.outside.test.", "192.0.2.1").await;
        rig.forward_to(&second);
        rig.until("after.outside.test.", "192.0.2.2").await;
        let status: Value =
            serde_json::from_str(&http::get(page, "/status").await.unwrap().body).unwrap();
        assert_eq!(status["configuration"]["editsBy"], "reload", "{full}");
        assert_eq!(status["dnsmasq"]["restarts"], json!({}), "{full}");
        rig.end().await;
    }
}

#[tokio::test]
async fn removed_state_directory_is_recreated() {
    let first = Upstream::answering("192.0.2.1").await;
    let second = Upstream::answering("192.0.2.2").await;
    let mut rig = NannySetup::new().forwarding_to(&first).start().await;
    let dnsmasq = rig.dnsmasq();
    fs::remove_dir_all(rig.path("state")).unwrap();
    rig.forward_to(&second);
    rig.until("edited.outside.test.", "192.0.2.2").await;
    rig.status_with("new upstream", |status| {
        status["routes"]["upstreams"] == json!([at(&second)])
    })
    .await;
    assert_eq!(rig.dnsmasq(), dnsmasq);

    fs::remove_dir_all(rig.path("state")).unwrap();
    kill(dnsmasq, Signal::SIGKILL).unwrap();
    rig.until("restarted.outside.test.", "192.0.2.2").await;
    rig.end().await;
}

#[tokio::test]
async fn servers_are_arguments_if_there_is_no_state_directory() {
    let first = Upstream::answering("192.0.2.1").await;
    let second = Upstream::answering("192.0.2.2").await;
    let mut rig = NannySetup::new().forwarding_to(&first).start().await;
    let (dnsmasq, state) = (rig.dnsmasq(), rig.path("state"));
    fs::remove_dir_all(&state).unwrap();
    fs::write(&state, "in the way").unwrap();
    kill(dnsmasq, Signal::SIGKILL).unwrap();
    rig.until("restarted.outside.test.", "192.0.2.1").await;
    rig.forward_to(&second);
    rig.until("edited.outside.test.", "192.0.2.2").await;

    // Once the directory can be created, the next edit restarts dnsmasq, which then reads its
    // servers from a file. Later edits only reload dnsmasq.
    fs::remove_file(&state).unwrap();
    rig.forward_to(&first);
    rig.until("back.outside.test.", "192.0.2.1").await;
    let restarted =
        |status: &Value| status["dnsmasq"]["restarts"] == json!({"died": 1, "configuration": 2});
    rig.status_with("dnsmasq up", |status| {
        restarted(status) && status["dnsmasq"]["up"] == true
    })
    .await;
    let dnsmasq = rig.dnsmasq();
    rig.forward_to(&second);
    rig.until("reloaded.outside.test.", "192.0.2.2").await;
    assert_eq!(rig.dnsmasq(), dnsmasq);
    rig.end().await;
}
