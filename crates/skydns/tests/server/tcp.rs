//! TCP connections: pipelining, queries in several segments, and clients that are slow, greedy or
//! silent.

use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use testkit::client::{self, TcpConnection};
use testkit::dig::show;
use testkit::eventually;
use testkit::query::Query;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use super::fixed::{Fixed, start};
use super::{TIMEOUT, header_lines, request_count, upstream_after};

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_queries_are_answered_when_ready() {
    let upstream = upstream_after(Duration::from_millis(300)).await;
    let server = start(Fixed::new(&[upstream.addr()]));
    let mut connection = TcpConnection::open(server.address)
        .await
        .expect("connected");
    let slow = Query::new("www.outside.test.", "A").id(1).wire();
    let fast = Query::new("web.apps.svc.cluster.local.", "A").id(2).wire();
    connection.send(&slow).await.expect("sent");
    connection.send(&fast).await.expect("sent");
    let first = connection.receive(TIMEOUT).await.expect("an answer");
    assert_eq!(
        first.get(..2),
        Some(&[0, 2][..]),
        "the fast one does not wait for the slow one"
    );
    // The client closes its sending side, and still receives pending answers.
    connection.finish_sending().await.expect("closed");
    let second = connection.receive(TIMEOUT).await.expect("an answer");
    assert_eq!(second.get(..2), Some(&[0, 1][..]));
    assert_eq!(
        header_lines(&show(&second)),
        ";; NOERROR, flags: qr rd ra\n;www.outside.test. IN A"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn query_in_pieces_is_answered() {
    let server = start(Fixed::new(&[]));
    let mut connection = TcpConnection::open(server.address)
        .await
        .expect("connected");
    let query = Query::new("web.apps.svc.cluster.local.", "A").id(7).wire();
    let length = u16::try_from(query.len()).expect("short").to_be_bytes();
    for piece in [&length[..1], &length[1..], &query[..5], &query[5..]] {
        connection.send_raw(piece).await.expect("sent");
        tokio::task::yield_now().await;
    }
    let answer = connection.receive(TIMEOUT).await.expect("an answer");
    assert_eq!(answer.get(..2), Some(&[0, 7][..]));
    server.stop().await;
}

/// Queries of more than 4096 octets are rejected. Buffers of 64 KiB for thousands of connections
/// would exceed the memory of a pod.
#[tokio::test(flavor = "multi_thread")]
async fn overlong_message_closes_connection() {
    let server = start(Fixed::new(&[]));
    let mut connection = TcpConnection::open(server.address)
        .await
        .expect("connected");
    let query = Query::new("web.apps.svc.cluster.local.", "A").id(7).wire();
    connection.send(&query).await.expect("sent");
    let longest = [query.as_slice(), &[0; 4096]].concat();
    connection
        .send(longest.get(..4096).expect("more than that"))
        .await
        .expect("sent");
    for which in ["the first", "the longest"] {
        let answer = connection
            .receive(TIMEOUT)
            .await
            .unwrap_or_else(|error| panic!("{which}: {error}"));
        assert_eq!(answer.get(..2), Some(&[0, 7][..]), "{which}");
    }
    connection
        .send_raw(&4097_u16.to_be_bytes())
        .await
        .expect("sent");
    let closed = connection.receive(TIMEOUT).await;
    assert!(
        matches!(closed, Err(client::AskError::Closed)),
        "{closed:?}"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_connections_leave_room_for_others() {
    let server = start(Fixed::new(&[]));
    let mut idle = Vec::new();
    for _ in 0..300 {
        let mut connection = TcpConnection::open(server.address)
            .await
            .expect("connected");
        // The client sends only the first octet of the length field.
        connection.send_raw(&[0]).await.expect("sent");
        idle.push(connection);
    }
    let answer = client::ask_tcp(
        server.address,
        &Query::new("web.apps.svc.cluster.local.", "A"),
    )
    .await;
    assert_eq!(answer.answer_data("A"), ["10.96.0.9"]);
    // The server closes all stalled connections.
    for mut connection in idle {
        let closed = connection.receive(TIMEOUT).await;
        assert!(
            matches!(closed, Err(client::AskError::Closed)),
            "{closed:?}"
        );
    }
    server.stop().await;
}

/// A query must arrive completely before a deadline, even if its octets keep arriving.
#[tokio::test(start_paused = true)]
async fn trickling_query_closes_connection() {
    let server = start(Fixed::new(&[]));
    let query = Query::new("web.apps.svc.cluster.local.", "A").wire();
    let length = u16::try_from(query.len()).expect("short").to_be_bytes();
    let mut connection = TcpConnection::open(server.address)
        .await
        .expect("connected");
    let mut sent = 0;
    for octet in [&length[..], &query[..10]].concat() {
        if connection.send_raw(&[octet]).await.is_err() {
            break;
        }
        sent += 1;
        match connection.receive(Duration::from_millis(3500)).await {
            Err(client::AskError::Timeout(_)) => {}
            closed => {
                assert!(
                    matches!(closed, Err(client::AskError::Closed)),
                    "{closed:?}"
                );
                break;
            }
        }
    }
    assert!(sent < 6, "it was let send {sent} octets in 3.5 s each");
}

/// A client reads its answers slowly, but reads each answer before the server's timeout.
#[tokio::test(flavor = "multi_thread")]
async fn slow_client_does_not_delay_stop() {
    /// Small kernel buffers make the server wait for the client.
    const KERNEL: u32 = 32 * 1024;
    const SEGMENT: u32 = 536;
    // With a short name, the server reads more queries at once.
    let server = start(Fixed::new(&[]).with_big_answer_at(&["b"]));
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(KERNEL).expect("set");
    setsockopt(&socket, sockopt::TcpMaxSeg, &SEGMENT).expect("set");
    let mut client = socket.connect(server.address).await.expect("connected");
    let query = Query::new("b.cluster.local.", "A").wire();
    let framed = [
        &u16::try_from(query.len()).expect("short").to_be_bytes()[..],
        &query,
    ]
    .concat();
    client.write_all(&framed.repeat(60)).await.expect("sent");
    let slow = async {
        // 655 octets every 10 ms: one answer of 64 KiB each second.
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        let mut buffer = [0; 655];
        while client.read_exact(&mut buffer).await.is_ok() {
            ticks.tick().await;
        }
        std::future::pending::<()>().await;
    };
    let stopped = async {
        eventually(TIMEOUT, || async {
            request_count(&server.metrics, "auth") > Some(1.0)
        })
        .await;
        let told = Instant::now();
        server.stop().await;
        told.elapsed()
    };
    tokio::select! {
        () = slow => {}
        took = stopped => assert!(took < Duration::from_millis(5500), "it took {took:?}"),
    }
}
