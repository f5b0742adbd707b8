//! The status page in a real browser: the Content-Security-Policy permits the script, and the
//! script updates the page, also behind a proxy. The tests are skipped if Chromium is not
//! installed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::{eventually, http};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::healthcheck::Servers;
use crate::running::{PATIENCE, Sidecar};

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|directory| names.map(|name| directory.join(name)))
        .find(|path| path.is_file())
}

/// The document after the browser has run for `seconds` of virtual time. Panics if the console has
/// an error.
async fn document(chromium: &Path, url: &str, seconds: u32) -> String {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(chromium);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-dev-shm-usage",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--virtual-time-budget={}", seconds * 1000))
        .args(["--enable-logging=stderr", "--dump-dom", url])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output())
        .await
        .expect("the browser must end in time");
    let output = output.expect("the browser must run");

    let log = String::from_utf8_lossy(&output.stderr);
    // The console also shows failed requests. They are not errors of the script.
    let is_error = |line: &&str| line.contains(":CONSOLE") && !line.contains("Failed to load");
    let errors: Vec<&str> = log.lines().filter(is_error).collect();
    assert_eq!(errors, [""; 0], "the console of {url}");
    String::from_utf8(output.stdout).unwrap()
}

/// A proxy in front of the status page. Requests for `/dns/`, and the first request for `/once/`,
/// get the status page. All other requests get the proxy's own sign-in page.
struct Proxy {
    address: SocketAddr,
    _task: JoinSet<()>,
}

impl Proxy {
    async fn before(sidecar: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::new(AtomicBool::new(false));
        let mut task = JoinSet::new();
        task.spawn(async move {
            // A browser may open connections without sending a request, so connections are served
            // concurrently.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer_request(stream, sidecar, Arc::clone(&served)));
            }
        });
        Self {
            address,
            _task: task,
        }
    }
}

/// Answers one request.
async fn answer_request(mut stream: TcpStream, sidecar: SocketAddr, served: Arc<AtomicBool>) {
    let mut head = BufReader::new(&mut stream).lines();
    let Ok(Some(line)) = head.next_line().await else {
        return;
    };
    // Reads the whole head: closing with unread data would reset the connection.
    while head
        .next_line()
        .await
        .is_ok_and(|line| line.is_some_and(|line| !line.is_empty()))
    {}
    let has_page = match line.split(' ').nth(1) {
        Some("/dns/") => true,
        Some("/once/") => !served.swap(true, Ordering::Relaxed),
        _ => false,
    };
    let answer = if has_page {
        http::request(sidecar, "GET", "/").await.unwrap()
    } else {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n";
        format!("{head}<!doctype html><title>sign in</title><p>who are you?</p>")
    };
    // The browser may have closed the connection.
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// The path of a browser, the probed servers, and a sidecar whose probe `good` has been answered
/// twice. `None` if no browser is installed.
#[allow(
    clippy::print_stderr,
    reason = "a line reports that the test was skipped"
)]
async fn browser_and_sidecar() -> Option<(PathBuf, Servers, Sidecar)> {
    let Some(chromium) = chromium() else {
        eprintln!("Chromium is not installed: a test of the status page is skipped");
        return None;
    };
    let servers = Servers::start().await;
    let sidecar = Sidecar::start(&servers.probes()).await;
    eventually(PATIENCE, || async {
        sidecar.metric("kubedns_probe_good_latency_ms_count").await >= Some(2.0)
    })
    .await;
    Some((chromium, servers, sidecar))
}

fn shows_the_probe(document: &str) -> bool {
    document.contains("<polyline class=\"ok\"")
}

#[tokio::test]
async fn page_refreshes_itself() {
    let Some((chromium, _servers, sidecar)) = browser_and_sidecar().await else {
        return;
    };
    let live = document(&chromium, &format!("http://{}/", sidecar.address), 10).await;
    assert!(live.contains("data-refreshed=\""), "{live}");
    assert!(
        shows_the_probe(&live) && live.contains("id=\"lost\" role=\"status\"></p>"),
        "{live}"
    );
}

#[tokio::test]
async fn proxied_page_refreshes_itself() {
    let Some((chromium, _servers, sidecar)) = browser_and_sidecar().await else {
        return;
    };
    let proxy = Proxy::before(sidecar.address).await;

    let live = document(&chromium, &format!("http://{}/dns/", proxy.address), 10).await;
    assert!(live.contains("data-refreshed=\""), "{live}");
    assert!(
        shows_the_probe(&live) && live.contains("id=\"lost\" role=\"status\"></p>"),
        "{live}"
    );
}

/// A sign-in page instead of the status page counts as a lost connection.
#[tokio::test]
async fn page_behind_sign_in_shows_lost_connection() {
    let Some((chromium, _servers, sidecar)) = browser_and_sidecar().await else {
        return;
    };
    let proxy = Proxy::before(sidecar.address).await;

    let cut_off = document(&chromium, &format!("http://{}/once/", proxy.address), 10).await;
    assert!(!cut_off.contains("data-refreshed=\""), "{cut_off}");
    // The icon of an unknown state is a grey ring.
    for shown in [
        "role=\"status\">Connection lost, last seen ",
        "<title>? last seen ",
        "<body class=\"unknown\">",
        "stroke='%23808890'",
    ] {
        assert!(
            shows_the_probe(&cut_off) && cut_off.contains(shown),
            "{shown} in {cut_off}"
        );
    }
}
