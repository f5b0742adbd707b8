//! Half-open TCP connections: the client sends a SYN, but never the final ACK. The kernel keeps
//! such connections for a while. Other clients must be able to connect, even if these connections
//! fill the backlog that kubedns sets.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use testkit::eventually;
use tests::e2e::PATIENCE;
use tests::pod::{means, netns};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use super::floods::{CONNECTIONS, at_rest, bounded, raise_descriptor_limit, usage};

/// The state of a half-open connection in `/proc/net/tcp`.
const SYN_RECV: &str = "03";

/// The number of half-open connections that the test waits for. It is below [`CONNECTIONS`]: once
/// the backlog is full, the kernel uses SYN cookies and keeps no state.
const FLOOD: usize = 200;

#[test]
fn half_open_connections_exclude_no_client() {
    if means::are_there() {
        netns::run_in_a_new_one(|| {
            // The packet filter drops all packets to the clients, so a SYN-ACK gets neither an ACK
            // nor a RST.
            let rule = "--append INPUT --destination 127.9.0.0/16 --jump DROP";
            let status = Command::new("iptables").args(rule.split(' ')).status();
            assert!(status.unwrap().success(), "iptables {rule}");
            netns::runtime().block_on(flood());
        });
    }
}

async fn flood() {
    raise_descriptor_limit();
    let (mut lab, steady, before) = at_rest().await;
    let mut dialling = JoinSet::new();
    for number in 0..u16::try_from(CONNECTIONS).unwrap() {
        dialling.spawn(dial(number, lab.dns()));
    }
    let most = eventually(PATIENCE, || async {
        let now = half_open(lab.dns().port());
        if now >= FLOOD { Ok(now) } else { Err(now) }
    })
    .await;
    println!("{most} connections are half open");
    // The steady client opens a new connection for each TCP query.
    steady.answered(100).await;
    let during = usage(&mut lab);
    assert!(
        during.descriptors < before.descriptors + 50,
        "half-open connections have descriptors: {during:?}"
    );
    bounded(
        &mut lab,
        "SYNs of 2,000 clients that send no final ACK",
        before,
    );
    assert!(
        dialling.try_join_next().is_none(),
        "a connection was established"
    );
    dialling.shutdown().await;
    steady.answered(20).await;
    steady
        .stop()
        .await
        .check("kubedns under the SYNs of 2,000 clients that send no final ACK");
}

/// Sends a SYN and its retransmissions from the client with this number.
async fn dial(number: u16, server: SocketAddr) {
    let [high, low] = number.to_be_bytes();
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind((Ipv4Addr::new(127, 9, high, low), 0).into())
        .unwrap();
    let _ = socket.connect(server).await;
}

/// The number of half-open connections to a port of this network namespace.
fn half_open(port: u16) -> usize {
    let table = fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let local = format!(":{port:04X}");
    let is_ours = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        words
            .next()
            .is_some_and(|address| address.ends_with(&local))
            && words.nth(1) == Some(SYN_RECV)
    };
    table.lines().filter(is_ours).count()
}
