//! The limit on the number of queries that each client can send in a second.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use apiserver::RunningApiServer;
use testkit::message::Message;
use testkit::query::Query;
use tokio::net::UdpSocket;

use super::process::Kubedns;

/// The address of the client that sends too many queries. It is not 127.0.0.1: the containers of
/// the pod use that address, and kubedns does not limit their queries.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// Timeout for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many queries that a client exceeds the limit of one query a second even on a slow machine.
const FLOOD: usize = 500;

/// Sends a query from the address `client`, and returns the answer.
async fn ask_from(client: Ipv4Addr, server: SocketAddr) -> Message {
    let socket = UdpSocket::bind((client, 0)).await.unwrap();
    socket.connect(server).await.unwrap();
    let query = Query::new("none.default.svc.cluster.local.", "A").edns(1232);
    socket.send(&query.wire()).await.unwrap();

    let mut buffer = [0; 1232];
    let received = tokio::time::timeout(PATIENCE, socket.recv(&mut buffer)).await;
    let length = received.expect("an answer must arrive in time").unwrap();
    Message::parse(&buffer[..length]).unwrap()
}

#[tokio::test]
async fn only_flooding_client_is_refused() {
    let cluster = RunningApiServer::empty();
    let flags = [
        "--client-qps=1",
        "--client-burst=5",
        "--topology=alone",
        "--extended-errors",
    ];
    let mut kubedns = Kubedns::ready(&cluster, &flags).await;
    let series = "kubedns_client_rate_limited_total";
    assert_eq!(kubedns.metric(series).await, Some(0.0));

    // First the burst is answered, and then one query a second.
    let mut refused = Vec::new();
    for sent in 0..FLOOD {
        let answer = ask_from(CLIENT, kubedns.dns).await;
        match answer.rcode_name().as_str() {
            "NXDOMAIN" => {}
            rcode => {
                assert_eq!(rcode, "REFUSED");
                assert!(sent >= 5, "{sent}");
                refused.push(answer);
            }
        }
    }
    let options = &refused[0].edns.as_ref().unwrap().options;
    let expected = b"\x00\x00this client sends too many queries a second";
    assert_eq!(options, &[(15, expected.to_vec())]);
    let counted = kubedns.metric(series).await.unwrap();
    assert_eq!(counted.to_string(), refused.len().to_string());
    let line = kubedns.logs("client exceeds --client-qps").await;
    assert!(line.contains("127.0.0.2"), "{line}");

    // Other clients have their own limits, and the containers of the pod have no limit.
    assert_eq!(ask_from(OTHER, kubedns.dns).await.rcode_name(), "NXDOMAIN");
    for _ in 0..20 {
        let local = ask_from(Ipv4Addr::LOCALHOST, kubedns.dns).await;
        assert_eq!(local.rcode_name(), "NXDOMAIN");
    }
    assert_eq!(
        kubedns.logged("does not limit queries that come through dnsmasq"),
        0
    );
    kubedns.stop().await;
}

#[tokio::test]
async fn limit_behind_dnsmasq_is_logged_as_ineffective() {
    let cluster = RunningApiServer::empty();
    let mut kubedns = Kubedns::ready(&cluster, &["--client-qps=100"]).await;
    kubedns
        .logs("does not limit queries that come through dnsmasq")
        .await;
    kubedns.stop().await;
}
