//! Tests of the server over real sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use testkit::ports::ipv6_is_here;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use warp::http::StatusCode;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinSet<()>,
}

async fn serve(limits: HttpLimits) -> Running {
    let mut server = Server::bind("127.0.0.1", 0).await.unwrap();
    server.limits = limits;
    let address = server.local_addr();
    let stop = CancellationToken::new();
    let fine = exact_path("/fine").map(|| text(StatusCode::OK, "ok\n"));
    let data = exact_path("/data").map(|| json(StatusCode::OK, &[("a<b>&", 1)]));
    let slow = exact_path("/slow").then(|| async {
        tokio::time::sleep(Duration::from_hours(1)).await;
        text(StatusCode::OK, "late")
    });
    let filter = fine.or(data).unify().or(slow).unify();
    let mut task = JoinSet::new();
    task.spawn(server.run(filter, stop.clone()));
    Running {
        address,
        stop,
        task,
    }
}

/// A server with the default limits, after `change` has changed some of them.
async fn serve_with(change: impl FnOnce(&mut HttpLimits)) -> Running {
    let mut limits = HttpLimits::default();
    change(&mut limits);
    serve(limits).await
}

async fn connect(running: &Running) -> TcpStream {
    TcpStream::connect(running.address).await.unwrap()
}

/// All octets until the server closes the connection, without the date.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes))
        .await
        .expect("the server must close the connection in time");
    // A reset also ends the connection.
    let _ = read;
    let text = String::from_utf8(bytes).unwrap();
    text.split_inclusive("\r\n")
        .filter(|line| !line.starts_with("Date: "))
        .collect()
}

async fn ask(running: &Running, method: &str, path: &str) -> String {
    let mut stream = connect(running).await;
    let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    rest(&mut stream).await
}

#[tokio::test]
async fn replies_are_like_those_of_go() {
    let running = serve(HttpLimits::default()).await;
    let ok = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(ask(&running, "GET", "/fine").await, format!("{ok}ok\n"));
    assert_eq!(ask(&running, "POST", "/fine").await, format!("{ok}ok\n"));
    assert_eq!(ask(&running, "HEAD", "/fine").await, ok);
    assert_eq!(
        ask(&running, "GET", "/none").await,
        "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n\
         Connection: close\r\nContent-Length: 19\r\n\r\n404 page not found\n"
    );
    assert_eq!(
        ask(&running, "GET", "/data").await,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 28\r\n\r\n\
         [[\"a\\u003cb\\u003e\\u0026\",1]]"
    );
}

#[tokio::test]
async fn error_of_taken_port_names_address() {
    let running = serve(HttpLimits::default()).await;
    let error = Server::bind("127.0.0.1", running.address.port())
        .await
        .unwrap_err();
    let address = running.address;
    let expected = format!("cannot listen on {address}: Address already in use");
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn wildcard_address_serves_both_families() {
    for host in ["", "0.0.0.0", "::", "[::]"] {
        let server = Server::bind(host, 0).await.unwrap();
        let port = server.local_addr().port();
        let loopback = [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            Ipv6Addr::LOCALHOST.into(),
        ];
        for address in loopback.into_iter().take(1 + usize::from(ipv6_is_here())) {
            let connected = TcpStream::connect((address, port)).await;
            assert!(connected.is_ok(), "{host:?}: {connected:?}");
        }
        let error = Server::bind(host, port).await.unwrap_err().to_string();
        let expected = format!(":{port}: Address already in use");
        assert!(error.ends_with(&expected), "{error}");
        drop(server);
    }
}

#[tokio::test]
async fn specific_address_is_bound() {
    let hosts = ["127.0.0.1", "127.0.0.2"]
        .into_iter()
        .chain(ipv6_is_here().then_some("::1"));
    for host in hosts {
        let server = Server::bind(host, 0).await.unwrap();
        assert_eq!(server.local_addr().ip().to_string(), host);
    }
}

#[tokio::test]
async fn large_head_is_rejected() {
    let running = serve_with(|limits| limits.head_size = 8192).await;
    let request = format!(
        "GET /fine HTTP/1.1\r\nHost: x\r\nLong: {}\r\n\r\n",
        "x".repeat(20_000)
    );
    // If the server closes before it has read everything, the reply may be lost.
    for (sent, may_be_lost) in [(8192, false), (request.len(), true)] {
        let mut stream = connect(&running).await;
        let _ = stream.write_all(&request.as_bytes()[..sent]).await;
        let reply = rest(&mut stream).await;
        let is_lost = may_be_lost && reply.is_empty();
        assert!(
            is_lost || reply.starts_with("HTTP/1.1 431 "),
            "{sent}: {reply}"
        );
    }
    assert!(ask(&running, "GET", "/fine").await.contains("200 OK"));
}

#[tokio::test]
async fn garbage_is_refused() {
    let running = serve(HttpLimits::default()).await;
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 garbage\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
    ] {
        let mut stream = connect(&running).await;
        stream.write_all(garbage).await.unwrap();
        let reply = rest(&mut stream).await;
        assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
    }
    assert!(ask(&running, "GET", "/fine").await.contains("200 OK"));
}

#[tokio::test]
async fn slow_or_idle_connections_are_closed() {
    let running = serve_with(|limits| limits.head_time = Duration::from_millis(100)).await;
    let mut slow = connect(&running).await;
    slow.write_all(b"GET /fine HT").await.unwrap();
    let mut idle = connect(&running).await;
    let reply = rest(&mut slow).await;
    assert!(!reply.contains("200 OK"), "{reply}");
    assert_eq!(rest(&mut idle).await, "");
}

#[tokio::test]
async fn slow_handler_times_out() {
    let running = serve_with(|limits| limits.handler_time = Duration::from_millis(50)).await;
    let reply = ask(&running, "GET", "/slow").await;
    assert!(
        reply.starts_with("HTTP/1.1 503 ") && reply.ends_with("the request took too long\n"),
        "{reply}"
    );
}

#[tokio::test]
async fn new_connection_replaces_idle_one() {
    let running = serve_with(|limits| limits.connections = 8).await;
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(connect(&running).await);
    }
    assert!(ask(&running, "GET", "/fine").await.contains("200 OK"));
    assert_eq!(
        rest(&mut idle[0]).await,
        "",
        "the oldest connection must be closed"
    );
}

#[tokio::test]
async fn connection_life_is_limited() {
    let running = serve_with(|limits| limits.life = Duration::from_millis(100)).await;
    let mut stream = connect(&running).await;
    stream
        .write_all(b"GET /fine HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let reply = rest(&mut stream).await;
    assert!(reply.contains("200 OK"), "{reply}");
}

#[tokio::test]
async fn stop_ends_server_and_connections() {
    let mut running = serve(HttpLimits::default()).await;
    let mut idle = connect(&running).await;
    let mut busy = connect(&running).await;
    busy.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    assert!(ask(&running, "GET", "/fine").await.contains("200 OK"));
    running.stop.cancel();
    tokio::time::timeout(PATIENCE, running.task.join_next())
        .await
        .expect("the server must end in time")
        .unwrap()
        .unwrap();
    assert_eq!(rest(&mut idle).await, "");
    assert!(TcpStream::connect(running.address).await.is_err());
}

#[test]
fn authority_is_host_and_port() {
    for (url, expected) in [
        ("http://127.0.0.1:8081", Some("127.0.0.1:8081")),
        ("http://127.0.0.1:8081/", Some("127.0.0.1:8081")),
        ("[::1]:8081", Some("[::1]:8081")),
        (
            "kube-dns.kube-system:8081",
            Some("kube-dns.kube-system:8081"),
        ),
        ("https://127.0.0.1:8081", None),
        ("127.0.0.1", None),
        ("http://127.0.0.1:port", None),
        ("http://:8081", None),
        ("http://a b:8081", None),
        ("http://a/b:8081", None),
        ("http://a\r\nX: y:8081", None),
    ] {
        assert_eq!(authority(url), expected, "{url:?}");
    }
}
