//! dnsmasq dies or hangs, or the nanny does.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use testkit::eventually;

use super::load::Load;
use super::rig::{PATIENCE, Plan, at, dnsmasq_is_here, is_alive, upstream};

#[tokio::test]
async fn one_that_dies_is_started_again_with_the_same_servers() {
    if !dnsmasq_is_here() {
        return;
    }
    let outside = upstream("192.0.2.1").await;
    let upstreams = json!([at(&outside)]).to_string();
    let mut rig = Plan::new().config(&[("upstreamNameservers", &upstreams)]).start().await;
    let first = rig.dnsmasq();
    kill(first, Signal::SIGSEGV).unwrap();
    let status = rig.status_with("restart", |status| status["dnsmasq"]["restarts"]["died"] == 1).await;
    assert_eq!(status["dnsmasq"]["lastEnd"], "killed by SIGSEGV");
    rig.until("www.outside.test.", "192.0.2.1").await;
    rig.nanny.line_with("dnsmasq ended, starting it again how=\"killed by SIGSEGV\"", PATIENCE).await;
    assert_ne!(rig.dnsmasq(), first);
    rig.end().await;
}

#[tokio::test]
async fn one_that_hangs_is_killed_and_started_again() {
    if !dnsmasq_is_here() {
        return;
    }
    let outside = upstream("192.0.2.1").await;
    let upstreams = json!([at(&outside)]).to_string();
    let rig = Plan::new().config(&[("upstreamNameservers", &upstreams)]).start().await;
    let first = rig.dnsmasq();
    kill(first, Signal::SIGSTOP).unwrap();
    rig.status_with("restart", |status| status["dnsmasq"]["restarts"]["hung"] == 1).await;
    rig.until("www.outside.test.", "192.0.2.1").await;
    assert!(!is_alive(first.as_raw().into()));
    rig.end().await;
}

#[tokio::test]
async fn one_that_hangs_is_found_however_often_statistics_are_asked_for() {
    if !dnsmasq_is_here() {
        return;
    }
    let rig = Plan::new().flag("-logInterval=100ms").start().await;
    kill(rig.dnsmasq(), Signal::SIGSTOP).unwrap();
    rig.status_with("restart", |status| status["dnsmasq"]["restarts"]["hung"] == 1).await;
    rig.end().await;
}

#[tokio::test]
async fn a_busy_one_is_left_alone() {
    if !dnsmasq_is_here() {
        return;
    }
    let outside = upstream("192.0.2.1").await;
    let upstreams = json!([at(&outside)]).to_string();
    let rig = Plan::new().config(&[("upstreamNameservers", &upstreams)]).start().await;
    let load = Load::start(rig.server(), 20, &["*.outside.test."]);
    let asked = outside.count();
    eventually(PATIENCE, || std::future::ready(outside.count() > asked + 5000)).await;
    load.end().await;
    assert_eq!(rig.status()["dnsmasq"]["restarts"], json!({}));
    rig.end().await;
}

#[tokio::test]
async fn after_several_deaths_within_a_minute_the_nanny_ends() {
    if !dnsmasq_is_here() {
        return;
    }
    let mut rig = Plan::new().start().await;
    let mut last = None;
    let status = loop {
        if let Some(status) = rig.nanny.exited() {
            break status;
        }
        let now = rig.status()["dnsmasq"]["pid"].as_i64();
        if let Some(pid) = now.filter(|_| now != last) {
            let _ = kill(nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL);
            last = now;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(status.code(), Some(255));
    let line = rig.nanny.line_with("dnsmasq ended 6 times within a minute", PATIENCE).await;
    assert!(line.contains("killed by SIGKILL"), "{line}");
}

#[tokio::test]
async fn a_nanny_that_is_killed_leaves_no_dnsmasq() {
    if !dnsmasq_is_here() {
        return;
    }
    let mut rig = Plan::new().start().await;
    let dnsmasq = rig.dnsmasq();
    rig.nanny.signal(Signal::SIGKILL);
    rig.nanny.wait(PATIENCE).await;
    eventually(PATIENCE, || std::future::ready(!is_alive(dnsmasq.as_raw().into()))).await;
}

#[tokio::test]
async fn on_sigterm_it_serves_on_for_the_lameduck_time() {
    if !dnsmasq_is_here() {
        return;
    }
    let outside = upstream("192.0.2.1").await;
    let upstreams = json!([at(&outside)]).to_string();
    let plan = Plan::new().flag("-lameduck=1h").config(&[("upstreamNameservers", &upstreams)]);
    let mut rig = plan.start().await;
    rig.nanny.signal(Signal::SIGTERM);
    rig.nanny.line_with("stopping signal=\"SIGTERM\"", PATIENCE).await;
    for number in 0..20 {
        rig.until(&format!("w{number}.outside.test."), "192.0.2.1").await;
    }
    // The second signal ends the wait.
    rig.end().await;
}

#[tokio::test]
async fn statistics_and_queries_are_logged_on_request() {
    if !dnsmasq_is_here() {
        return;
    }
    let plan = Plan::new().flag("-logInterval=200ms").flag("-v=2").dnsmasq("--log-queries");
    let mut rig = plan.start().await;
    assert_eq!(rig.resolve("www.outside.test.").await, "REFUSED");
    let line = rig.nanny.line_with("query[A] www.outside.test from 127.0.0.1", PATIENCE).await;
    assert_eq!(line, "dnsmasq: query[A] www.outside.test from 127.0.0.1");
    rig.nanny.line_with("dnsmasq: queries forwarded 0, queries answered locally", PATIENCE).await;
    rig.end().await;
}
