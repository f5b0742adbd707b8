//! The server over real sockets: the form of answers, source addresses, metrics, and shutdown.
#![allow(
    dead_code,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests may panic, and some helpers in `fixed` are for other tests"
)]

#[path = "server/autopath.rs"]
mod autopath;
#[path = "server/every_query.rs"]
mod every_query;
#[path = "server/expensive.rs"]
mod expensive;
#[path = "server/extended_errors.rs"]
mod extended_errors;
#[path = "server/external_rules.rs"]
mod external_rules;
#[path = "server/fallthrough.rs"]
mod fallthrough;
#[path = "support/fixed.rs"]
mod fixed;
#[path = "server/loops.rs"]
mod loops;
#[path = "server/rotation.rs"]
mod rotation;
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

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fixed::{Always, Fixed, LOOPBACK, bind, start, start_on};
use prometheus::core::Collector;
use testkit::client::{self, TcpConnection};
use testkit::dig::{show, show_sorted};
use testkit::eventually;
use testkit::message::Message;
use testkit::ports::ipv6_is_here;
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const TIMEOUT: Duration = Duration::from_secs(10);

/// The answer to a message over UDP.
async fn exchange_udp(server: SocketAddr, query: &[u8]) -> Vec<u8> {
    let answer = client::udp(server, query, TIMEOUT).await;
    answer.expect("an answer must arrive over UDP")
}

/// The answer to a message over TCP.
async fn exchange_tcp(server: SocketAddr, query: &[u8]) -> Vec<u8> {
    let answer = client::tcp(server, query, TIMEOUT).await;
    answer.expect("an answer must arrive over TCP")
}

async fn answer_over_udp(server: SocketAddr, query: &Query) -> String {
    show_sorted(&exchange_udp(server, &query.wire()).await)
}

async fn answer_over_tcp(server: SocketAddr, query: &Query) -> String {
    show_sorted(&exchange_tcp(server, &query.wire()).await)
}

/// Receives the next datagram.
async fn next_datagram(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 4096];
    let received = tokio::time::timeout(TIMEOUT, socket.recv(&mut buffer)).await;
    let length = received
        .expect("a datagram must arrive in time")
        .expect("a datagram must arrive");
    buffer[..length].to_vec()
}

async fn connect(server: SocketAddr) -> TcpConnection {
    TcpConnection::open(server)
        .await
        .expect("the server must accept the connection")
}

fn parsed(wire: &[u8]) -> Message {
    Message::parse(wire).expect("the message must be well-formed")
}

/// The exported lines that begin with `name`, each without this beginning.
fn series(metrics: &impl Collector, name: &str) -> Vec<String> {
    let text = prometheus::TextEncoder::new().encode_to_string(&metrics.collect());
    let text = text.expect("the metrics must be text");
    let series = text.lines().filter_map(|line| line.strip_prefix(name));
    series.map(str::to_owned).collect()
}

/// The value of one series, such as `name{label="value"}`.
fn metric(metrics: &impl Collector, name: &str) -> Option<f64> {
    series(metrics, name).first()?.trim().parse().ok()
}

/// The sum of all series of a counter.
fn sum(metrics: &impl Collector, name: &str) -> usize {
    let series = series(metrics, name);
    let values = series.iter().filter_map(|series| series.rsplit(' ').next());
    values
        .map(|value| value.parse::<usize>().expect("the value must be a count"))
        .sum()
}

/// The number of queries that the metric counts for `system`, such as `auth`.
fn request_count(metrics: &impl Collector, system: &str) -> Option<f64> {
    let series = format!("skydns_skydns_dns_request_count_total{{system=\"{system}\"}}");
    metric(metrics, &series)
}

/// The authority section of a negative answer.
const SOA: &str = ";; AUTHORITY\ncluster.local. 60 IN SOA ns.dns.cluster.local. \
    hostmaster.cluster.local. <serial> 28800 7200 604800 60\n";

/// Each row has a title, a question, the header of the answer, and the records of the answer.
/// `WEB`, `DEEP`, `ADDRESS` and `SOA` stand for longer texts.
const ANSWER_FORMS: &str = "
    the case of the question is kept | WEB A | NOERROR, flags: qr aa rd ra | ADDRESS
    an unknown type of an existing name | WEB TYPE65280 | NOERROR, flags: qr aa rd ra | SOA
    a missing name | no.apps.svc.cluster.local. A | NXDOMAIN, flags: qr rd | SOA
    a name with more labels than any existing name | DEEP A | NXDOMAIN, flags: qr rd | SOA
    ANY is refused | WEB ANY | REFUSED, flags: qr |
    single-label names are not forwarded | short. A | SERVFAIL, flags: qr rd ra |
    an external name without upstreams gets an error | www.outside.test. A | SERVFAIL, flags: qr rd ra |
";

#[tokio::test(flavor = "multi_thread")]
async fn udp_threads_are_active_until_the_stop() {
    let view = Always(Arc::new(Fixed::empty()));
    let (server, _) = bind(LOOPBACK, view, None, None).unwrap();
    let activity = server.activity();
    assert!(!activity.take(), "no thread may run yet");

    // The threads note their activity although no queries arrive.
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(server.run(stop.clone()));
    for _ in 0..3 {
        let active = || async { activity.take().then_some(()).ok_or("not active") };
        eventually(TIMEOUT, active).await;
    }

    stop.cancel();
    for ended in running.join_all().await {
        ended.expect("the server must end properly");
    }
    activity.take();
    assert!(!activity.take());
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_has_expected_form() {
    let server = start(Fixed::new(&[]));
    let web = "Web.apps.svc.cluster.local.";
    let deep = format!("{}svc.cluster.local.", "a.".repeat(40));
    let address = format!(";; ANSWER\n{web} 30 IN A 10.96.0.9\n");
    let cases = ANSWER_FORMS.replace("WEB", web).replace("DEEP", &deep);
    for case in cases.trim().lines() {
        let fields: Vec<&str> = case.split('|').map(str::trim).collect();
        let (name, rtype) = fields[1]
            .split_once(' ')
            .expect("a question must have a name and a type");
        let sections = match fields[3] {
            "ADDRESS" => &address,
            "SOA" => SOA,
            _ => "",
        };
        for (query, edns) in [
            (Query::new(name, rtype), ""),
            (
                Query::new(name, rtype).edns(4096),
                ";; EDNS version 0, udp 1232\n",
            ),
        ] {
            let expected = format!(";; {}\n{edns};{name} IN {rtype}\n{sections}", fields[2]);
            let over_udp = answer_over_udp(server.address, &query).await;
            assert_eq!(over_udp, expected, "{case}");
            let over_tcp = answer_over_tcp(server.address, &query).await;
            assert_eq!(over_tcp, expected, "{case}, over TCP");
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_answer_has_as_many_records_as_fit() {
    let server = start(Fixed::new(&[]));
    let big = || Query::new("big.apps.svc.cluster.local.", "A");
    for (what, query, limit, records) in [
        ("plain UDP", big(), 512, 29),
        ("a size below 512 counts as 512", big().edns(100), 512, 28),
        ("EDNS", big().edns(1232), 1232, 73),
        ("the largest datagram", big().edns(65_535), 65_507, 4090),
    ] {
        let wire = exchange_udp(server.address, &query.wire()).await;
        let message = parsed(&wire);
        assert!(message.has("tc"), "{what}");
        assert!(wire.len() <= limit, "{what}: {}", wire.len());
        assert_eq!(message.answer.len(), records, "{what}");
    }
    let message = client::ask_tcp(server.address, &big()).await;
    assert!(!message.has("tc"), "an answer over TCP must not have TC");
    assert_eq!(
        message.answer.len(),
        4093,
        "the answer must have as many records as fit into 64 KiB"
    );
    let other = client::ask_tcp(server.address, &big()).await;
    let chosen = [message, other].map(|answer| BTreeSet::from_iter(answer.answer_data("A")));
    assert_ne!(
        chosen[0], chosen[1],
        "the two answers must have different addresses"
    );
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
async fn reply_comes_from_queried_address() {
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
    let view = || Always(Arc::new(Fixed::new(&[])));
    let (first, _) = bind(LOOPBACK, view(), None, None).expect("the first server must be bound");
    let second = bind(first.local_addr(), view(), None, None);
    let error = second.err().map(|error| error.kind());
    assert_eq!(error, Some(std::io::ErrorKind::AddrInUse));
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

/// A name with more external targets than the server looks up for one answer gets SERVFAIL. If the
/// answer had the addresses of only some targets, a client could not know that others are missing.
#[tokio::test(flavor = "multi_thread")]
async fn external_aliases_are_answered_in_full_or_not_at_all() {
    let upstream = Upstream::start(|asked: &Asked| {
        let record = format!("{} 60 IN A 198.51.100.7", asked.name());
        Reaction::send(Reply::to(&asked.packet).answer(&record).wire())
    })
    .await;
    for (targets, expected) in [(96, "NOERROR 96"), (97, "SERVFAIL 0")] {
        let names = (0..targets).map(|number| format!("h{number}.outside.test"));
        let view = Fixed::new(&[upstream.addr()]).with_aliases(&["svc", "apps", "many"], names);
        let server = start(view);
        let many = Query::new("many.apps.svc.cluster.local.", "A");
        let reply = client::ask_tcp(server.address, &many).await;
        let addresses = reply.answer_data("A").len();
        let found = format!("{} {addresses}", reply.rcode_name());
        assert_eq!(found, expected, "{targets} targets");
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_requests_are_counted() {
    let server = start(Fixed::new(&[]));
    for (name, rtype) in [
        ("web.apps.svc.cluster.local.", "A"),
        ("no.cluster.local.", "A"),
        ("short.", "ANY"),
    ] {
        answer_over_udp(server.address, &Query::new(name, rtype)).await;
        client::ask_tcp(server.address, &Query::new(name, rtype)).await;
    }
    let requests = sum(&server.metrics, "skydns_skydns_dns_request_count_total");
    assert_eq!(requests, 6);
    let errors = sum(&server.metrics, "skydns_skydns_dns_error_count_total");
    assert_eq!(errors, 4);
    server.stop().await;
}

/// A query that gets SERVFAIL is counted for the `system` of its name: `stub` in a stub domain,
/// `auth` for an alias in the cluster. The flood has more queries than one client may have in
/// flight to upstreams.
#[tokio::test(flavor = "multi_thread")]
async fn rejected_query_is_counted_by_system() {
    const FLOOD: usize = 1000;
    let dead = Upstream::start(|_: &Asked| Reaction::silence()).await;
    let server = start(Fixed::new(&[]).stub("dead.test", &[dead.addr()]));
    let flood = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("the socket must be bound");
    for number in 0..FLOOD {
        let query = Query::new(&format!("n{number}.dead.test."), "A").wire();
        flood
            .send_to(&query, server.address)
            .await
            .expect("the query must be sent");
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
        "queries beyond the share of the client must be rejected"
    );
    server.stop().await;
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
    let client =
        std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("the socket must be bound");
    client
        .connect(server)
        .expect("the socket must be connected");
    client
        .set_nonblocking(true)
        .expect("the socket must not block");
    client
        .send(&Query::new("www.outside.test.", "A").wire())
        .expect("the query must be sent");
    client
}

/// A server that is told to stop keeps its socket open while an answer is pending, and still
/// answers other queries.
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
    waiting.recv(&mut [0; 512]).expect("an answer must arrive");
}

#[tokio::test(flavor = "multi_thread")]
async fn query_after_stop_is_answered_or_gets_icmp_error() {
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
    if let Err(error) = late.recv(&mut [0; 512]) {
        let too_late = std::io::ErrorKind::ConnectionRefused;
        let kind = error.kind();
        assert_eq!(kind, too_late, "neither an answer nor an ICMP error");
    }
}
