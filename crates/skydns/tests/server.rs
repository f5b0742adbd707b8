//! The server over real sockets: transports, limits, and answers to malformed queries.
#![allow(
    dead_code,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, shared with others"
)]

#[path = "server/autopath.rs"]
mod autopath;
#[path = "server/every_query.rs"]
mod every_query;
#[path = "server/expensive.rs"]
mod expensive;
#[path = "server/extended_errors.rs"]
mod extended_errors;
#[path = "server/fallthrough.rs"]
mod fallthrough;
#[path = "support/fixed.rs"]
mod fixed;
#[path = "server/search.rs"]
mod search;
#[path = "server/tap.rs"]
mod tap;
#[path = "server/tcp.rs"]
mod tcp_connections;
#[path = "server/transfer.rs"]
mod transfer;
#[path = "server/zones.rs"]
mod zones;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use fixed::{Fixed, bind, start, start_on};
use prometheus::core::Collector as _;
use skydns::metrics::Metrics;
use testkit::client::{self, TcpConnection};
use testkit::dig::{show, show_sorted};
use testkit::eventually;
use testkit::ports::ipv6_is_here;
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};
use tokio::net::UdpSocket;
use wire::Transport;

const TIMEOUT: Duration = Duration::from_secs(10);

async fn answer_over_udp(server: SocketAddr, query: &Query) -> String {
    show_sorted(
        &client::udp(server, &query.wire(), TIMEOUT)
            .await
            .expect("an answer"),
    )
}

async fn answer_over_tcp(server: SocketAddr, query: &Query) -> String {
    show_sorted(
        &client::tcp(server, &query.wire(), TIMEOUT)
            .await
            .expect("an answer over TCP"),
    )
}

/// The header and question lines of an answer in text format.
fn header_lines(text: &str) -> String {
    text.lines()
        .take_while(|line| !line.starts_with(";; A"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The header of an answer from the zone.
const OK: &str = ";; NOERROR, flags: qr aa rd ra";
/// The authority section of a negative answer.
const SOA: &str = ";; AUTHORITY\ncluster.local. 60 IN SOA ns.dns.cluster.local. \
    hostmaster.cluster.local. <serial> 28800 7200 604800 60\n";

#[tokio::test(flavor = "multi_thread")]
async fn answer_has_expected_form() {
    let server = start(Fixed::new(&[]));
    let web = "Web.apps.svc.cluster.local.";
    let deep = format!("{}svc.cluster.local.", "a.".repeat(40));
    let ok_with_edns = format!("{OK}\n;; EDNS version 0, udp 1232");
    let address = format!(";; ANSWER\n{web} 30 IN A 10.96.0.9\n");
    for (what, name, rtype, head, sections) in [
        ("the case of the question is kept", web, "A", OK, &*address),
        (
            "EDNS is answered with EDNS",
            web,
            "A",
            &ok_with_edns,
            &address,
        ),
        (
            "an unknown type of an existing name",
            web,
            "TYPE65280",
            OK,
            SOA,
        ),
        (
            "a missing name",
            "no.apps.svc.cluster.local.",
            "A",
            ";; NXDOMAIN, flags: qr rd",
            SOA,
        ),
        (
            "a name deeper than any",
            &deep,
            "A",
            ";; NXDOMAIN, flags: qr rd",
            SOA,
        ),
        ("ANY is refused", web, "ANY", ";; REFUSED, flags: qr", ""),
        (
            "single-label names are not forwarded",
            "short.",
            "A",
            ";; SERVFAIL, flags: qr rd ra",
            "",
        ),
        (
            "no upstream is an error, not silence",
            "www.outside.test.",
            "A",
            ";; SERVFAIL, flags: qr rd ra",
            "",
        ),
    ] {
        let plain = Query::new(name, rtype);
        let query = if head == ok_with_edns {
            plain.edns(4096)
        } else {
            plain
        };
        let expected = format!("{head}\n;{name} IN {rtype}\n{sections}");
        assert_eq!(
            answer_over_udp(server.address, &query).await,
            expected,
            "{what}"
        );
        assert_eq!(
            answer_over_tcp(server.address, &query).await,
            expected,
            "{what}, over TCP"
        );
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_empty_non_terminal_exists() {
    let server = start(Fixed::new(&[]).strict());
    for (name, rtype, expected) in [
        ("svc.cluster.local.", "A", ";; NOERROR, flags: qr aa rd ra"),
        (
            "apps.svc.cluster.local.",
            "SRV",
            ";; NOERROR, flags: qr aa rd ra",
        ),
        (
            "no.apps.svc.cluster.local.",
            "A",
            ";; NXDOMAIN, flags: qr aa rd ra",
        ),
        (
            "no.apps.svc.cluster.local.",
            "NS",
            ";; NXDOMAIN, flags: qr aa rd ra",
        ),
        ("cluster.local.", "A", ";; NOERROR, flags: qr aa rd ra"),
        ("cluster.local.", "NS", ";; NOERROR, flags: qr aa rd ra"),
    ] {
        let text = answer_over_udp(server.address, &Query::new(name, rtype)).await;
        assert_eq!(text.lines().next(), Some(expected), "{name} {rtype}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_message_does_not_stop_server() {
    let server = start(Fixed::new(&[]));
    let response_bit = [0, 1, 0x81, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1];
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    for odd in [&b""[..], b"\x00", &[0xff; 11], &response_bit] {
        socket.send_to(odd, server.address).await.expect("sent");
    }
    // The first answer belongs to the valid query, so the other packets got no answer.
    let query = Query::new("web.apps.svc.cluster.local.", "A").id(0x4242);
    socket
        .send_to(&query.wire(), server.address)
        .await
        .expect("sent");
    let mut buffer = [0; 512];
    let received = tokio::time::timeout(TIMEOUT, socket.recv(&mut buffer))
        .await
        .expect("in time")
        .expect("received");
    assert_eq!(
        buffer.get(..2),
        Some(&[0x42, 0x42][..]),
        "{}",
        show(&buffer[..received])
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_answer_is_truncated_to_limit() {
    let server = start(Fixed::new(&[]));
    let big = || Query::new("big.apps.svc.cluster.local.", "A");
    for (what, query, limit, records) in [
        ("plain UDP", big(), 512, 29),
        ("a size below 512 counts as 512", big().edns(100), 512, 28),
        ("EDNS", big().edns(1232), 1232, 73),
        ("the largest datagram", big().edns(65_535), 65_507, 4090),
    ] {
        let wire = client::udp(server.address, &query.wire(), TIMEOUT)
            .await
            .expect("an answer");
        let message = testkit::message::Message::parse(&wire).expect("well-formed");
        assert!(message.has("tc"), "{what}");
        assert!(wire.len() <= limit, "{what}: {}", wire.len());
        assert_eq!(message.answer.len(), records, "{what}");
    }
    let wire = client::tcp(server.address, &big().wire(), TIMEOUT)
        .await
        .expect("an answer");
    let message = testkit::message::Message::parse(&wire).expect("well-formed");
    assert!(!message.has("tc"), "TC means nothing over TCP");
    assert_eq!(message.answer.len(), 4093, "as many as 64 KiB hold");
    server.stop().await;
}

/// Wildcard addresses for a server, each with loopback addresses at which clients reach this
/// server.
fn wildcard_addresses() -> Vec<(IpAddr, Vec<IpAddr>)> {
    let v4 = [[127, 0, 0, 1], [127, 0, 0, 2], [127, 0, 0, 77]].map(IpAddr::from);
    let mut all = vec![(Ipv4Addr::UNSPECIFIED.into(), v4.to_vec())];
    if ipv6_is_here() {
        let both = [&v4[..], &[Ipv6Addr::LOCALHOST.into()]].concat();
        all.push((Ipv6Addr::UNSPECIFIED.into(), both));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn reply_has_queried_source_address() {
    let upstream = upstream_after(Duration::ZERO).await;
    for (wildcard, addresses) in wildcard_addresses() {
        let server = start_on((wildcard, 0).into(), Fixed::new(&[upstream.addr()]));
        for ip in addresses {
            let asked = SocketAddr::new(ip, server.address.port());
            for (name, address) in [
                ("web.apps.svc.cluster.local.", "10.96.0.9"),
                ("www.outside.test.", "198.51.100.10"),
            ] {
                let query = Query::new(name, "A");
                // A connected socket receives datagrams only from the queried address.
                for answer in [
                    client::ask(asked, &query).await,
                    client::ask_tcp(asked, &query).await,
                ] {
                    assert_eq!(answer.answer_data("A"), [address], "{name} of {asked}");
                }
            }
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn bind_of_used_port_fails() {
    let first = bind(
        SocketAddr::from(([127, 0, 0, 1], 0)),
        Fixed::new(&[]),
        Metrics::new("", ""),
    )
    .expect("bound");
    let second = bind(first.local_addr(), Fixed::new(&[]), Metrics::new("", ""));
    assert_eq!(
        second.err().map(|error| error.kind()),
        Some(std::io::ErrorKind::AddrInUse)
    );
}

/// A dropped server releases its port. Otherwise its threads would take queries that are meant for
/// the next server.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_server_frees_port() {
    let server = start(Fixed::new(&[]));
    let address = server.address;
    answer_over_udp(address, &Query::new("web.apps.svc.cluster.local.", "A")).await;
    drop(server);
    eventually(TIMEOUT, || async {
        std::net::UdpSocket::bind(address).map(drop)
    })
    .await;
}

/// A truncated reply without records does not prove that the name has no address: the client
/// retries over TCP.
#[tokio::test(flavor = "multi_thread")]
async fn alias_of_truncated_target_has_tc() {
    let upstream = Upstream::start(|asked: &Asked| match asked.transport {
        Transport::Udp => Reaction::send(Reply::to(&asked.packet).truncated().wire()),
        Transport::Tcp => Reaction::close(),
    })
    .await;
    let server = start(Fixed::new(&[upstream.addr()]));
    let text = answer_over_udp(
        server.address,
        &Query::new("out.apps.svc.cluster.local.", "A"),
    )
    .await;
    let alias = "out.apps.svc.cluster.local. 30 IN CNAME www.outside.test.";
    let expected = format!(
        ";; NOERROR, flags: qr aa tc rd ra\n;out.apps.svc.cluster.local. IN A\n;; ANSWER\n{alias}\n"
    );
    assert_eq!(text, expected);
    server.stop().await;
}

/// A name has more aliases than may be looked up for one answer. The answer contains the aliases
/// that were looked up.
#[tokio::test(flavor = "multi_thread")]
async fn many_external_aliases_are_answered_in_part() {
    let upstream = Upstream::start(|asked: &Asked| {
        let record = format!("{} 60 IN A 198.51.100.7", asked.name());
        Reaction::send(Reply::to(&asked.packet).answer(&record).wire())
    })
    .await;
    let targets = (0..300).map(|number| format!("h{number}.outside.test"));
    let view = Fixed::new(&[upstream.addr()]).with_aliases(&["svc", "apps", "many"], targets);
    let server = start(view);
    let reply = client::ask_tcp(
        server.address,
        &Query::new("many.apps.svc.cluster.local.", "A"),
    )
    .await;
    assert_eq!(reply.rcode_name(), "NOERROR");
    assert!(!reply.answer_data("A").is_empty(), "{reply:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn error_is_never_larger_than_request() {
    let server = start(Fixed::new(&[]));
    for (name, rtype) in [
        ("web.apps.svc.cluster.local.", "A"),
        ("no.cluster.local.", "A"),
        ("short.", "ANY"),
    ] {
        answer_over_udp(server.address, &Query::new(name, rtype)).await;
        client::ask_tcp(server.address, &Query::new(name, rtype)).await;
    }
    let sum = |name: &str| -> f64 {
        let families = server.metrics.collect();
        let family = families.iter().find(|family| family.name() == name);
        family.map_or(0.0, |family| {
            family
                .get_metric()
                .iter()
                .map(|m| m.get_counter().get_value())
                .sum()
        })
    };
    assert!((sum("skydns_skydns_dns_request_count_total") - 6.0).abs() < f64::EPSILON);
    assert!((sum("skydns_skydns_dns_error_count_total") - 4.0).abs() < f64::EPSILON);
    server.stop().await;
}

/// A rejected query is counted for the part of the server that is responsible for the name.
#[tokio::test(flavor = "multi_thread")]
async fn rejected_query_is_counted_by_reason() {
    const FLOOD: usize = 1000;
    let dead = Upstream::start(|_: &Asked| Reaction::silence()).await;
    let server = start(Fixed::new(&[]).stub("dead.test", &[dead.addr()]));
    let flood = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("bound");
    for number in 0..FLOOD {
        let query = Query::new(&format!("n{number}.dead.test."), "A").wire();
        flood.send_to(&query, server.address).await.expect("sent");
    }
    let in_stub = Query::new("www.dead.test.", "A");
    let alias = Query::new("out.apps.svc.cluster.local.", "A");
    for query in [&in_stub, &alias] {
        for text in [
            answer_over_udp(server.address, query).await,
            answer_over_tcp(server.address, query).await,
        ] {
            assert!(text.starts_with(";; SERVFAIL"), "{text}");
        }
    }
    assert_eq!(request_count(&server.metrics, "recursive"), None);
    assert_eq!(request_count(&server.metrics, "auth"), Some(2.0));
    assert!(
        request_count(&server.metrics, "stub") > Some(2.0),
        "queries beyond its share were rejected"
    );
    server.stop().await;
}

/// Number of queries answered by a part of the server.
fn request_count(metrics: &Metrics, system: &str) -> Option<f64> {
    labelled_counter(metrics, "skydns_skydns_dns_request_count_total", system)
}

/// The value of a counter with this label.
fn labelled_counter(metrics: &Metrics, name: &str, label: &str) -> Option<f64> {
    let families = metrics.collect();
    let family = families.iter().find(|family| family.name() == name)?;
    let labelled = family
        .get_metric()
        .iter()
        .find(|metric| metric.get_label()[0].value() == label)?;
    Some(labelled.get_counter().get_value())
}

/// An upstream that answers for `www.outside.test` after `delay`.
async fn upstream_after(delay: Duration) -> Upstream {
    Upstream::start(move |asked: &Asked| {
        Reaction::from(Reply::to(&asked.packet).answer("www.outside.test. 60 IN A 198.51.100.10"))
            .after(delay)
    })
    .await
}

/// A client that has sent `server` a query for an external name.
fn send_external_query(server: SocketAddr) -> std::net::UdpSocket {
    let client = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    client.connect(server).expect("connected");
    client.set_nonblocking(true).expect("set");
    client
        .send(&Query::new("www.outside.test.", "A").wire())
        .expect("sent");
    client
}

/// After the stop, the socket stays open while an answer is pending, and the server answers further
/// queries.
#[tokio::test(flavor = "multi_thread")]
async fn stopping_server_answers_until_last_reply() {
    let upstream = upstream_after(Duration::from_millis(1500)).await;
    let server = start(Fixed::new(&[upstream.addr()]));
    let waiting = send_external_query(server.address);
    eventually(TIMEOUT, || async { upstream.count() > 0 }).await;
    server.tell_to_stop();
    let told = Instant::now();
    let query = Query::new("web.apps.svc.cluster.local.", "A").wire();
    while told.elapsed() < Duration::from_millis(800) {
        match client::udp(server.address, &query, TIMEOUT).await {
            Ok(answer) => assert!(show(&answer).contains("10.96.0.9"), "{}", show(&answer)),
            Err(client::AskError::Timeout(after)) => panic!("no answer within {after:?}"),
            // On a busy machine the server may already have stopped.
            Err(_) => break,
        }
    }
    server.stop().await;
    waiting.recv(&mut [0; 512]).expect("an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn query_after_stop_is_answered() {
    let upstream = upstream_after(Duration::from_millis(700)).await;
    let server = start(Fixed::new(&[upstream.addr()]));
    // The answer shows that the server has started.
    answer_over_udp(
        server.address,
        &Query::new("web.apps.svc.cluster.local.", "A"),
    )
    .await;
    server.tell_to_stop();
    eventually(TIMEOUT, || async {
        TcpConnection::open(server.address).await.is_err()
    })
    .await;
    let late = send_external_query(server.address);
    server.stop().await;
    match late.recv(&mut [0; 512]) {
        Ok(_) => {}
        Err(error) => {
            let too_late = std::io::ErrorKind::ConnectionRefused;
            assert_eq!(
                error.kind(),
                too_late,
                "neither an answer nor an ICMP error"
            );
        }
    }
}
