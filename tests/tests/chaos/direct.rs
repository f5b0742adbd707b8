//! Faults, many TCP clients and new Services in the direct topology. In this topology kubedns
//! receives the clients' queries, and forwards queries for external names to dnsmasq. Answers for
//! cluster names depend only on kubedns.

use std::time::{Duration, Instant};

use testkit::client::{self, TcpConnection};
use testkit::message::Message;
use testkit::query::Query;
use tests::chaos::{Mood, Rig, Topology};
use tests::e2e::{PATIENCE, get};
use tests::lab::in_a_line;
use tests::steady::Steady;

use super::{RATE, WHILE, add_service, kill_and_freeze_dnsmasq};

/// Number of concurrent TCP connections: ten times the limit of dnsmasq.
const CONNECTIONS: usize = 200;

/// Number of Services that are queried before they exist.
const SERVICES: u8 = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dnsmasq_and_upstream_faults_lose_no_query() {
    let rig = Rig::start(Topology::Direct, &[]).await;
    let steady = Steady::start(rig.questions(), RATE);
    steady.answered(WHILE).await;

    kill_and_freeze_dnsmasq(&rig, &steady, &["outside"]).await;

    let excuse = steady.excuse(&["outside"], "the upstream was silent");
    rig.upstream_behaviour.set_mood(Mood::Silent);
    steady.answered_on("cluster", WHILE * 4).await;
    rig.upstream_behaviour.set_mood(Mood::Honest);
    excuse.ends().await;

    let report = steady.stop().await;
    report.check("direct: dnsmasq SIGKILL, SIGSTOP, upstream silent");
    let lost = report.lines["outside"].excused_lost;
    assert_eq!(
        lost, 0,
        "kubedns must answer every query, at worst with SERVFAIL: {report}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tcp_clients_are_served() {
    let rig = Rig::start(Topology::Direct, &[]).await;
    let steady = Steady::start(rig.questions(), RATE);
    let server = ([127, 0, 0, 1], rig.pod.ports.dns).into();
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        open.push(TcpConnection::open(server).await.unwrap());
    }
    for round in 0..3 {
        for (number, connection) in open.iter_mut().enumerate() {
            let name = if number % 2 == 0 {
                "web-1.shop.svc.cluster.local."
            } else {
                "host-1.outside.test."
            };
            connection
                .send(&Query::new(name, "A").wire())
                .await
                .unwrap();
        }
        for (number, connection) in open.iter_mut().enumerate() {
            let answer =
                Message::parse(&connection.receive(client::PATIENCE).await.unwrap()).unwrap();
            let right = if number % 2 == 0 {
                "NOERROR 10.96.1.1"
            } else {
                "NOERROR 198.51.100.1"
            };
            assert_eq!(in_a_line(&answer), right, "round {round}");
        }
    }
    steady.answered(WHILE).await;
    drop(open);
    steady.stop().await.check("direct: 200 TCP clients at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_service_is_resolved_after_nxdomain() {
    let rig = Rig::start(Topology::Direct, &[]).await;
    let server = ([127, 0, 0, 1], rig.pod.ports.dns).into();
    let mut delays = Vec::new();
    for number in 0..SERVICES {
        let (name, address) = (format!("new-{number}"), format!("10.96.7.{number}"));
        let query = Query::new(&format!("{name}.shop.svc.cluster.local."), "A");
        let ask = || async { in_a_line(&client::ask(server, &query).await) };
        assert_eq!(ask().await, "NXDOMAIN");
        let begun = Instant::now();
        add_service(&rig, &name, &address);
        let right = format!("NOERROR {address}");
        while ask().await != right {
            assert!(
                begun.elapsed() < PATIENCE,
                "{name} still does not have its address"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        delays.push(begun.elapsed());
    }
    for (name, way) in [
        (
            "new-0.shop.svc.cluster.local.",
            "path       pods ask kubedns itself (port 53)".to_owned(),
        ),
        (
            "host-1.outside.test.",
            format!(
                "path       pods ask kubedns itself (port 53), and kubedns asks 127.0.0.1:{}",
                rig.pod.ports.dnsmasq
            ),
        ),
    ] {
        let path = format!("/explain?name={name}&type=A&format=text");
        let text = get(rig.pod.ports.readiness, &path).await.unwrap().body;
        let line = text.lines().find(|line| line.starts_with("path "));
        assert_eq!(line, Some(way.as_str()), "{text}");
    }
    delays.sort_unstable();
    let [median, most] = [delays[delays.len() / 2], delays[delays.len() - 1]];
    println!(
        "direct: time from the creation of a Service to the first answer with its address, after \
         NXDOMAIN: median {median:.1?}, maximum {most:.1?} ({SERVICES} Services)"
    );
}
