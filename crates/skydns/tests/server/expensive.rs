//! Expensive queries of one host wait in a queue, and do not delay the queries of other hosts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testkit::client::{self, TcpConnection};
use testkit::dig::show_sorted;
use testkit::eventually;
use testkit::query::Query;
use tokio::net::UdpSocket;

use super::fixed::{Fixed, RunningServer, start};
use super::{TIMEOUT, answer_over_udp, exchange_tcp, metric, next_datagram};

/// The source address of the flood.
const FLOODER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Number of expensive queries in a flood, unless a test sends more. Each query takes 20 ms.
const FLOOD: u16 = 200;
/// The other clients must have their answers before this number of expensive queries has been
/// looked up.
const FEW: usize = 40;

/// A server with an expensive name, and the number of lookups of this name.
fn server_with_expensive_name() -> (RunningServer, Arc<AtomicUsize>) {
    let done = Arc::default();
    (
        start(Fixed::new(&[]).laborious(&["svc", "apps", "all"], &done)),
        done,
    )
}

fn expensive_query(id: u16) -> Vec<u8> {
    Query::new("all.apps.svc.cluster.local.", "A").id(id).wire()
}

/// Asserts that other clients are answered while the flood waits.
async fn assert_others_are_answered(server: SocketAddr, done: &AtomicUsize) {
    let cheap = Query::new("web.apps.svc.cluster.local.", "A");
    for _ in 0..5 {
        let text = answer_over_udp(server, &cheap).await;
        assert!(text.contains("10.96.0.9"), "{text}");
        let addresses = client::ask_tcp(server, &cheap).await.answer_data("A");
        assert_eq!(addresses, ["10.96.0.9"]);
    }
    let done = done.load(Ordering::SeqCst);
    assert!(
        done < FEW,
        "{done} queries of the flood were looked up first"
    );
}

/// Sends expensive queries over UDP.
async fn flood_over_udp(server: SocketAddr, queries: u16) -> UdpSocket {
    let flood = UdpSocket::bind((FLOODER, 0))
        .await
        .expect("the socket must be bound");
    for number in 0..queries {
        let sent = flood.send_to(&expensive_query(number), server).await;
        sent.expect("the query must be sent");
    }
    flood
}

/// Opens the connections of a flood and sends its queries.
async fn flood_over_tcp(server: SocketAddr, connections: u16) -> Vec<TcpConnection> {
    let mut flood = Vec::new();
    for _ in 0..connections {
        let opened = TcpConnection::open_from(FLOODER, server).await;
        let mut connection = opened.expect("the server must accept the connection");
        for number in 0..FLOOD / connections {
            let sent = connection.send(&expensive_query(number)).await;
            sent.expect("the query must be sent");
        }
        flood.push(connection);
    }
    flood
}

/// Asserts that an expensive query was answered.
fn assert_expensive_query_is_answered(answer: &[u8]) {
    let text = show_sorted(answer);
    assert!(text.contains("10.0.0.1"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_flood_does_not_delay_other_clients() {
    for connections in [4, 100] {
        let (server, done) = server_with_expensive_name();
        let mut flood = flood_over_tcp(server.address, connections).await;
        assert_others_are_answered(server.address, &done).await;
        let first = flood[0].receive(TIMEOUT).await;
        assert_expensive_query_is_answered(&first.expect("an answer must arrive"));
        drop(flood);
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn udp_flood_does_not_delay_other_clients() {
    let (server, done) = server_with_expensive_name();
    let flood = flood_over_udp(server.address, FLOOD).await;
    assert_others_are_answered(server.address, &done).await;
    assert_expensive_query_is_answered(&next_datagram(&flood).await);
    server.stop().await;
}

/// Every query of a flood is answered. Queries beyond the limit for one host get SERVFAIL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_is_answered_completely() {
    let (server, _) = server_with_expensive_name();
    // The flood has more queries than the queue accepts from one host. The answers still fit into
    // the client's receive buffer.
    let sent = 280;
    let flood = flood_over_udp(server.address, sent).await;
    let mut good = 0_u16;
    let mut refused = 0_u16;
    while good + refused < sent {
        let text = show_sorted(&next_datagram(&flood).await);
        if text.starts_with(";; NOERROR") {
            good += 1;
        } else {
            assert!(text.starts_with(";; SERVFAIL"), "{text}");
            refused += 1;
        }
    }
    assert!(
        good > 0 && refused > 0,
        "{good} queries got NOERROR, and {refused} got SERVFAIL"
    );
    eventually(TIMEOUT, || async {
        let counted = ["answered", "refused"].map(|result| {
            let series = format!("kubedns_expensive_queries_total{{result=\"{result}\"}}");
            metric(&server.metrics, &series)
        });
        let is_complete = counted == [good, refused].map(|count| Some(count.into()));
        is_complete.then_some(()).ok_or(counted)
    })
    .await;
    server.stop().await;
}

/// A flood from one host does not delay an expensive query of another host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expensive_query_of_other_host_does_not_wait_for_flood() {
    let (server, done) = server_with_expensive_name();
    let flood = flood_over_tcp(server.address, 50).await;
    let before = eventually(TIMEOUT, || async {
        Some(done.load(Ordering::SeqCst)).filter(|done| *done > 0)
    })
    .await;
    assert_expensive_query_is_answered(&exchange_tcp(server.address, &expensive_query(7)).await);
    let meanwhile = done.load(Ordering::SeqCst) - before;
    assert!(
        meanwhile < 10,
        "{meanwhile} queries of the flood were looked up first"
    );
    drop(flood);
    tokio::time::timeout(Duration::from_secs(20), server.stop())
        .await
        .expect("the server must stop in time");
}

/// With autopath, the server itself looks up the names that the client's search list gives. If the
/// server reaches an expensive name, the query needs a place in the queue. If the client's host
/// already has the maximum number of queries in the queue, the query gets SERVFAIL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searched_name_needs_place_in_queue() {
    // Maximum number of queries of one host in the queue.
    const PLACES: u16 = 256;
    let done = Arc::default();
    let pod = IpAddr::V4(FLOODER);
    let view = Fixed::new(&[])
        .autopath(&[], &[(pod, "apps")])
        .laborious(&["svc", "slow"], &done);
    let server = start(view);
    let flood = UdpSocket::bind((FLOODER, 0))
        .await
        .expect("the socket must be bound");
    let slow = |id| Query::new("slow.svc.cluster.local.", "A").id(id).wire();
    for id in 0..PLACES + 50 {
        flood
            .send_to(&slow(id), server.address)
            .await
            .expect("the query must be sent");
    }

    // The second name that the search list gives is the expensive name of the flood.
    let searched = Query::new("slow.apps.svc.cluster.local.", "A")
        .id(u16::MAX)
        .edns(1232)
        .wire();
    flood
        .send_to(&searched, server.address)
        .await
        .expect("the query must be sent");
    let mut answers_before = 0;
    let answer = loop {
        let answer = next_datagram(&flood).await;
        if answer[..2] == u16::MAX.to_be_bytes() {
            break show_sorted(&answer);
        }
        answers_before += 1;
    };

    assert!(answer.starts_with(";; SERVFAIL"), "{answer}");
    assert!(
        answers_before < PLACES,
        "{answers_before} queries of the flood were answered first"
    );
    server.stop().await;
}
