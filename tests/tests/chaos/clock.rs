//! The wall clock jumps, as after a correction by NTP or when a virtual machine resumes. The
//! monotonic clock never jumps.
//!
//! All processes of the pod load `libfaketime`. Whenever a process reads the wall clock, this
//! library reads the offset of the clock from a file.

use std::path::{Path, PathBuf};
use std::process::Command;

use tests::chaos::{Rig, Topology};
use tests::steady::Steady;

use super::{RATE, WHILE, add_service, wait_until_kubedns_resolves};

/// The paths of the library in Linux distributions.
const LIBRARIES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
];

fn library() -> Option<PathBuf> {
    LIBRARIES
        .iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_recovers_from_wall_clock_jumps() {
    let Some(library) = library() else {
        println!("SKIPPED: libfaketime is not installed (apt-get install libfaketime)");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let offset = directory.path().join("offset");
    let jump = |to: &str| std::fs::write(&offset, format!("{to}\n")).unwrap();
    jump("+0");
    let rig = Rig::start_in(Topology::DropIn, &[], &environment(&library, &offset)).await;
    let maps = format!("/proc/{}/maps", rig.pod.container("kubedns").await);
    assert!(
        std::fs::read_to_string(maps)
            .unwrap()
            .contains("libfaketime"),
        "kubedns does not use libfaketime"
    );
    let steady = Steady::start(rig.questions(), RATE);
    steady.answered(WHILE).await;
    for (number, to) in ["+1h", "-1d", "+10y", "+0"].into_iter().enumerate() {
        // dnsmasq may forget the queries in flight when its clock jumps.
        let excuse = steady.excuse(&["cluster", "outside"], "the clock of dnsmasq jumped");
        jump(to);
        excuse.ends().await;
        println!("{to}: {}", date(&library, &offset));
        let address = format!("10.96.8.{number}");
        let service = add_service(&rig, &format!("later-{number}"), &address);
        wait_until_kubedns_resolves(&rig, &service, &address).await;
        steady.answered(WHILE).await;
    }
    rig.assert_no_restarts();
    steady
        .stop()
        .await
        .check("wall clock +1 h, -1 day, +10 years, back");
}

/// The date that a process of the pod reads from the wall clock.
fn date(library: &Path, offset: &Path) -> String {
    let mut date = Command::new("date");
    let output = date.envs(environment(library, offset)).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn environment(library: &Path, offset: &Path) -> Vec<(&'static str, String)> {
    vec![
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", offset.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        ("DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
}
