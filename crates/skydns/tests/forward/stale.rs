//! Stale replies while one or all upstreams are known to be dead.

use std::net::SocketAddr;
use std::time::Duration;

use skydns::forward::ForwardLimits;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cache::hour_of_stale_answers;
use crate::clock::StoppedClock;
use crate::support::{Does, Fickle, GOOD, Subject, a, good, silent};

const NAMES: [&str; 3] = ["x.test.", "y.test.", "z.test."];

/// Reactions of an upstream that can be made silent.
const MORTAL: &[Does] = &[good, silent];

/// While all upstreams are dead, a query for a name with a stale reply is answered at once. For
/// each name, one query is also sent to the first upstream, to refresh the reply.
#[tokio::test]
async fn dead_upstreams_do_not_delay_stale_answers() {
    let first = Fickle::start(MORTAL).await;
    let second = Fickle::start(MORTAL).await;
    let upstreams = [first.upstream.addr(), second.upstream.addr()];
    let subject = Subject::with_cache(ForwardLimits::default(), hour_of_stale_answers());
    for name in NAMES {
        assert_eq!(subject.ask_a(name, &upstreams).await, GOOD);
    }
    first.goes_on();
    second.goes_on();
    expire_and_kill(&subject, upstreams).await;

    let clock = StoppedClock::stop();
    for name in NAMES {
        first.upstream.forget();
        second.upstream.forget();
        for _ in 0..3 {
            let answer = answer_at_once(&clock, &subject, name, upstreams).await;
            assert_eq!(answer, GOOD, "{name}");
        }
        let is_queried = || first.upstream.count_of(name, "A") == 1;
        clock.until(name, is_queried).await;
    }
    drop(clock);
}

/// While one upstream still works, a query for a name with a stale reply waits for the reply of
/// this upstream.
#[tokio::test]
async fn stale_name_waits_for_living_upstream() {
    let first = Fickle::start(MORTAL).await;
    let second = Fickle::start(MORTAL).await;
    let upstreams = [first.upstream.addr(), second.upstream.addr()];
    let subject = Subject::with_cache(ForwardLimits::default(), hour_of_stale_answers());
    assert_eq!(subject.ask_a("x.test.", &upstreams).await, GOOD);
    first.goes_on();
    expire_and_kill(&subject, [first.upstream.addr(); 2]).await;
    second.upstream.forget();

    let clock = StoppedClock::stop();
    let answer = answer_at_once(&clock, &subject, "x.test.", upstreams).await;
    assert_eq!(answer, GOOD);
    assert_eq!(second.upstream.count_of("x.test.", "A"), 1);
    second.goes_on();
    let mut asking = Box::pin(subject.ask(a("new.test."), &upstreams));
    clock.turn().await;
    assert!(
        futures::poll!(asking.as_mut()).is_pending(),
        "a query for a name that is not cached must wait"
    );
}

/// Lets the cached replies expire, and sends queries until the silent upstreams are considered
/// dead.
async fn expire_and_kill(subject: &Subject, upstreams: [SocketAddr; 2]) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    for n in 0..4 {
        subject.ask_a(&format!("n{n}.test."), &upstreams).await;
    }
    tokio::time::resume();
    for upstream in upstreams {
        assert!(subject.forwarder.is_down(&upstream.into()));
    }
}

/// Sends a query and returns the answer, which must come without waiting for a timer.
async fn answer_at_once(
    clock: &StoppedClock,
    subject: &Subject,
    name: &'static str,
    upstreams: [SocketAddr; 2],
) -> String {
    let asked = Instant::now();
    let mut tasks = JoinSet::new();
    let asking = tasks.spawn({
        let subject = subject.clone();
        async move { subject.ask_a(name, &upstreams).await }
    });
    clock.until(name, || asking.is_finished()).await;
    assert_eq!(asked.elapsed(), Duration::ZERO, "{name}");
    tasks.join_next().await.unwrap().unwrap()
}
