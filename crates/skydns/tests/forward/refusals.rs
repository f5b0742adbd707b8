//! The time until the SERVFAIL or REFUSED of an upstream is returned to the client.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use skydns::forward::ForwardLimits;
use testkit::upstream::{Asked, Reaction, Upstream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock::StoppedClock;
use crate::support::{GOOD, Subject, good, refuses, servfail, unused_address};

const MS: Duration = Duration::from_millis(1);

/// An upstream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Server {
    Refused,
    Servfail,
    Answers,
    Silent,
    /// No socket listens on the port.
    Closed,
    /// Silent, and known to be dead.
    Dead,
}

use Server::{Answers, Closed, Dead, Refused, Servfail, Silent};

impl Server {
    /// Starts the server; `None` for a closed port.
    async fn start(self) -> Option<Upstream> {
        let handler = move |asked: &Asked| match self {
            Refused => refuses("REFUSED")(asked),
            Servfail => servfail(asked),
            Answers => good(asked),
            Silent | Closed | Dead => Reaction::silence(),
        };
        if self == Closed {
            None
        } else {
            Some(Upstream::start(handler).await)
        }
    }
}

/// A list of upstreams, the expected outcome, and the waits before it. A wait is a number of
/// packets and a time in milliseconds. Each wait begins after the one before it, as soon as the
/// servers have received that number of packets in total.
type Case = (&'static [Server], &'static str, &'static [(usize, u32)]);

const AT_ONCE: &[(usize, u32)] = &[];

const CASES: &[Case] = &[
    // One server.
    (&[Refused], "REFUSED", AT_ONCE),
    (&[Servfail], "SERVFAIL", AT_ONCE),
    // Two servers.
    (&[Refused, Refused], "REFUSED", AT_ONCE),
    (&[Servfail, Refused], "SERVFAIL", AT_ONCE),
    (&[Refused, Servfail], "REFUSED", AT_ONCE),
    (&[Refused, Closed], "REFUSED", AT_ONCE),
    (&[Closed, Servfail], "SERVFAIL", AT_ONCE),
    (&[Refused, Answers], GOOD, AT_ONCE),
    (&[Refused, Dead], "REFUSED", AT_ONCE),
    (&[Dead, Servfail], "SERVFAIL", AT_ONCE),
    (&[Refused, Silent], "REFUSED", &[(2, 800)]),
    (&[Servfail, Silent], "SERVFAIL", &[(3, 800)]),
    (&[Silent, Refused], "REFUSED", &[(1, 800), (3, 800)]),
    // Three servers.
    (&[Refused, Servfail, Refused], "REFUSED", AT_ONCE),
    (&[Closed, Closed, Servfail], "SERVFAIL", AT_ONCE),
    (&[Servfail, Dead, Closed], "SERVFAIL", AT_ONCE),
    (&[Dead, Refused, Dead], "REFUSED", AT_ONCE),
    (&[Refused, Servfail, Answers], GOOD, AT_ONCE),
    (&[Refused, Silent, Closed], "REFUSED", &[(2, 400), (2, 400)]),
    (
        &[Servfail, Silent, Refused],
        "SERVFAIL",
        &[(3, 400), (4, 400)],
    ),
    (&[Dead, Servfail, Silent], "SERVFAIL", &[(3, 800)]),
];

async fn check((servers, outcome, waits): &Case) {
    let subject = Subject::new(ForwardLimits::default());
    let upstreams = join_all(servers.iter().map(|server| server.start())).await;
    let address = |upstream: &Option<Upstream>| {
        upstream
            .as_ref()
            .map_or_else(unused_address, Upstream::addr)
    };
    let addresses: Vec<SocketAddr> = upstreams.iter().map(address).collect();
    for (server, address) in servers.iter().zip(&addresses) {
        if *server == Dead {
            kill(&subject, *address).await;
        }
    }
    upstreams.iter().flatten().for_each(Upstream::forget);

    let clock = StoppedClock::stop();
    let asked = Instant::now();
    let mut tasks = JoinSet::new();
    let asking = tasks.spawn(async move {
        let outcome = subject.ask_a("x.test.", &addresses).await;
        (outcome, asked.elapsed())
    });
    let what = format!("{servers:?}");
    let started = || upstreams.iter().flatten();
    for (packets, wait) in *waits {
        let received = || started().map(Upstream::count).sum::<usize>();
        clock.until(&what, || received() >= *packets).await;
        clock.turn().await;
        clock.advance((*wait - 1) * MS).await;
        clock.turn().await;
        assert!(
            !asking.is_finished(),
            "{what}: the reply came before the end of the wait of {wait} ms that follows packet {packets}"
        );
        // Timers of tokio fire up to a millisecond late.
        clock.advance(2 * MS).await;
    }
    clock.until(&what, || asking.is_finished()).await;

    let (told, took) = tasks.join_next().await.unwrap().unwrap();
    let expected: Duration = waits.iter().map(|(_, wait)| *wait * MS).sum();
    let late = u32::try_from(waits.len()).unwrap() * MS;
    assert_eq!(told, *outcome, "{what}");
    assert!(
        (expected..=expected + late).contains(&took),
        "{what} took {took:?}"
    );
}

/// Sends queries to a silent upstream until it is considered dead.
async fn kill(subject: &Subject, address: SocketAddr) {
    tokio::time::pause();
    for n in 0..4 {
        subject.ask_a(&format!("n{n}.test."), &[address]).await;
    }
    tokio::time::resume();
    assert!(subject.forwarder.is_down(&address.into()));
}

/// SERVFAIL or REFUSED is held back only while another upstream may still send a better reply.
#[tokio::test]
async fn refusal_waits_only_for_upstreams_that_may_answer() {
    for case in CASES {
        check(case).await;
    }
}
