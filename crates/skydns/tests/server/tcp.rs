//! TCP connections: pipelining, queries in several segments, overlong queries, and slow or stalled
//! clients.

use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use testkit::client::{self, AskError};
use testkit::dig::show;
use testkit::eventually;
use testkit::query::Query;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use wire::frame_message;

use super::fixed::{Fixed, start};
use super::{TIMEOUT, connect, request_count, upstream_after};

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_queries_are_answered_when_ready() {
    let upstream = upstream_after(Duration::from_millis(300)).await;
    let server = start(Fixed::new(&[upstream.addr()]));
    let mut connection = connect(server.address).await;
    let slow = Query::new("www.outside.test.", "A").id(1).wire();
    let fast = Query::new("web.apps.svc.cluster.local.", "A").id(2).wire();
    connection
        .send(&slow)
        .await
        .expect("the query must be sent");
    connection
        .send(&fast)
        .await
        .expect("the query must be sent");
    let first = connection
        .receive(TIMEOUT)
        .await
        .expect("an answer must arrive");
    assert_eq!(
        first[..2],
        [0, 2],
        "the fast query must not wait for the slow query"
    );
    // The client closes its sending side, and still receives pending answers.
    connection
        .finish_sending()
        .await
        .expect("the sending side must close");
    let second = connection
        .receive(TIMEOUT)
        .await
        .expect("an answer must arrive");
    assert_eq!(second[..2], [0, 1]);
    let text = show(&second);
    let expected = ";; NOERROR, flags: qr rd ra\n;www.outside.test. IN A\n";
    assert!(text.starts_with(expected), "{text}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn query_in_pieces_is_answered() {
    let server = start(Fixed::new(&[]));
    let mut connection = connect(server.address).await;
    let query = Query::new("web.apps.svc.cluster.local.", "A").id(7).wire();
    let framed = frame_message(&query);
    for piece in [&framed[..1], &framed[1..2], &framed[2..7], &framed[7..]] {
        connection
            .send_raw(piece)
            .await
            .expect("the octets must be sent");
        tokio::task::yield_now().await;
    }
    let answer = connection
        .receive(TIMEOUT)
        .await
        .expect("an answer must arrive");
    assert_eq!(answer[..2], [0, 7]);
    server.stop().await;
}

/// Queries of more than 4096 octets are rejected. Buffers of 64 KiB for thousands of connections
/// would exceed the memory of a pod.
#[tokio::test(flavor = "multi_thread")]
async fn overlong_message_closes_connection() {
    let server = start(Fixed::new(&[]));
    let mut connection = connect(server.address).await;
    let query = Query::new("web.apps.svc.cluster.local.", "A").id(7).wire();
    connection
        .send(&query)
        .await
        .expect("the query must be sent");
    let longest = [query.as_slice(), &vec![0; 4096 - query.len()]].concat();
    connection
        .send(&longest)
        .await
        .expect("the query must be sent");
    for which in ["the first", "the longest"] {
        let answer = connection.receive(TIMEOUT).await;
        let answer = answer.unwrap_or_else(|error| panic!("{which}: {error}"));
        assert_eq!(answer[..2], [0, 7], "{which}");
    }
    let too_long = 4097_u16.to_be_bytes();
    connection
        .send_raw(&too_long)
        .await
        .expect("the octets must be sent");
    assert_closed(&connection.receive(TIMEOUT).await);
    server.stop().await;
}

fn assert_closed(received: &Result<Vec<u8>, AskError>) {
    assert!(matches!(received, Err(AskError::Closed)), "{received:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_connections_block_no_query_and_are_closed() {
    let server = start(Fixed::new(&[]));
    let mut idle = Vec::new();
    for _ in 0..300 {
        let mut connection = connect(server.address).await;
        // The client sends only the first octet of the length field.
        connection
            .send_raw(&[0])
            .await
            .expect("the octet must be sent");
        idle.push(connection);
    }
    let web = Query::new("web.apps.svc.cluster.local.", "A");
    let answer = client::ask_tcp(server.address, &web).await;
    assert_eq!(answer.answer_data("A"), ["10.96.0.9"]);
    // The server closes all stalled connections.
    for mut connection in idle {
        assert_closed(&connection.receive(TIMEOUT).await);
    }
    server.stop().await;
}

/// A query must arrive completely before a deadline, even if its octets keep arriving.
#[tokio::test(start_paused = true)]
async fn trickling_query_closes_connection() {
    let server = start(Fixed::new(&[]));
    let query = Query::new("web.apps.svc.cluster.local.", "A").wire();
    let mut connection = connect(server.address).await;
    let mut sent = 0;
    for octet in &frame_message(&query)[..12] {
        if connection.send_raw(&[*octet]).await.is_err() {
            break;
        }
        sent += 1;
        match connection.receive(Duration::from_millis(3500)).await {
            Err(AskError::Timeout(_)) => {}
            closed => {
                assert_closed(&closed);
                break;
            }
        }
    }
    assert!(
        sent < 6,
        "the server accepted {sent} octets, one every 3.5 s"
    );
}

/// A client reads its answers slowly, but reads each answer before the server's timeout.
#[tokio::test(flavor = "multi_thread")]
async fn slow_client_cannot_delay_stop_for_long() {
    /// Small kernel buffers make the server wait for the client.
    const KERNEL: u32 = 32 * 1024;
    const SEGMENT: u32 = 536;
    // The name is short, so that the server receives many queries in one read.
    let server = start(Fixed::new(&[]).with_big_answer_at(&["b"]));
    let socket = TcpSocket::new_v4().expect("a socket must open");
    socket
        .set_recv_buffer_size(KERNEL)
        .expect("the receive buffer must be set");
    setsockopt(&socket, sockopt::TcpMaxSeg, &SEGMENT).expect("the segment size must be set");
    let mut client = socket
        .connect(server.address)
        .await
        .expect("the server must accept the connection");
    let query = Query::new("b.cluster.local.", "A").wire();
    let framed = frame_message(&query);
    client
        .write_all(&framed.repeat(60))
        .await
        .expect("the queries must be sent");
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
        took = stopped => assert!(took < Duration::from_millis(5500), "the stop took {took:?}"),
    }
}
