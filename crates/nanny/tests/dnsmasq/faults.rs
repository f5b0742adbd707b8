//! A dnsmasq or a nanny that dies, hangs, is busy or is told to stop, and the log of dnsmasq.

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::json;
use testkit::client::TcpConnection;
use testkit::eventually;
use testkit::processes::is_running;
use testkit::query::Query;

use super::load::Load;
use testkit::upstream::Upstream;

use super::rig::{NannySetup, PATIENCE, allow_all_users};

#[tokio::test]
async fn dead_dnsmasq_restarts_with_same_servers() {
    let outside = Upstream::answering("192.0.2.1").await;
    let mut rig = NannySetup::new().forwarding_to(&outside).start().await;
    let first = rig.dnsmasq();
    rig.signal(Signal::SIGSEGV);
    let status = rig.restarted("died").await;
    assert_eq!(status["dnsmasq"]["lastEnd"], "a crash: killed by SIGSEGV");
    rig.until("www.outside.test.", "192.0.2.1").await;
    rig.logs("dnsmasq ended, starting it again how=\"a crash: killed by SIGSEGV\"")
        .await;
    assert_ne!(rig.dnsmasq(), first);
    rig.end().await;
}

#[tokio::test]
async fn hanging_dnsmasq_is_killed_and_restarted() {
    let outside = Upstream::answering("192.0.2.1").await;
    let rig = NannySetup::new().forwarding_to(&outside).start().await;
    let first = rig.dnsmasq();
    rig.signal(Signal::SIGSTOP);
    rig.restarted("hung").await;
    rig.until("www.outside.test.", "192.0.2.1").await;
    assert!(!is_running(first.as_raw().try_into().unwrap()));
    rig.end().await;
}

/// With `-logInterval`, the nanny regularly sends SIGUSR1 to dnsmasq.
#[tokio::test]
async fn requests_for_statistics_do_not_hide_hang() {
    let rig = NannySetup::new().flag("-logInterval=100ms").start().await;
    rig.signal(Signal::SIGSTOP);
    rig.restarted("hung").await;
    rig.end().await;
}

#[tokio::test]
async fn busy_dnsmasq_is_not_restarted() {
    let outside = Upstream::answering("192.0.2.1").await;
    let rig = NannySetup::new().forwarding_to(&outside).start().await;
    let load = Load::start(rig.server(), 20);
    let asked = outside.count();
    eventually(PATIENCE, || {
        std::future::ready(outside.count() > asked + 5000)
    })
    .await;
    load.end().await;
    assert_eq!(rig.status()["dnsmasq"]["restarts"], json!({}));
    rig.end().await;
}

#[tokio::test]
async fn nanny_ends_after_repeated_deaths() {
    let mut rig = NannySetup::new().start().await;
    let mut last = None;
    let status = loop {
        if let Some(status) = rig.nanny.exited() {
            break status;
        }
        let now = rig.status()["dnsmasq"]["pid"].as_i64();
        if let Some(pid) = now.filter(|_| now != last) {
            let _ = kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL);
            last = now;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(status.code(), Some(255));
    let line = rig.logs("dnsmasq ended 6 times within a minute").await;
    assert!(line.contains("killed by SIGKILL"), "{line}");
}

#[tokio::test]
async fn killed_nanny_leaves_no_dnsmasq() {
    // The kernel kills dnsmasq when its parent dies, but not if dnsmasq has changed its user. Such
    // a dnsmasq must end, too.
    let users: &[&str] = if geteuid().is_root() {
        &["--no-hosts", "--user=nobody"]
    } else {
        &["--no-hosts"]
    };
    for user in users {
        let mut rig = allow_all_users(NannySetup::new())
            .dnsmasq(*user)
            .start()
            .await;
        let dnsmasq = rig.dnsmasq();
        // dnsmasq has a child process for each open TCP connection.
        let mut connection = TcpConnection::open(rig.server()).await.unwrap();
        connection
            .send(&Query::new("www.outside.test.", "A").wire())
            .await
            .unwrap();
        connection.receive(PATIENCE).await.unwrap();
        assert!(
            group(dnsmasq) >= 2,
            "{user}: dnsmasq must have a child process"
        );
        rig.nanny.signal(Signal::SIGKILL);
        rig.nanny.wait(PATIENCE).await;
        eventually(PATIENCE, || std::future::ready(group(dnsmasq) == 0)).await;
    }
}

/// The number of running processes in the process group of dnsmasq.
fn group(leader: Pid) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let running = stats.filter(|stat| {
        let mut fields = stat
            .rsplit_once(") ")
            .map(|(_, rest)| rest)
            .unwrap_or_default()
            .split(' ');
        fields.next() != Some("Z") && fields.nth(1) == Some(&leader.to_string())
    });
    running.count()
}

#[tokio::test]
async fn unread_log_delays_no_answer() {
    let outside = Upstream::answering("192.0.2.1").await;
    let plan = NannySetup::new()
        .dnsmasq("--log-queries")
        .forwarding_to(&outside);
    let log = plan.path("log");
    nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut reader = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(&log)
        .unwrap();
    let script = "log=$1; shift; exec \"$@\" 2>\"$log\"";
    let rig = plan
        .run_by(&["sh", "-c", script, "sh", log.to_str().unwrap()])
        .spawn();
    rig.until("first.outside.test.", "192.0.2.1").await;
    // The load produces several times as many log lines as all pipes and queues can hold.
    let load = Load::start(rig.server(), 4);
    let asked = outside.count();
    eventually(PATIENCE, || {
        std::future::ready(outside.count() > asked + 8000)
    })
    .await;
    assert_eq!(load.end().await, [""; 0]);
    assert_eq!(rig.status()["dnsmasq"]["restarts"], json!({}));

    let mut text = Vec::new();
    eventually(PATIENCE, || {
        // The read does not wait for data: on an empty pipe, the read fails.
        let _ = reader.read_to_end(&mut text);
        std::future::ready(String::from_utf8_lossy(&text).contains("log lines lost"))
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn sigterm_starts_lameduck() {
    let outside = Upstream::answering("192.0.2.1").await;
    let plan = NannySetup::new()
        .flag("-lameduck=1h")
        .forwarding_to(&outside);
    let mut rig = plan.start().await;
    rig.nanny.signal(Signal::SIGTERM);
    rig.logs("stopping signal=\"SIGTERM\"").await;
    rig.until_all("192.0.2.1").await;
    // `end` sends a second SIGTERM, which ends the lameduck time.
    rig.end().await;
}

#[tokio::test]
async fn requested_statistics_and_queries_are_logged() {
    let plan = NannySetup::new()
        .flag("-logInterval=200ms")
        .flag("-v=2")
        .dnsmasq("--log-queries");
    let mut rig = plan.start().await;
    assert_eq!(rig.resolve("www.outside.test.").await, "REFUSED");
    let line = rig.logs("query[A] www.outside.test from 127.0.0.1").await;
    assert_eq!(line, "dnsmasq: query[A] www.outside.test from 127.0.0.1");
    rig.logs("dnsmasq: queries forwarded 0, queries answered locally")
        .await;
    rig.end().await;
}
