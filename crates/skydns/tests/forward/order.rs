//! The order in which upstreams are queried, and the cost of dead and slow upstreams.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skydns::forward::ForwardLimits;
use testkit::eventually;
use testkit::upstream::{Asked, Reaction, Upstream};
use wire::Transport;

use crate::support::{
    Fickle, GOOD, OTHER, PATIENCE, Subject, a, answers_with, good, outcome_text, question, refuses,
    silent, unused_address,
};

const MS: Duration = Duration::from_millis(1);

fn after(
    delay: Duration,
    handler: impl Fn(&Asked) -> Reaction + Send + Sync + 'static,
) -> impl Fn(&Asked) -> Reaction {
    move |asked| handler(asked).after(delay)
}

/// The first upstream is slow, but replies before `silence_timeout`. Queries wait for its replies.
/// The second upstream receives no query.
#[tokio::test]
async fn slow_preferred_upstream_is_queried_alone() {
    for outsider in ["NXDOMAIN", "NOERROR", "REFUSED"] {
        let slow = Upstream::start(after(150 * MS, answers_with(1))).await;
        let quick = Upstream::start(refuses(outsider)).await;
        let subject = Subject::new(ForwardLimits::default());
        for n in 0..10 {
            let upstreams = [slow.addr(), quick.addr()];
            let reply = subject.ask_a(&format!("n{n}.test."), &upstreams).await;
            assert_eq!(
                reply, GOOD,
                "the slow upstream must answer query {n} (second upstream: {outsider})"
            );
        }
        assert_eq!(
            quick.count(),
            0,
            "the second upstream ({outsider}) must not be queried"
        );
    }
}

/// An upstream that does not answer queries for one name is not considered dead.
#[tokio::test]
async fn upstream_silent_for_one_name_is_not_dead() {
    let forgetful = |asked: &Asked| {
        if asked.name().eq_ignore_ascii_case("lost.test.") {
            Reaction::silence()
        } else {
            answers_with(1)(asked)
        }
    };
    let first = Upstream::start(forgetful).await;
    let second = Upstream::start(refuses("NXDOMAIN")).await;
    let upstreams = [first.addr(), second.addr()];
    let subject = Subject::new(ForwardLimits::default());
    let asked = Instant::now();
    while asked.elapsed() < 4000 * MS {
        for case in ["lost.test.", "Lost.test.", "LOST.test."] {
            let reply = subject.ask_a(case, &upstreams).await;
            assert_eq!(
                reply, "NXDOMAIN",
                "the second upstream must give the answer in the end"
            );
        }
    }
    let answered = subject.ask_a("other.test.", &upstreams).await;
    assert_eq!(
        answered, GOOD,
        "the first upstream must still be queried first"
    );
}

/// With one to four silent upstreams before a live upstream, the first query is answered within its
/// budget.
#[tokio::test]
async fn live_upstream_answers_behind_silent_ones() {
    let silent = [(); 4].map(|()| Upstream::start(silent));
    let silent = futures::future::join_all(silent).await;
    let good = Upstream::start(answers_with(5)).await;
    let asked = (1..=4).map(async |dead| {
        let mut upstreams: Vec<_> = silent.iter().take(dead).map(Upstream::addr).collect();
        upstreams.push(good.addr());
        let reply = Subject::new(ForwardLimits::default())
            .ask_a("x.test.", &upstreams)
            .await;
        assert_eq!(reply, "NOERROR 192.0.2.5", "after {dead} silent upstreams");
    });
    futures::future::join_all(asked).await;
}

/// If one of three upstreams is known to be dead, the 99th percentile of the response times is at
/// most the longest measured round-trip time plus 100 ms.
#[tokio::test]
async fn dead_upstream_costs_little_time() {
    let dead = Upstream::start(silent).await;
    let second = Upstream::start(answers_with(2)).await;
    let third = Upstream::start(answers_with(3)).await;
    let mut round_trip = Duration::ZERO;
    let subject = Subject::new(ForwardLimits::default());
    for n in 0..100 {
        let asked = Instant::now();
        subject
            .ask(a(&format!("direct{n}.test.")), &[second.addr()])
            .await
            .unwrap();
        round_trip = round_trip.max(asked.elapsed());
    }

    let subject = Subject::new(ForwardLimits::default());
    let upstreams = [dead.addr(), second.addr(), third.addr()];
    become_last(&subject, &dead, &upstreams).await;
    let mut times = Vec::new();
    for n in 0..200 {
        let asked = Instant::now();
        let reply = subject.ask_a(&format!("n{n}.test."), &upstreams).await;
        times.push(asked.elapsed());
        assert_eq!(reply, OTHER);
        // The pauses leave time for some probes of the dead upstream.
        tokio::time::sleep(5 * MS).await;
    }
    times.sort();
    let p99 = times[times.len() * 99 / 100];
    assert!(
        p99 <= round_trip + 100 * MS,
        "p99 {p99:?}, round trip {round_trip:?}"
    );
}

/// Sends queries until a query does not wait for the dead upstream.
async fn become_last(subject: &Subject, dead: &Upstream, upstreams: &[SocketAddr]) {
    let deadline = Instant::now() + PATIENCE;
    let mut n = 0;
    loop {
        let before = dead.count();
        let asked = Instant::now();
        subject
            .ask(a(&format!("dying{n}.test.")), upstreams)
            .await
            .unwrap();
        if dead.count() == before && asked.elapsed() < 200 * MS {
            return;
        }
        n += 1;
        assert!(
            Instant::now() < deadline,
            "queries still wait for the dead upstream"
        );
    }
}

#[tokio::test]
async fn dead_upstream_is_probed_and_used_again() {
    let second = Upstream::start(answers_with(2)).await;
    let fickle = Fickle::start(&[good, silent, good]).await;
    let first = &fickle.upstream;
    let subject = Subject::new(ForwardLimits {
        silence_timeout: 300 * MS,
        budget: 900 * MS,
        ..ForwardLimits::default()
    });
    let upstreams = [first.addr(), second.addr()];
    assert_eq!(subject.ask_a("known.test.", &upstreams).await, GOOD);
    fickle.goes_on();
    become_last(&subject, first, &upstreams).await;

    // Probes run in the background. They repeat a query that the upstream has answered before.
    first.forget();
    eventually(PATIENCE, || async {
        subject.ask_a("x.test.", &upstreams).await;
        first.count_of("known.test.", "A") > 0
    })
    .await;
    assert_eq!(first.count_of("x.test.", "A"), 0);

    fickle.goes_on();
    let is_back = || async { subject.ask_a("x.test.", &upstreams).await == GOOD };
    eventually(PATIENCE, is_back).await;
}

/// An upstream whose port is closed does not delay queries. Once the port is open, the upstream is
/// used.
#[tokio::test]
async fn upstream_with_closed_port_is_skipped() {
    let good = Upstream::start(answers_with(2)).await;
    let subject = Subject::new(ForwardLimits::default());
    let upstreams = [unused_address(), good.addr()];
    for n in 0..10 {
        let asked = Instant::now();
        let reply = subject.ask_a(&format!("n{n}.test."), &upstreams).await;
        assert_eq!(reply, OTHER);
        assert!(asked.elapsed() < 500 * MS, "{:?}", asked.elapsed());
    }
    let _back = Upstream::start_on(upstreams[0], answers_with(1)).await;
    assert_eq!(subject.ask_a("back.test.", &upstreams).await, GOOD);
}

/// An answer that arrives after `silence_timeout` is still returned, although the next upstream has
/// been queried by then.
#[tokio::test]
async fn late_answer_is_returned_if_next_upstream_is_silent() {
    let late = Upstream::start(after(600 * MS, answers_with(1))).await;
    let quiet = Upstream::start(silent).await;
    let subject = Subject::new(ForwardLimits {
        silence_timeout: 200 * MS,
        resend_after: PATIENCE,
        ..ForwardLimits::default()
    });
    let upstreams = [late.addr(), quiet.addr()];
    for n in 0..4 {
        assert_eq!(
            subject.ask_a(&format!("n{n}.test."), &upstreams).await,
            GOOD
        );
    }
    assert_eq!(
        late.count(),
        4,
        "the late upstream must not be considered dead"
    );
    assert!(quiet.count() >= 4, "both upstreams must be queried");
}

/// After a lost datagram, the query is sent again before the budget ends.
#[tokio::test]
async fn silent_upstream_is_queried_again() {
    let upstream = Upstream::start(|asked: &Asked| {
        static LOST: AtomicBool = AtomicBool::new(false);
        if LOST.swap(true, Ordering::Relaxed) {
            answers_with(1)(asked)
        } else {
            Reaction::silence()
        }
    })
    .await;
    let subject = Subject::new(ForwardLimits {
        resend_after: 100 * MS,
        ..ForwardLimits::default()
    });
    let reply = subject.ask_a("x.test.", &[upstream.addr()]).await;
    assert_eq!(reply, GOOD);
    let asked = upstream.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(
        asked[0].packet, asked[1].packet,
        "both packets must have the same ID"
    );
    assert_eq!(
        asked[0].from, asked[1].from,
        "both packets must come from the same port: with two open ports, a forger has twice the chance to guess one"
    );
}

/// If the port of the only upstream is closed, the upstream may be restarting. The query is sent
/// again after a pause.
#[tokio::test]
async fn restarting_upstream_is_queried_again() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let address = unused_address();
        let subject = Subject::new(ForwardLimits {
            retry_pause: 1000 * MS,
            ..ForwardLimits::default()
        });
        let upstreams = [address];
        let asking = subject.ask(question("x.test.", "A", transport), &upstreams);
        let starting = async {
            eventually(PATIENCE, || async { subject.errors("refused") > 0 }).await;
            Upstream::start_on(address, answers_with(1)).await
        };
        let (reply, _upstream) = tokio::join!(asking, starting);
        assert_eq!(outcome_text(&reply), GOOD);
    }
}

/// A query waits for a limited number of upstreams at the same time. At the limit, the next
/// upstream replaces the upstream that has been silent for longest. An upstream that has failed
/// does not count towards the limit.
#[tokio::test]
async fn last_upstream_is_queried_despite_limit() {
    let silent = futures::future::join_all([(); 4].map(|()| Upstream::start(silent))).await;
    let good = Upstream::start(after(100 * MS, answers_with(5))).await;
    let silent: Vec<SocketAddr> = silent.iter().map(Upstream::addr).collect();
    let closed = [(); 4].map(|()| unused_address()).to_vec();
    for (what, mut upstreams, max_open) in [
        ("silent, one at a time", silent.clone(), 1),
        ("silent, two at a time", silent, 2),
        ("closed, one at a time", closed, 1),
    ] {
        upstreams.push(good.addr());
        let subject = Subject::new(ForwardLimits {
            max_open,
            ..ForwardLimits::default()
        });
        let reply = subject.ask_a("x.test.", &upstreams).await;
        assert_eq!(reply, "NOERROR 192.0.2.5", "{what}");
    }
}
