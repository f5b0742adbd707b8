//! Faults of upstreams. With each fault, a reply or an error is returned in time.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures::future::join_all;
use skydns::forward::ForwardLimits;
use testkit::reply::Reply;
use testkit::upstream::{Act, Asked, Reaction, Upstream};
use wire::{Transport, frame_message};

use crate::support::{
    Does, GOOD, OTHER, Question, Subject, a, a_over_tcp, address, answers_with, good, servfail,
    short_limits, silent, unused_address,
};

/// Fault of an upstream, and the results of clients' queries. For every client, the upstream is
/// queried over UDP first.
struct Fault {
    what: &'static str,
    handler: Does,
    /// Result for a client over UDP if this is the only upstream.
    udp: &'static str,
    /// Result for a client over TCP if this is the only upstream.
    tcp: &'static str,
    /// Result for a client over UDP if a second upstream without faults follows.
    with_second: &'static str,
}

const SECOND: &str = "NOERROR 192.0.2.99";

const fn fault(
    what: &'static str,
    handler: Does,
    [udp, tcp, with_second]: [&'static str; 3],
) -> Fault {
    Fault {
        what,
        handler,
        udp,
        tcp,
        with_second,
    }
}

fn over_udp(asked: &Asked, udp: impl Into<Reaction>, tcp: impl Into<Reaction>) -> Reaction {
    match asked.transport {
        Transport::Udp => udp.into(),
        Transport::Tcp => tcp.into(),
    }
}

fn truncated(asked: &Asked) -> Reply {
    address(asked, 5).truncated()
}

/// A truncated reply over UDP, and the reaction `tcp` over TCP.
fn truncated_then(asked: &Asked, tcp: impl Into<Reaction>) -> Reaction {
    over_udp(asked, truncated(asked), tcp)
}

fn raw(octets: &[u8]) -> Reaction {
    Reaction::silence().then(Act::Raw(octets.to_vec()))
}

/// A reply whose header announces five answers, followed by octets that are not valid records.
fn garbage(asked: &Asked) -> Vec<u8> {
    let mut packet = Reply::to(&asked.packet).wire();
    packet[7] = 5;
    [packet, vec![0xff; 9]].concat()
}

fn truncated_within_a_record(asked: &Asked) -> Vec<u8> {
    let whole = truncated(asked).wire();
    whole[..whole.len() - 3].to_vec()
}

fn slowly(octets: Vec<u8>) -> Reaction {
    octets
        .into_iter()
        .fold(Reaction::silence(), |reaction, octet| {
            reaction
                .then(Act::Wait(Duration::from_millis(100)))
                .then(Act::Raw(vec![octet]))
        })
}

const TIMEOUT: &str = "failed: Timeout";
const GARBAGE: &str = "failed: Garbage Garbage";
const CLOSED: &str = "failed: Closed Closed";
const TRUNCATED: &str = "NOERROR tc 192.0.2.5";

const FAULTS: &[Fault] = &[
    fault("silence", silent, [TIMEOUT, TIMEOUT, SECOND]),
    fault(
        "wrong ID",
        |asked| address(asked, 1).wrong_id().into(),
        [TIMEOUT, TIMEOUT, SECOND],
    ),
    fault(
        "wrong ID, then right",
        |asked| {
            let wrong = Reaction::from(address(asked, 1).wrong_id());
            wrong.then(Act::Send(address(asked, 2).wire()))
        },
        [OTHER; 3],
    ),
    fault(
        "wrong name",
        |asked| address(asked, 1).wrong_question("other.test.", "A").into(),
        [TIMEOUT, TIMEOUT, SECOND],
    ),
    fault(
        "wrong type",
        |asked| {
            let name = asked.name();
            address(asked, 1).wrong_question(&name, "AAAA").into()
        },
        [TIMEOUT, TIMEOUT, SECOND],
    ),
    fault(
        "the query sent back",
        |asked| Reaction::send(asked.packet.clone()),
        [TIMEOUT, TIMEOUT, SECOND],
    ),
    fault(
        "another opcode",
        |asked| {
            let mut packet = address(asked, 1).wire();
            packet[2] |= 0x28;
            Reaction::send(packet)
        },
        [TIMEOUT, TIMEOUT, SECOND],
    ),
    fault(
        "an error without the question",
        |asked| Reaction::send([&asked.packet[..2], &[0x81, 0x81], &[0; 8]].concat()),
        ["FORMERR"; 3],
    ),
    fault(
        "the name in another case",
        |asked| {
            let name = asked.name().to_ascii_uppercase();
            address(asked, 1).wrong_question(&name, "A").into()
        },
        [GOOD; 3],
    ),
    fault(
        "octets after the message",
        |asked| Reaction::send([address(asked, 1).wire(), vec![0xff; 5]].concat()),
        [GOOD; 3],
    ),
    fault(
        "success without the question",
        |asked| Reaction::send([&asked.packet[..2], &[0x81, 0x80], &[0; 8]].concat()),
        [TIMEOUT, TIMEOUT, SECOND],
    ),
    fault(
        "invalid records",
        |asked| Reaction::send(garbage(asked)),
        [GARBAGE, GARBAGE, SECOND],
    ),
    fault(
        "three octets",
        |asked| Reaction::send(&asked.packet[..3]),
        [GARBAGE, GARBAGE, SECOND],
    ),
    fault(
        "a packet without octets",
        |_| Reaction::send(vec![]),
        [TIMEOUT, TIMEOUT, SECOND],
    ),
    fault(
        "truncated, whole over TCP",
        |asked| truncated_then(asked, address(asked, 2)),
        [OTHER; 3],
    ),
    fault(
        "truncated, without records",
        |asked| {
            let empty = Reply::to(&asked.packet).truncated();
            over_udp(asked, empty, address(asked, 2))
        },
        [OTHER; 3],
    ),
    fault(
        "truncated for ever",
        |asked| truncated(asked).into(),
        [TRUNCATED; 3],
    ),
    fault(
        "truncated for ever, without records",
        |asked| Reply::to(&asked.packet).truncated().into(),
        ["NOERROR tc", GARBAGE, "NOERROR tc"],
    ),
    fault(
        "truncated, TCP closed early",
        |asked| truncated_then(asked, Reaction::close()),
        [TRUNCATED, CLOSED, TRUNCATED],
    ),
    fault(
        "truncated within a record, whole over TCP",
        |asked| {
            let cut = Reaction::send(truncated_within_a_record(asked));
            over_udp(asked, cut, address(asked, 2))
        },
        [OTHER; 3],
    ),
    fault(
        "truncated within a record, TCP closed early",
        |asked| {
            let cut = Reaction::send(truncated_within_a_record(asked));
            over_udp(asked, cut, Reaction::close())
        },
        ["NOERROR tc", CLOSED, "NOERROR tc"],
    ),
    fault(
        "truncated, TCP closed in the middle",
        |asked| {
            let packet = frame_message(&address(asked, 1).wire());
            truncated_then(asked, raw(&packet[..20]).then(Act::Close))
        },
        [TRUNCATED, CLOSED, TRUNCATED],
    ),
    fault(
        "truncated, TCP stalls after the length of a large message",
        |asked| truncated_then(asked, raw(&[0xff, 0xff])),
        [TRUNCATED, TIMEOUT, TRUNCATED],
    ),
    fault(
        "truncated, TCP message of no octets",
        |asked| truncated_then(asked, raw(&[0, 0])),
        [TRUNCATED, GARBAGE, TRUNCATED],
    ),
    fault(
        "truncated, TCP octet by octet",
        |asked| {
            let octets = frame_message(&address(asked, 1).wire());
            truncated_then(asked, slowly(octets))
        },
        [TRUNCATED, TIMEOUT, TRUNCATED],
    ),
    fault(
        "truncated, wrong ID over TCP",
        |asked| truncated_then(asked, address(asked, 1).wrong_id()),
        [TRUNCATED, GARBAGE, TRUNCATED],
    ),
];

async fn check(what: &str, question: Question, upstreams: &[SocketAddr], expected: &str) {
    let limits = short_limits();
    let subject = Subject::new(limits.clone());
    let asked = Instant::now();
    let outcome = subject.outcome(question, upstreams).await;
    let took = asked.elapsed();
    assert_eq!(outcome, expected, "{what}");
    // The additional second allows for a busy machine.
    assert!(
        took < limits.budget + Duration::from_secs(1),
        "{what} took {took:?}"
    );
}

#[tokio::test]
async fn faulty_upstream_gives_expected_result_in_time() {
    let good = Upstream::start(answers_with(99)).await;
    join_all(FAULTS.iter().map(async |fault| {
        let upstream = Upstream::start(fault.handler).await;
        let alone = [upstream.addr()];
        let followed = [upstream.addr(), good.addr()];
        check(fault.what, a("x.test."), &alone, fault.udp).await;
        check(fault.what, a_over_tcp("x.test."), &alone, fault.tcp).await;
        check(fault.what, a("x.test."), &followed, fault.with_second).await;
    }))
    .await;
}

#[tokio::test]
async fn unused_port_is_refused() {
    const REFUSED: &str = "failed: Refused Refused";
    check("UDP", a("x.test."), &[unused_address()], REFUSED).await;
    check("TCP", a_over_tcp("x.test."), &[unused_address()], REFUSED).await;
}

#[tokio::test]
async fn truncated_reply_without_tcp_is_returned() {
    let upstream = Upstream::start_udp_only(|asked: &Asked| truncated(asked).into()).await;
    let upstreams = [upstream.addr()];
    check("TCP refused", a("x.test."), &upstreams, TRUNCATED).await;
}

/// For ten seconds after a timeout over TCP, UDP clients get truncated replies without a retry over
/// TCP.
#[tokio::test]
async fn tcp_retries_for_udp_clients_pause_after_silence() {
    let upstream =
        Upstream::start(|asked: &Asked| truncated_then(asked, Reaction::silence())).await;
    let upstreams = [upstream.addr()];
    let subject = Subject::new(ForwardLimits {
        tcp_retry: Duration::from_millis(100),
        ..ForwardLimits::default()
    });
    for n in 0..10 {
        let outcome = subject.ask_a(&format!("n{n}.test."), &upstreams).await;
        assert_eq!(outcome, TRUNCATED);
    }
    let retries = subject.count("tcp_retries_total");
    assert_eq!(retries, 1, "TCP retries");
    // During the pause, a query from a TCP client is still sent to the upstream over TCP.
    let over_tcp = subject.outcome(a_over_tcp("x.test."), &upstreams).await;
    assert_eq!(over_tcp, TIMEOUT);
    assert!(subject.count("tcp_retries_total") > retries);
}

/// Asserts that `reply`, which is truncated or SERVFAIL, is returned if no better reply arrives.
/// The upstream must not count as dead.
async fn check_final_reply(
    reply: &str,
    handler: impl Fn(&Asked) -> Reaction + Send + Sync + 'static,
) {
    let handler = move |asked: &Asked| match asked.name().as_str() {
        "quick.test." => good(asked),
        _ => handler(asked),
    };
    let upstream = Upstream::start(handler).await;
    let other = Upstream::start(answers_with(99)).await;
    let never = Duration::from_mins(1);
    let subject = Subject::new(ForwardLimits {
        tcp_retry: never,
        silence_timeout: never,
        ..ForwardLimits::default()
    });
    for n in 0..3 {
        let name = format!("n{n}.test.");
        assert_eq!(
            subject.ask_a(&name, &[upstream.addr()]).await,
            reply,
            "{name}"
        );
    }
    // A dead upstream would be queried last.
    let upstreams = [upstream.addr(), other.addr()];
    assert_eq!(subject.ask_a("quick.test.", &upstreams).await, GOOD);
    let timeouts = subject.errors("timeout");
    assert_eq!(timeouts, 3, "the retry of each query must time out");
}

#[tokio::test]
async fn truncated_reply_is_returned_if_tcp_is_silent() {
    let handler = |asked: &Asked| truncated_then(asked, Reaction::silence());
    check_final_reply(TRUNCATED, handler).await;
}

#[tokio::test]
async fn servfail_is_returned_if_retry_gets_no_reply() {
    let known = Mutex::new(HashSet::new());
    let handler = move |asked: &Asked| {
        let is_new = known.lock().unwrap().insert(asked.name());
        if is_new {
            servfail(asked)
        } else {
            silent(asked)
        }
    };
    check_final_reply("SERVFAIL", handler).await;
}

/// With the default limits and three silent upstreams, an error is returned within two seconds,
/// before clients send their query again.
#[tokio::test]
async fn error_comes_within_two_seconds() {
    let upstreams = join_all([(); 3].map(|()| Upstream::start(silent))).await;
    let addresses: Vec<_> = upstreams.iter().map(Upstream::addr).collect();
    let subject = Subject::new(ForwardLimits::default());
    let begun = Instant::now();
    for question in [a("x.test."), a_over_tcp("x.test.")] {
        let asked = Instant::now();
        let outcome = subject.outcome(question, &addresses).await;
        assert_eq!(outcome, "failed: Timeout Timeout Timeout");
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    assert!(
        begun.elapsed() > Duration::from_secs(3),
        "both queries must use their budget before they fail"
    );
    assert_eq!(subject.count("failed_total"), 2);
}
