//! Floods of queries and connections to kubedns. Most tests check that the memory of kubedns stays
//! below a limit. In most tests, a steady client, which queries at a constant rate, must get right
//! answers. In two tests, the steady client's queries for external names may fail for a while.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use testkit::client::{self, TcpConnection};
use testkit::eventually;
use testkit::http;
use testkit::message::Message;
use testkit::processes::Usage;
use testkit::query::Query;
use tests::chaos::{names_outside, objects, questions, zone};
use tests::e2e::PATIENCE;
use tests::lab::{Lab, in_a_line};
use tests::steady::{Question, Steady};

/// Queries of the steady client per second.
const RATE: u32 = 100;

/// The source address of floods. The steady client has another address.
const FLOODER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Number of datagrams in one flood.
const DATAGRAMS: u32 = 30_000;
const BURST: u32 = 64;

/// Limit of kubedns' peak memory; see docs/resilience.md.
const MOST_MEMORY_KIB: u32 = 96 * 1024;

/// Number of TCP connections that one host may have.
const SHARE_OF_HOST: usize = 2048;

/// Number of connections in one flood.
pub(super) const CONNECTIONS: usize = 2000;

/// Starts kubedns with an upstream. Returns queries with known answers, too.
async fn lab() -> (Lab, Vec<Question>) {
    let mut lab = Lab::with_upstream(&["--lameduck=0s"], zone().handler()).await;
    lab.set_all(objects()).await;
    let port = lab.dns().port();
    let mut all = questions("cluster", port);
    all.extend(names_outside("outside", port));
    // The kernel drops queries while a flood fills the receive buffer of kubedns. So the client
    // retries, as resolvers do.
    let patient = all
        .into_iter()
        .map(|question| question.tries(4, Duration::from_secs(1)));
    (lab, patient.collect())
}

/// Starts kubedns and the steady client, and waits for the first answers. Returns the resources of
/// kubedns at that time, too.
pub(super) async fn at_rest() -> (Lab, Steady, Usage) {
    let (mut lab, questions) = lab().await;
    let steady = Steady::start(questions, RATE);
    steady.answered(20).await;
    let before = usage(&mut lab);
    (lab, steady, before)
}

pub(super) fn usage(lab: &mut Lab) -> Usage {
    Usage::of(lab.process().id()).unwrap()
}

/// Prints the memory of kubedns before, during and after a flood. Checks that the peak is below the
/// limit.
pub(super) fn bounded(lab: &mut Lab, what: &str, before: Usage) {
    let after = usage(lab);
    let (rest, peak, now) = (before.resident, after.peak, after.resident);
    println!("{what}: resident {rest} KiB before, {peak} KiB at most, {now} KiB after");
    assert!(peak < MOST_MEMORY_KIB, "{what}: {after:?}");
}

/// The longest wait for the answer to the query after a burst.
const MARK_PATIENCE: Duration = Duration::from_millis(500);
/// ID of the query after each burst. Few datagrams of a flood have this ID.
const MARK: u16 = 0xffff;

/// Sends the datagrams that `make` returns, as fast as kubedns reads them. A query follows each
/// burst, and the next burst waits for the answer to this query, unless the answer is lost.
async fn flood(server: SocketAddr, make: impl Fn(u32) -> Vec<u8>) {
    let socket = UdpSocket::bind((FLOODER, 0)).unwrap();
    socket.connect(server).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mark = Query::new("web-1.shop.svc.cluster.local.", "A").id(MARK);
    let mark = mark.wire();
    let mut buffer = [0; 2048];
    for start in (0..DATAGRAMS).step_by(usize::try_from(BURST).unwrap()) {
        for number in start..start + BURST {
            // If the send buffer is full, the datagram is lost. A flood need not be complete.
            let _ = socket.send(&make(number));
        }

        let _ = socket.send(&mark);
        let began = Instant::now();
        let mut marked = false;
        while !marked && began.elapsed() < MARK_PATIENCE {
            tokio::time::sleep(Duration::from_millis(1)).await;
            while socket.recv(&mut buffer).is_ok() {
                marked |= buffer.starts_with(&MARK.to_be_bytes());
            }
        }
    }
}

/// Reproducible pseudo-random octets.
fn noise(number: u32, length: usize) -> Vec<u8> {
    let mut state = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn udp_floods_are_survived() {
    let (mut lab, steady, before) = at_rest().await;
    let server = lab.dns();
    flood(server, |number| {
        noise(number, usize::try_from(number % 700).unwrap())
    })
    .await;
    // These datagrams have a valid header and question, and then random octets.
    flood(server, |number| {
        let mut packet = Query::new("web-1.shop.svc.cluster.local.", "A").wire();
        packet.extend(noise(number, 40));
        packet
    })
    .await;
    bounded(&mut lab, "60,000 datagrams of noise", before);
    flood(server, |number| {
        let name = format!(
            "x{number:x}.{}.svc.cluster.local.",
            ["shop", "nowhere", "db.shop"][number as usize % 3]
        );
        Query::new(&name, ["A", "AAAA", "SRV", "TXT"][number as usize % 4]).wire()
    })
    .await;
    // The upstream runs in the test's process, and may be too slow for the next flood. So only
    // queries of the group `outside`, whose names need the upstream, may fail.
    let excuse = steady.excuse(
        &["outside"],
        "more external names were queried than the upstream can answer in time",
    );
    flood(server, |number| {
        Query::new(&format!("x{number:x}.outside.test."), "A").wire()
    })
    .await;
    excuse.ends().await;
    bounded(
        &mut lab,
        "60,000 queries for names that do not exist",
        before,
    );
    steady.answered(20).await;
    steady
        .stop()
        .await
        .check("kubedns under floods of noise and of random names");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_tcp_messages_are_survived() {
    let (mut lab, steady, before) = at_rest().await;
    let server = lab.dns();
    let mut open = Vec::new();
    for number in 0..200 {
        let mut connection = TcpConnection::open_from(FLOODER, server).await.unwrap();
        // Each message has the maximum size. Every second message begins with a valid query.
        let mut message = if number % 2 == 0 {
            Query::new("web-1.shop.svc.cluster.local.", "A").wire()
        } else {
            Vec::new()
        };
        message.extend(noise(number, 65_535 - message.len()));
        // kubedns may close the connection before the whole message is sent.
        let _ = tokio::time::timeout(Duration::from_secs(5), connection.send(&message)).await;
        open.push(connection);
    }
    bounded(&mut lab, "200 TCP messages of 64 KiB", before);
    steady.answered(20).await;
    drop(open);
    steady
        .stop()
        .await
        .check("kubedns under TCP messages of 64 KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_tcp_connections_are_survived() {
    raise_descriptor_limit();
    let (mut lab, steady, before) = at_rest().await;
    let server = lab.dns();
    let query = Query::new("web-1.shop.svc.cluster.local.", "A").wire();
    let mut open = Vec::new();
    for number in 0..CONNECTIONS {
        let mut connection = TcpConnection::open_from(FLOODER, server).await.unwrap();
        match number % 4 {
            // The client sends nothing.
            0 => {}
            // The client sends one octet of the length, or the length and the first ten octets of
            // the query.
            1 => connection.send_raw(&[0]).await.unwrap(),
            2 => {
                let length = u16::try_from(query.len()).unwrap().to_be_bytes();
                connection
                    .send_raw(&[&length, &query[..10]].concat())
                    .await
                    .unwrap();
            }
            // The client sends a query, closes its sending direction, and reads nothing.
            _ => {
                connection.send(&query).await.unwrap();
                connection.finish_sending().await.unwrap();
            }
        }
        open.push(connection);
    }
    // The kernel has accepted all connections, but kubedns may not have accepted all of them yet.
    // kubedns closes a half-closed connection after it has sent the answer, and the other
    // connections after a timeout.
    eventually(PATIENCE, || {
        let now = usage(&mut lab);
        let let_in = if now.descriptors > 1400 {
            Ok(())
        } else {
            Err(now)
        };
        async move { let_in }
    })
    .await;
    steady.answered(40).await;
    bounded(
        &mut lab,
        "2,000 idle, slow and half-closed TCP connections",
        before,
    );
    // The clients do not close their connections, so kubedns must close them.
    eventually(PATIENCE, || {
        let now = usage(&mut lab);
        let settled = if now.descriptors < 200 {
            Ok(())
        } else {
            Err(now)
        };
        async move { settled }
    })
    .await;
    drop(open);
    steady.answered(20).await;
    steady
        .stop()
        .await
        .check("kubedns under 2,000 idle, slow and half-closed TCP connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_over_share_of_host_are_logged_and_counted() {
    raise_descriptor_limit();
    let (mut lab, _) = lab().await;
    let series = "kubedns_tcp_rejected_connections_total";
    let rejected = async |lab: &Lab| {
        let page = http::get(lab.metrics(), "/metrics").await.unwrap();
        page.metric(series)
    };
    assert_eq!(rejected(&lab).await, Some(0.0));

    let mut open = Vec::new();
    for _ in 0..SHARE_OF_HOST + 100 {
        let connection = TcpConnection::open_from(FLOODER, lab.dns()).await;
        open.push(connection.unwrap());
    }
    let text = "client has too many TCP connections";
    let line = lab.process().line_with(text, PATIENCE).await;
    assert!(line.contains(&FLOODER.to_string()), "{line}");
    let count = rejected(&lab).await;
    let is_counted = count.is_some_and(|count| (1.0..=100.0).contains(&count));
    assert!(is_counted, "{count:?}");

    let answer = lab.ask_tcp("web-1.shop.svc.cluster.local.", "A").await;
    assert_eq!(answer.rcode_name(), "NOERROR", "{}", in_a_line(&answer));
}

/// Raises the limit of open files for the test. kubedns inherits the limit.
pub(super) fn raise_descriptor_limit() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let wanted = 10_000;
    assert!(hard >= wanted, "the hard limit of open files is {hard}");
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descriptor_exhaustion_is_survived() {
    let (mut lab, questions) = lab().await;
    let server = lab.dns();
    let mut early = TcpConnection::open(server).await.unwrap();
    let ask = Query::new("web-1.shop.svc.cluster.local.", "A").wire();
    early.send(&ask).await.unwrap();
    early.receive(client::PATIENCE).await.unwrap();

    // kubedns reads the limit of open files only at its start, so it can run out of descriptors
    // after the limit is lowered.
    let used = usage(&mut lab).descriptors;
    limit_descriptors(lab.process().id(), used + 8);
    let steady = Steady::start(
        questions
            .into_iter()
            .filter(|question| !question.tcp)
            .collect(),
        RATE,
    );
    steady.answered(20).await;
    let why = "no descriptor was left";
    // The connections below take all descriptors. A forwarded query then fails, unless a socket to
    // the upstream is still open.
    let excuse = steady.excuse(&["outside"], why);
    let mut hoard = Vec::new();
    for _ in 0..64 {
        hoard.push(TcpConnection::open(server).await.unwrap());
    }
    eventually(PATIENCE, || {
        let now = usage(&mut lab).descriptors;
        async move { now >= used + 8 }
    })
    .await;
    steady.answered_on("cluster", 100).await;
    early.send(&ask).await.unwrap();
    let answer = early.receive(client::PATIENCE).await.unwrap();
    assert_eq!(
        in_a_line(&Message::parse(&answer).unwrap()),
        "NOERROR 10.96.1.1",
        "an existing connection must be served"
    );
    early
        .send(&Query::new("host-1.outside.test.", "A").wire())
        .await
        .unwrap();
    let answer = early.receive(client::PATIENCE).await.unwrap();
    let answer = in_a_line(&Message::parse(&answer).unwrap());
    assert!(
        ["SERVFAIL", "NOERROR 198.51.100.1"].contains(&answer.as_str()),
        "the query must fail at once, or go over an open socket: {answer}"
    );
    drop(hoard);
    excuse.ends().await;
    let late = client::tcp(server, &ask, client::PATIENCE).await.unwrap();
    assert_eq!(
        in_a_line(&Message::parse(&late).unwrap()),
        "NOERROR 10.96.1.1",
        "new connections must be accepted again"
    );
    assert!(lab.process().exited().is_none());
    let blamed = |line: &&String| line.contains("upstream server does not answer");
    let log = lab.process().stderr();
    assert_eq!(
        log.iter().find(blamed),
        None,
        "the log must not blame the upstream"
    );
    let report = steady.stop().await;
    report.check("kubedns without a descriptor left");
    let lost = report.lines["outside"].excused_lost;
    assert_eq!(
        lost, 0,
        "kubedns must answer SERVFAIL and leave no query unanswered: {report}"
    );
}

fn limit_descriptors(pid: u32, most: u32) {
    let limit = format!("--nofile={most}:{most}");
    let status = Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &limit])
        .status();
    assert!(
        status.unwrap().success(),
        "prlimit of util-linux must succeed"
    );
}
