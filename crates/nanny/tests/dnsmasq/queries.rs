//! Followers of dnsmasq's queries: dnsmasq is restarted for them, and only for them.

use std::net::SocketAddr;

use daemon::http::{Following, follow};
use querylog::Line;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Upstream};

use super::rig::{PATIENCE, Plan, Rig};

async fn upstream() -> Upstream {
    Upstream::start(|asked: &Asked| {
        let reply = Reply::to(&asked.packet);
        match asked.name().as_str() {
            "www.example.test." => reply.answer("www.example.test. 60 IN A 192.0.2.1").into(),
            _ => reply.rcode("NXDOMAIN").into(),
        }
    })
    .await
}

async fn tap(status: SocketAddr, target: &str) -> Following {
    follow(&status.to_string(), target, PATIENCE).await.unwrap().unwrap()
}

/// The next line that matches.
async fn line(following: &mut Following) -> String {
    let line = tokio::time::timeout(PATIENCE, following.line(4096)).await.unwrap().unwrap().unwrap();
    let Line { client, name, qtype, rcode, .. } = serde_json::from_str(&line).unwrap();
    format!("{client} {name} {qtype} {rcode}")
}

async fn restarted(rig: &Rig, times: u64) {
    rig.status_with("restarts", |status| {
        status["dnsmasq"]["up"] == true
            && status["dnsmasq"]["restarts"]["configuration"].as_u64().unwrap_or(0) == times
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dnsmasq_is_restarted_while_somebody_follows_and_clients_show() {
    let upstream = upstream().await;
    let (plan, status) = Plan::new().forwarding_to(&upstream).with_status_page();
    let rig = plan.start().await;
    restarted(&rig, 0).await;
    let mut following = tap(status, "/tap?name=*.example.test&seconds=600").await;
    restarted(&rig, 1).await;
    for (name, rcode) in
        [("www.example.test", "NOERROR"), ("www.example.test", "NOERROR"), ("no.example.test", "NXDOMAIN")]
    {
        rig.resolve(name).await;
        assert_eq!(line(&mut following).await, format!("127.0.0.1 {name}. A {rcode}"));
    }
    drop(following);
    restarted(&rig, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_dnsmasq_logs_queries_anyway_nothing_is_restarted() {
    let upstream = upstream().await;
    let (plan, status) = Plan::new().forwarding_to(&upstream).with_status_page();
    let rig = plan.flag("-restartDnsmasq=false").dnsmasq("--log-queries=extra").start().await;
    let mut following = tap(status, "/tap?name=*.example.test").await;
    rig.resolve("www.example.test").await;
    assert_eq!(line(&mut following).await, "127.0.0.1 www.example.test. A NOERROR");
    drop(following);
    restarted(&rig, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dnsmasq_that_is_not_to_be_restarted_is_not() {
    let (plan, status) = Plan::new().flag("-restartDnsmasq=false").with_status_page();
    let rig = plan.start().await;
    let refused = follow(&status.to_string(), "/tap", PATIENCE).await.unwrap().unwrap_err();
    let body = String::from_utf8(refused.body).unwrap();
    let expected = "dnsmasq would have to be restarted, and -restartDnsmasq is false\n";
    assert_eq!((refused.status, body.as_str()), (503, expected));
    restarted(&rig, 0).await;
}
