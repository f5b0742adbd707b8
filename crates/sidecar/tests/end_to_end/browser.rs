//! The page in a real browser: its policy lets its own script run, and that keeps it live. Where there is no Chromium there is nothing to test; `make
//! test` installs it where it may.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use testkit::eventually;
use tokio::process::Command;

use crate::healthcheck::Servers;
use crate::running::{PATIENCE, Sidecar};

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|directory| names.map(|name| directory.join(name)))
        .find(|path| path.is_file())
}

/// The document as the browser has it after `seconds` of its own clock.
async fn document(chromium: &Path, url: &str, seconds: u32) -> String {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(chromium);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--virtual-time-budget={}", seconds * 1000))
        .args(["--dump-dom", url])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("the browser ends in time");
    String::from_utf8(output.expect("the browser runs").stdout).unwrap()
}

#[tokio::test]
async fn the_page_is_live() {
    let Some(chromium) = chromium() else {
        eprintln!("no Chromium here: the page was not tried in a browser");
        return;
    };
    let servers = Servers::start().await;
    let sidecar = Sidecar::start(&servers.probes()).await;
    eventually(PATIENCE, || async {
        sidecar.metric("kubedns_probe_good_latency_ms_count").await >= Some(2.0)
    })
    .await;
    let url = format!("http://{}/", sidecar.address);

    let live = document(&chromium, &url, 10).await;
    assert!(live.contains("data-refreshed=\""), "{live}");
    assert!(live.contains("<polyline class=\"ok\"") && live.contains("id=\"lost\"></span>"), "{live}");
}
