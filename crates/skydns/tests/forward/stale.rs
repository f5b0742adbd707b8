//! Stale replies while all upstreams are known to be dead.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use skydns::forward::ForwardLimits;
use testkit::upstream::{Asked, Reaction, Upstream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cache::hour_of_stale_answers;
use crate::clock::StoppedClock;
use crate::support::{Subject, a, answers_with, outcome_text};

const NAMES: [&str; 3] = ["x.test.", "y.test.", "z.test."];

/// An upstream that can be made silent.
async fn mortal() -> (Upstream, Arc<AtomicBool>) {
    let dead = Arc::new(AtomicBool::new(false));
    let is_dead = Arc::clone(&dead);
    let upstream = Upstream::start(move |asked: &Asked| {
        if is_dead.load(Ordering::SeqCst) {
            Reaction::silence()
        } else {
            answers_with(1)(asked)
        }
    })
    .await;
    (upstream, dead)
}

/// Each stale name is answered at once, and one query for it tells whether the upstreams are back.
#[tokio::test]
async fn stale_names_return_at_once() {
    let (first, first_dead) = mortal().await;
    let (second, second_dead) = mortal().await;
    let upstreams = [first.addr(), second.addr()];
    let subject = Subject::with_cache(ForwardLimits::default(), hour_of_stale_answers());
    for name in NAMES {
        assert_eq!(subject.ask_a(name, &upstreams).await, "NOERROR 192.0.2.1");
    }
    first_dead.store(true, Ordering::SeqCst);
    second_dead.store(true, Ordering::SeqCst);
    expire_and_kill(&subject, upstreams).await;

    let clock = StoppedClock::stop();
    for name in NAMES {
        for upstream in [&first, &second] {
            upstream.forget();
        }
        for _ in 0..3 {
            assert_eq!(
                answer_at_once(&clock, &subject, name, upstreams).await,
                "NOERROR 192.0.2.1",
                "{name}"
            );
        }
        clock.until(name, || first.count_of(name, "A") == 1).await;
    }
    drop(clock);
}

/// With one upstream that may answer, a stale name waits for it.
#[tokio::test]
async fn stale_name_waits_for_living_upstream() {
    let (first, first_dead) = mortal().await;
    let (second, second_dead) = mortal().await;
    let upstreams = [first.addr(), second.addr()];
    let subject = Subject::with_cache(ForwardLimits::default(), hour_of_stale_answers());
    assert_eq!(
        subject.ask_a("x.test.", &upstreams).await,
        "NOERROR 192.0.2.1"
    );
    first_dead.store(true, Ordering::SeqCst);
    expire_and_kill(&subject, [first.addr(); 2]).await;
    second.forget();

    let clock = StoppedClock::stop();
    assert_eq!(
        answer_at_once(&clock, &subject, "x.test.", upstreams).await,
        "NOERROR 192.0.2.1"
    );
    assert_eq!(second.count_of("x.test.", "A"), 1);
    second_dead.store(true, Ordering::SeqCst);
    let mut asking = Box::pin(subject.ask(a("new.test."), &upstreams));
    clock.turn().await;
    assert!(
        futures::poll!(asking.as_mut()).is_pending(),
        "a name that is not cached"
    );
}

/// Lets the cached replies expire, and sends queries until the silent upstreams count as dead.
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

/// The answer to a query, which may not wait for a timer.
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
        async move { outcome_text(&subject.ask(a(name), &upstreams).await) }
    });
    clock.until(name, || asking.is_finished()).await;
    assert_eq!(asked.elapsed(), Duration::ZERO, "{name}");
    tasks.join_next().await.unwrap().unwrap()
}
