//! Stub domains whose servers are given by name, and servers that forward back to dnsmasq.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::client;
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{self, Asked, Reaction, Upstream};

use super::rig::{NannyRig, NannySetup, at, only, routes};

/// A server in place of kubedns. While `knows` is true, every name has the A record 127.0.0.1.
/// Otherwise all queries are refused.
async fn kubedns(knows: Arc<AtomicBool>) -> Upstream {
    Upstream::start(move |asked: &Asked| {
        let reply = Reply::to(&asked.packet);
        let name = asked.name();
        match (asked.rtype().as_str(), knows.load(Ordering::Relaxed)) {
            ("A", true) => Reaction::from(reply.answer(&format!("{name} 30 IN A 127.0.0.1"))),
            (_, true) => reply.into(),
            (_, false) => reply.rcode("REFUSED").into(),
        }
    })
    .await
}

#[tokio::test]
async fn unresolved_stub_server_does_not_leak_queries() {
    let knows = Arc::new(AtomicBool::new(false));
    let kubedns = kubedns(Arc::clone(&knows)).await;
    let stub = Upstream::answering("192.0.2.11").await;
    let outside = Upstream::answering("192.0.2.1").await;
    let name = format!("ns.apps.svc.corp.test:{}", stub.addr().port());
    let config = [
        ("stubDomains", json!({"acme.test": [name]}).to_string()),
        ("upstreamNameservers", only(&outside)),
    ];
    // The nanny takes the cluster domain from the argument that routes a domain to kubedns.
    let server = at(&kubedns).replace(':', "#");
    let plan = NannySetup::new()
        .flag(format!("-kubednsServer={}", at(&kubedns)))
        .dnsmasq(format!("--server=/corp.test/{server}"));
    let rig = plan.config(&config).start().await;

    rig.until("www.acme.test.", "SERVFAIL").await;
    let answer = client::ask_tcp(rig.server(), &Query::new("www.acme.test.", "A")).await;
    assert_eq!(answer.rcode_name(), "SERVFAIL", "the RCODE over TCP");
    let unresolved = |names| move |status: &Value| status["routes"]["unresolved"] == names;
    rig.status_with("the name", unresolved(json!(["ns.apps.svc.corp.test"])))
        .await;
    rig.until("www.outside.test.", "192.0.2.1").await;
    let asked = outside.count_of("www.acme.test.", "A");
    assert_eq!(
        asked, 0,
        "the upstream servers must not get names of a stub domain"
    );

    knows.store(true, Ordering::Relaxed);
    rig.until("www.acme.test.", "192.0.2.11").await;
    rig.status_with("no name", unresolved(json!([]))).await;
    assert_eq!(outside.count_of("www.acme.test.", "A"), 0);
    rig.end().await;
}

/// In this test, dnsmasq's configuration file already has a `servers-file`, so the nanny cannot
/// give dnsmasq another one. The nanny passes the servers as arguments, and dnsmasq gets new
/// servers only by a restart. With `-restartDnsmasq=false`, the nanny restarts dnsmasq for new
/// servers only if a stub domain without a usable server gets one.
#[tokio::test]
async fn stub_domain_gets_resolved_server_despite_forbidden_restarts() {
    let knows = Arc::new(AtomicBool::new(false));
    let kubedns = kubedns(Arc::clone(&knows)).await;
    let stub = Upstream::answering("192.0.2.11").await;
    let name = format!("ns.apps.svc.cluster.local:{}", stub.addr().port());
    let plan = NannySetup::new()
        .with_own_servers_file()
        .flag("-restartDnsmasq=false");
    let plan = plan.flag(format!("-kubednsServer={}", at(&kubedns)));
    let stub_domains = json!({"acme.test": [name]}).to_string();
    let config = [("stubDomains", stub_domains)];
    let rig = plan.config(&config).start().await;
    rig.until("www.acme.test.", "SERVFAIL").await;
    knows.store(true, Ordering::Relaxed);
    rig.until("www.acme.test.", "192.0.2.11").await;
    rig.end().await;
}

#[tokio::test]
async fn dnsmasq_does_not_forward_to_itself() {
    let outside = Upstream::answering("192.0.2.1").await;
    let plan = NannySetup::new();
    let own = plan.server().to_string();
    let config = json!([own, at(&outside)]).to_string();
    let stubs = json!({"acme.test": [own]}).to_string();
    let mut rig = plan
        .config(&[("upstreamNameservers", &config), ("stubDomains", &stubs)])
        .start()
        .await;
    assert_eq!(rig.status()["routes"]["loops"], json!([own]));
    rig.logs("this server is dnsmasq itself").await;
    rig.until_all("192.0.2.1").await;
    rig.until("www.acme.test.", "SERVFAIL").await;
    rig.end().await;
}

#[tokio::test]
async fn looping_server_is_found_and_omitted() {
    let outside = Upstream::answering("192.0.2.1").await;
    let plan = NannySetup::new();
    let round = start_forwarder(&plan, &Arc::new(AtomicBool::new(true))).await;
    let both = json!([at(&round), at(&outside)]).to_string();
    let mut rig: NannyRig = plan.config(&[("upstreamNameservers", &both)]).start().await;
    rig.logs("upstream server forwards to dnsmasq").await;
    rig.status_with("loop", |status| {
        status["routes"]["loops"] == json!([at(&round)])
            && status["routes"]["upstreams"] == json!([at(&outside)])
    })
    .await;
    round.forget();
    rig.until_all("192.0.2.1").await;
    let has_asked = round.asked().iter().any(|asked| asked.rtype() == "A");
    assert!(
        !has_asked,
        "the looping server must get only probes for loops"
    );

    rig.forward_to(&outside);
    rig.status_with("no loop", |status| status["routes"]["loops"] == json!([]))
        .await;
    rig.end().await;
}

/// The answer of `server` to the query, or silence if no answer comes within 100 ms, as in a loop.
fn relayed(asked: &Asked, server: SocketAddr) -> Reaction {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let patience = Duration::from_millis(100);
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.send_to(&asked.packet, server).unwrap();

    let mut reply = vec![0; 4096];
    match socket.recv(&mut reply) {
        Ok(length) => Reaction::send(&reply[..length]),
        Err(_) => Reaction::silence(),
    }
}

/// An upstream that forwards queries back to the dnsmasq of `setup` while `loops` is true, and
/// otherwise answers them.
async fn start_forwarder(setup: &NannySetup, loops: &Arc<AtomicBool>) -> Upstream {
    let dnsmasq = setup.server();
    let loops = Arc::clone(loops);
    let answer = upstream::answering("192.0.2.1");
    Upstream::start_with_loop_probes(move |asked: &Asked| {
        if loops.load(Ordering::Relaxed) {
            relayed(asked, dnsmasq)
        } else {
            answer(asked)
        }
    })
    .await
}

/// Checks that the nanny notices a loop through `forwarder`, and later the end of the loop.
/// `forwarder` is the only upstream of the nanny.
async fn check_later_loop(mut rig: NannyRig, forwarder: &Upstream, loops: &AtomicBool) {
    rig.until_all("192.0.2.1").await;
    assert_eq!(rig.status()["routes"]["loops"], json!([]));

    loops.store(true, Ordering::Relaxed);
    rig.logs("upstream server forwards to dnsmasq").await;
    rig.status_with("loop", |status| {
        status["routes"]["loops"] == json!([at(forwarder)])
    })
    .await;
    rig.until("www.later.test.", "REFUSED").await;

    loops.store(false, Ordering::Relaxed);
    rig.status_with("no loop", |status| status["routes"]["loops"] == json!([]))
        .await;
    rig.until_all("192.0.2.1").await;
    rig.end().await;
}

#[tokio::test]
async fn later_loop_is_found_and_ends() {
    let loops = Arc::new(AtomicBool::new(false));
    let setup = NannySetup::new();
    let forwarder = start_forwarder(&setup, &loops).await;
    let rig = setup.forwarding_to(&forwarder).start().await;
    check_later_loop(rig, &forwarder, &loops).await;
}

/// Without a servers file, the nanny restarts dnsmasq to remove the server in the loop.
#[tokio::test]
async fn later_loop_without_servers_file_is_found_and_ends() {
    let loops = Arc::new(AtomicBool::new(false));
    // The script may print `--servers-file`, and the nanny cannot know this. So the nanny passes
    // the servers as arguments, not in a servers file.
    let setup = NannySetup::new().dnsmasq("--conf-script=/bin/true");
    let forwarder = start_forwarder(&setup, &loops).await;
    let rig = setup.forwarding_to(&forwarder).start().await;
    check_later_loop(rig, &forwarder, &loops).await;
}

#[tokio::test]
async fn later_loop_of_stub_domain_is_found_and_ends() {
    let loops = Arc::new(AtomicBool::new(false));
    let setup = NannySetup::new();
    let outside = Upstream::answering("192.0.2.2").await;
    let forwarder = start_forwarder(&setup, &loops).await;
    let config = routes(&outside, &[("acme.example", &forwarder)]);
    let mut rig: NannyRig = setup.config(&config).start().await;
    rig.until("www.acme.example.", "192.0.2.1").await;
    assert_eq!(rig.status()["routes"]["loops"], json!([]));

    loops.store(true, Ordering::Relaxed);
    rig.logs("server of stub domain forwards to dnsmasq").await;
    rig.status_with("loop", |status| {
        status["routes"]["loops"] == json!([at(&forwarder)])
    })
    .await;
    rig.until("www.later.acme.example.", "SERVFAIL").await;
    rig.until("www.later.test.", "192.0.2.2").await;

    loops.store(false, Ordering::Relaxed);
    rig.status_with("no loop", |status| status["routes"]["loops"] == json!([]))
        .await;
    rig.until("www.again.acme.example.", "192.0.2.1").await;
    rig.end().await;
}

#[tokio::test]
async fn later_loop_through_server_argument_is_found_and_ends() {
    let loops = Arc::new(AtomicBool::new(false));
    let setup = NannySetup::new();
    let forwarder = start_forwarder(&setup, &loops).await;
    let server = at(&forwarder).replace(':', "#");
    let rig = setup.dnsmasq(format!("--server={server}")).start().await;
    check_later_loop(rig, &forwarder, &loops).await;
}
