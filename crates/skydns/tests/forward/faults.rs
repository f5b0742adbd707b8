//! Faults of upstreams. With each fault, a reply or an error is returned in time.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures::future::join_all;
use skydns::forward::ForwardLimits;
use testkit::reply::Reply;
use testkit::upstream::{Act, Asked, Reaction, Upstream};
use wire::Transport;

use crate::support::{
    Question, Subject, a, a_over_tcp, address, answers_with, is_count, outcome_text, refuses,
    short_limits, unused_address,
};

/// Fault of an upstream, and the results of queries to it.
struct Fault {
    what: &'static str,
    handler: fn(&Asked) -> Reaction,
    /// Result of a query over UDP if this is the only upstream.
    udp: &'static str,
    /// Result of a query over TCP if this is the only upstream.
    tcp: &'static str,
    /// Result of a query over UDP if a second upstream without faults follows.
    with_second: &'static str,
}

const SECOND: &str = "NOERROR 192.0.2.99";

const fn fault(
    what: &'static str,
    handler: fn(&Asked) -> Reaction,
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
    if asked.transport == Transport::Udp {
        udp.into()
    } else {
        tcp.into()
    }
}

fn truncated(asked: &Asked) -> Reply {
    address(asked, 5).truncated()
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

fn framed(packet: Vec<u8>) -> Vec<u8> {
    [
        u16::try_from(packet.len()).unwrap().to_be_bytes().to_vec(),
        packet,
    ]
    .concat()
}

const TIMEOUT: &str = "failed: Timeout";
const TWICE_GARBAGE: &str = "failed: Garbage Garbage";
const TWICE_CLOSED: &str = "failed: Closed Closed";

const FAULTS: &[Fault] = &[
    fault(
        "silence",
        |_| Reaction::silence(),
        [TIMEOUT, TIMEOUT, SECOND],
    ),
    fault(
        "wrong ID",
        |asked| address(asked, 1).wrong_id().into(),
        [TIMEOUT, TIMEOUT, SECOND],
    ),
    fault(
        "wrong ID, then right",
        |asked| {
            Reaction::from(address(asked, 1).wrong_id()).then(Act::Send(address(asked, 2).wire()))
        },
        [
            "NOERROR 192.0.2.2",
            "NOERROR 192.0.2.2",
            "NOERROR 192.0.2.2",
        ],
    ),
    fault(
        "wrong name",
        |asked| address(asked, 1).wrong_question("other.test.", "A").into(),
        [TIMEOUT, TIMEOUT, SECOND],
    ),
    fault(
        "wrong type",
        |asked| {
            address(asked, 1)
                .wrong_question(&asked.name(), "AAAA")
                .into()
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
        ["FORMERR", "FORMERR", "FORMERR"],
    ),
    fault(
        "the name in another case",
        |asked| {
            address(asked, 1)
                .wrong_question(&asked.name().to_ascii_uppercase(), "A")
                .into()
        },
        [
            "NOERROR 192.0.2.1",
            "NOERROR 192.0.2.1",
            "NOERROR 192.0.2.1",
        ],
    ),
    fault(
        "octets after the message",
        |asked| Reaction::send([address(asked, 1).wire(), vec![0xff; 5]].concat()),
        [
            "NOERROR 192.0.2.1",
            "NOERROR 192.0.2.1",
            "NOERROR 192.0.2.1",
        ],
    ),
    fault(
        "success without the question",
        |asked| Reaction::send([&asked.packet[..2], &[0x81, 0x80], &[0; 8]].concat()),
        [TIMEOUT, TIMEOUT, SECOND],
    ),
    fault(
        "records missing",
        |asked| Reaction::send(garbage(asked)),
        [TWICE_GARBAGE, TWICE_GARBAGE, SECOND],
    ),
    fault(
        "three octets",
        |asked| Reaction::send(&asked.packet[..3]),
        [TWICE_GARBAGE, TWICE_GARBAGE, SECOND],
    ),
    fault(
        "nothing but a packet",
        |_| Reaction::send(vec![]),
        [TIMEOUT, TIMEOUT, SECOND],
    ),
    fault(
        "truncated, whole over TCP",
        |asked| over_udp(asked, truncated(asked), address(asked, 2)),
        [
            "NOERROR 192.0.2.2",
            "NOERROR 192.0.2.2",
            "NOERROR 192.0.2.2",
        ],
    ),
    fault(
        "truncated, without records",
        |asked| {
            over_udp(
                asked,
                Reply::to(&asked.packet).truncated(),
                address(asked, 2),
            )
        },
        [
            "NOERROR 192.0.2.2",
            "NOERROR 192.0.2.2",
            "NOERROR 192.0.2.2",
        ],
    ),
    fault(
        "truncated for ever",
        |asked| truncated(asked).into(),
        [
            "NOERROR tc 192.0.2.5",
            "NOERROR tc 192.0.2.5",
            "NOERROR tc 192.0.2.5",
        ],
    ),
    fault(
        "truncated for ever, without records",
        |asked| Reply::to(&asked.packet).truncated().into(),
        ["NOERROR tc", TWICE_GARBAGE, "NOERROR tc"],
    ),
    fault(
        "truncated, TCP closed early",
        |asked| over_udp(asked, truncated(asked), Reaction::close()),
        ["NOERROR tc 192.0.2.5", TWICE_CLOSED, "NOERROR tc 192.0.2.5"],
    ),
    fault(
        "truncated within a record, whole over TCP",
        |asked| {
            over_udp(
                asked,
                Reaction::send(truncated_within_a_record(asked)),
                address(asked, 2),
            )
        },
        [
            "NOERROR 192.0.2.2",
            "NOERROR 192.0.2.2",
            "NOERROR 192.0.2.2",
        ],
    ),
    fault(
        "truncated within a record, TCP closed early",
        |asked| {
            over_udp(
                asked,
                Reaction::send(truncated_within_a_record(asked)),
                Reaction::close(),
            )
        },
        ["NOERROR tc", TWICE_CLOSED, "NOERROR tc"],
    ),
    fault(
        "truncated, TCP closed in the middle",
        |asked| {
            let packet = framed(address(asked, 1).wire());
            let cut = Reaction::silence()
                .then(Act::Raw(packet[..20].to_vec()))
                .then(Act::Close);
            over_udp(asked, truncated(asked), cut)
        },
        ["NOERROR tc 192.0.2.5", TWICE_CLOSED, "NOERROR tc 192.0.2.5"],
    ),
    fault(
        "truncated, TCP stalls after the length of a large message",
        |asked| {
            over_udp(
                asked,
                truncated(asked),
                Reaction::silence().then(Act::Raw(vec![0xff, 0xff])),
            )
        },
        ["NOERROR tc 192.0.2.5", TIMEOUT, "NOERROR tc 192.0.2.5"],
    ),
    fault(
        "truncated, TCP message of no octets",
        |asked| {
            over_udp(
                asked,
                truncated(asked),
                Reaction::silence().then(Act::Raw(vec![0, 0])),
            )
        },
        [
            "NOERROR tc 192.0.2.5",
            TWICE_GARBAGE,
            "NOERROR tc 192.0.2.5",
        ],
    ),
    fault(
        "truncated, TCP octet by octet",
        |asked| {
            over_udp(
                asked,
                truncated(asked),
                slowly(framed(address(asked, 1).wire())),
            )
        },
        ["NOERROR tc 192.0.2.5", TIMEOUT, "NOERROR tc 192.0.2.5"],
    ),
    fault(
        "truncated, garbage over TCP",
        |asked| over_udp(asked, truncated(asked), address(asked, 1).wrong_id()),
        [
            "NOERROR tc 192.0.2.5",
            TWICE_GARBAGE,
            "NOERROR tc 192.0.2.5",
        ],
    ),
];

async fn check(what: &str, question: Question, upstreams: &[SocketAddr], expected: &str) {
    let limits = short_limits();
    let subject = Subject::new(limits.clone());
    let asked = Instant::now();
    let outcome = outcome_text(&subject.ask(question, upstreams).await);
    assert_eq!(outcome, expected, "{what}");
    // The additional second allows for a busy machine.
    assert!(
        asked.elapsed() < limits.budget + Duration::from_secs(1),
        "{what} took {:?}",
        asked.elapsed()
    );
}

#[tokio::test]
async fn faulty_upstream_alone_and_before_good() {
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
    check(
        "UDP",
        a("x.test."),
        &[unused_address()],
        "failed: Refused Refused",
    )
    .await;
    check(
        "TCP",
        a_over_tcp("x.test."),
        &[unused_address()],
        "failed: Refused Refused",
    )
    .await;
}

#[tokio::test]
async fn truncated_reply_without_tcp_is_returned() {
    let upstream = Upstream::start_udp_only(|asked: &Asked| truncated(asked).into()).await;
    check(
        "TCP refused",
        a("x.test."),
        &[upstream.addr()],
        "NOERROR tc 192.0.2.5",
    )
    .await;
}

/// If TCP does not work, only some of the queries with a truncated reply are retried over TCP.
#[tokio::test]
async fn silent_tcp_is_paused() {
    let silent_over_tcp = |asked: &Asked| over_udp(asked, truncated(asked), Reaction::silence());
    let upstream = Upstream::start(silent_over_tcp).await;
    let subject = Subject::new(ForwardLimits {
        tcp_retry: Duration::from_millis(100),
        ..ForwardLimits::default()
    });
    for n in 0..10 {
        let outcome = subject
            .ask_a(&format!("n{n}.test."), &[upstream.addr()])
            .await;
        assert_eq!(outcome, "NOERROR tc 192.0.2.5");
    }
    let retries = subject.metric("tcp_retries_total", &[]);
    assert!((1.0..=3.0).contains(&retries), "{retries} retries");
    // A query of a client over TCP is always retried over TCP.
    assert_eq!(
        outcome_text(&subject.ask(a_over_tcp("x.test."), &[upstream.addr()]).await),
        TIMEOUT
    );
    assert!(subject.metric("tcp_retries_total", &[]) > retries);
}

/// Asserts that `reply`, which is truncated or SERVFAIL, is returned if no better reply arrives.
/// The upstream must not count as dead.
async fn check_final_reply(
    reply: &str,
    handler: impl Fn(&Asked) -> Reaction + Send + Sync + 'static,
) {
    let handler = move |asked: &Asked| {
        if asked.name() == "quick.test." {
            answers_with(1)(asked)
        } else {
            handler(asked)
        }
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
        assert_eq!(
            subject
                .ask_a(&format!("n{n}.test."), &[upstream.addr()])
                .await,
            reply,
            "question {n}"
        );
    }
    // A dead upstream would be queried last.
    assert_eq!(
        subject
            .ask_a("quick.test.", &[upstream.addr(), other.addr()])
            .await,
        "NOERROR 192.0.2.1"
    );
    assert!(
        is_count(subject.errors("timeout"), 3),
        "each time the wait was in vain"
    );
}

#[tokio::test]
async fn truncated_reply_survives_silent_tcp() {
    let handler = |asked: &Asked| over_udp(asked, truncated(asked), Reaction::silence());
    check_final_reply("NOERROR tc 192.0.2.5", handler).await;
}

#[tokio::test]
async fn servfail_survives_silent_retry() {
    let known = Mutex::new(HashSet::new());
    let first_word = move |asked: &Asked| known.lock().unwrap().insert(asked.name());
    let handler = move |asked: &Asked| {
        if first_word(asked) {
            refuses("SERVFAIL")(asked)
        } else {
            Reaction::silence()
        }
    };
    check_final_reply("SERVFAIL", handler).await;
}

/// With the default limits and three silent upstreams, an error is returned within the two seconds
/// that clients wait.
#[tokio::test]
async fn error_comes_within_two_seconds() {
    let silent = |_: &Asked| Reaction::silence();
    let upstreams = [
        Upstream::start(silent).await,
        Upstream::start(silent).await,
        Upstream::start(silent).await,
    ];
    let addresses: Vec<_> = upstreams.iter().map(Upstream::addr).collect();
    let subject = Subject::new(ForwardLimits::default());
    let asked = Instant::now();
    for outcome in [
        subject.ask(a("x.test."), &addresses),
        subject.ask(a_over_tcp("x.test."), &addresses),
    ] {
        let asked = Instant::now();
        assert_eq!(
            outcome_text(&outcome.await),
            "failed: Timeout Timeout Timeout"
        );
        assert!(
            asked.elapsed() < Duration::from_secs(2),
            "{:?}",
            asked.elapsed()
        );
    }
    assert!(
        asked.elapsed() > Duration::from_secs(3),
        "the budget was used"
    );
    assert!(is_count(subject.metric("failed_total", &[]), 2));
}
