//! SERVFAIL and REFUSED of upstreams: the time until they are the answer.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use skydns::forward::ForwardLimits;
use testkit::upstream::{Asked, Reaction, Upstream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock::StoppedClock;
use crate::support::{Subject, answers_with, outcome_text, refuses, unused_address};

const MS: Duration = Duration::from_millis(1);

/// An upstream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Server {
    Refused,
    Servfail,
    Answers,
    Silent,
    /// No socket listens.
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
            Servfail => refuses("SERVFAIL")(asked),
            Answers => answers_with(1)(asked),
            Silent | Closed | Dead => Reaction::silence(),
        };
        if self == Closed {
            None
        } else {
            Some(Upstream::start(handler).await)
        }
    }
}

/// A list of upstreams, and the expected outcome.
struct Case {
    servers: &'static [Server],
    outcome: &'static str,
    /// The times to wait, in milliseconds. The number is that of the packets that the servers have
    /// received before.
    waits: &'static [(usize, u32)],
}

const fn at_once(servers: &'static [Server], outcome: &'static str) -> Case {
    Case {
        servers,
        outcome,
        waits: &[],
    }
}

const fn after(
    servers: &'static [Server],
    outcome: &'static str,
    waits: &'static [(usize, u32)],
) -> Case {
    Case {
        servers,
        outcome,
        waits,
    }
}

const CASES: &[Case] = &[
    // One server.
    at_once(&[Refused], "REFUSED"),
    at_once(&[Servfail], "SERVFAIL"),
    // Two servers.
    at_once(&[Refused, Refused], "REFUSED"),
    at_once(&[Servfail, Refused], "SERVFAIL"),
    at_once(&[Refused, Servfail], "REFUSED"),
    at_once(&[Refused, Closed], "REFUSED"),
    at_once(&[Closed, Servfail], "SERVFAIL"),
    at_once(&[Refused, Answers], "NOERROR 192.0.2.1"),
    at_once(&[Refused, Dead], "REFUSED"),
    at_once(&[Dead, Servfail], "SERVFAIL"),
    after(&[Refused, Silent], "REFUSED", &[(2, 800)]),
    after(&[Servfail, Silent], "SERVFAIL", &[(3, 800)]),
    after(&[Silent, Refused], "REFUSED", &[(1, 800), (3, 800)]),
    // Three servers.
    at_once(&[Refused, Servfail, Refused], "REFUSED"),
    at_once(&[Closed, Closed, Servfail], "SERVFAIL"),
    at_once(&[Servfail, Dead, Closed], "SERVFAIL"),
    at_once(&[Dead, Refused, Dead], "REFUSED"),
    at_once(&[Refused, Servfail, Answers], "NOERROR 192.0.2.1"),
    after(&[Refused, Silent, Closed], "REFUSED", &[(2, 400), (2, 400)]),
    after(
        &[Servfail, Silent, Refused],
        "SERVFAIL",
        &[(3, 400), (4, 400)],
    ),
    after(&[Dead, Servfail, Silent], "SERVFAIL", &[(3, 800)]),
];

async fn check(case: &Case) {
    let Case {
        servers,
        outcome,
        waits,
    } = case;
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
    let asking = tasks.spawn({
        let subject = subject.clone();
        async move {
            (
                outcome_text(&subject.ask(crate::support::a("x.test."), &addresses).await),
                asked.elapsed(),
            )
        }
    });
    let what = format!("{servers:?}");
    for (packets, wait) in *waits {
        clock
            .until(&what, || {
                upstreams
                    .iter()
                    .flatten()
                    .map(Upstream::count)
                    .sum::<usize>()
                    >= *packets
            })
            .await;
        clock.turn().await;
        clock.advance((*wait - 1) * MS).await;
        clock.turn().await;
        assert!(!asking.is_finished(), "{what}: less than {wait} ms");
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

/// Sends queries to a silent upstream until it counts as dead.
async fn kill(subject: &Subject, address: SocketAddr) {
    tokio::time::pause();
    for n in 0..4 {
        subject.ask_a(&format!("n{n}.test."), &[address]).await;
    }
    tokio::time::resume();
    assert!(subject.forwarder.is_down(&address.into()));
}

/// SERVFAIL and REFUSED wait only for upstreams that may still have a better reply.
#[tokio::test]
async fn refusal_without_alternative_returns_at_once() {
    for case in CASES {
        check(case).await;
    }
}
