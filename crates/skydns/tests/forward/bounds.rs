//! Limits on queries in flight. A query in flight continues after its client has disconnected. If
//! an identical query to the same upstreams is already in flight, a caller can join that query, and
//! then gets its outcome.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::join_all;
use skydns::forward::ForwardLimits;
use testkit::eventually;
use testkit::query::Query as Ask;
use testkit::upstream::Upstream;

use crate::support::{
    Fickle, GOOD, PATIENCE, Subject, a, answers_with, good, opt, outcome_text, silent,
};

const OVERLOADED: &str = "too many queries in flight";

#[tokio::test]
async fn different_queries_are_sent_separately() {
    let first = Upstream::start(silent).await;
    let second = Upstream::start(silent).await;
    let subject = Subject::new(ForwardLimits::default());
    let x = || Ask::new("x.test.", "A");
    let dnssec_ok = opt(1232, true, &[]);
    let subnet = opt(1232, false, &[(8, &[0, 1, 24, 0, 10, 0, 0])]);
    let queries = [
        x(),
        Ask::new("x.test.", "AAAA"),
        x().class("CH"),
        x().flags(""),
        x().flags("rd cd"),
        x().flags("rd ad"),
        x().opt(dnssec_ok),
        x().opt(subnet),
    ];
    let count = queries.len() as u64;
    let here = [first.addr()];
    let there = [second.addr()];
    let asking = join_all(queries.map(|query| subject.ask(query.into(), &here)));
    let elsewhere = subject.ask(a("x.test."), &there);
    let seen = eventually(PATIENCE, || async {
        subject.count("in_flight") == count + 1 && subject.count("joined_total") == 0
    });
    tokio::select! {
        _ = asking => panic!("a query ended before all queries were in flight"),
        _ = elsewhere => panic!("a query ended before all queries were in flight"),
        () = seen => {}
    }
}

#[tokio::test]
async fn joined_callers_are_bounded() {
    let upstream = Upstream::start(silent).await;
    let subject = Subject::new(ForwardLimits {
        max_joined: 10,
        budget: Duration::from_millis(300),
        ..ForwardLimits::default()
    });
    let upstreams = [upstream.addr()];
    let outcomes = join_all((0..30).map(|_| subject.ask_a("x.test.", &upstreams))).await;
    let rejected = outcomes
        .iter()
        .filter(|outcome| *outcome == OVERLOADED)
        .count();
    assert_eq!(rejected, 30 - 10 - 1);
    assert_eq!(subject.count("overloaded_total"), rejected as u64);
    // After the timeout, ten callers may join a query again.
    let outcomes = join_all((0..11).map(|_| subject.ask_a("y.test.", &upstreams))).await;
    assert!(
        outcomes.iter().all(|outcome| outcome == "failed: Timeout"),
        "{outcomes:?}"
    );
}

/// 10,000 queries to a dead upstream: the queries beyond `max_in_flight_per_route` are rejected at
/// once. The other queries use a limited number of sockets, and do not block queries to other
/// upstreams. Each query comes from a different client.
#[tokio::test]
async fn queries_to_dead_upstream_are_bounded_per_route() {
    const QUESTIONS: usize = 10_000;
    const SHARE: usize = 200;
    let dead = Upstream::start(silent).await;
    let good = Upstream::start(answers_with(1)).await;
    let limits = ForwardLimits {
        max_in_flight: 300,
        max_in_flight_per_route: SHARE,
        ..ForwardLimits::default()
    };
    let subject = Subject::new(limits);
    let upstreams = [dead.addr()];

    let started = Instant::now();
    let mut hanging = Vec::new();
    let mut rejected = 0;
    for n in 0..QUESTIONS {
        let mut asking = Box::pin(subject.ask(a(&format!("n{n}.test.")), &upstreams));
        match asking.as_mut().now_or_never() {
            Some(outcome) => {
                assert_eq!(outcome_text(&outcome), OVERLOADED);
                rejected += 1;
            }
            None => hanging.push(asking),
        }
    }
    // If all queries were started within a second, no query has timed out yet.
    if started.elapsed() < Duration::from_secs(1) {
        assert_eq!((hanging.len(), rejected), (SHARE, QUESTIONS - SHARE));
    }
    for n in 0..50 {
        let asked = Instant::now();
        let answer = subject.ask_a(&format!("n{n}.test."), &[good.addr()]).await;
        assert_eq!(answer, GOOD);
        assert!(asked.elapsed() < Duration::from_secs(1));
    }
    for outcome in join_all(hanging).await {
        assert_eq!(outcome_text(&outcome), "failed: Timeout");
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    let sockets: HashSet<_> = dead.asked().iter().map(|asked| asked.from).collect();
    let sockets = sockets.len();
    // The probe of the upstream may use one more socket.
    assert!(sockets <= QUESTIONS - rejected + 1, "{sockets} sockets");
    assert_eq!(subject.count("in_flight"), 0);
    let later = subject.ask_a("after.test.", &upstreams).await;
    assert_ne!(later, OVERLOADED, "a later query must be admitted");
}

/// The default limits allow a burst of 200 queries from different clients.
#[tokio::test]
async fn query_burst_is_answered() {
    let upstream = Upstream::start(answers_with(1)).await;
    let subject = Subject::new(ForwardLimits::default());
    let upstreams = [upstream.addr()];
    let names: Vec<_> = (0..200).map(|n| format!("n{n}.test.")).collect();
    let outcomes = join_all(names.iter().map(|name| subject.ask_a(name, &upstreams))).await;
    assert!(
        outcomes.iter().all(|outcome| outcome == GOOD),
        "{outcomes:?}"
    );
}

/// A route is a list of upstreams, with a maximum number of queries in flight. Each of `n` heavy
/// clients gets `1/(n + 1)` of this number. An equal share stays free for other clients.
#[tokio::test]
async fn heavy_client_leaves_places_to_others() {
    for (heavy, each) in [(1, 60), (2, 40), (5, 20)] {
        let dead = Upstream::start(silent).await;
        let good = Upstream::start(answers_with(1)).await;
        let subject = Subject::new(ForwardLimits {
            max_in_flight: 160,
            max_in_flight_per_route: 120,
            ..ForwardLimits::default()
        });
        let upstreams = [dead.addr()];
        let mut hanging = Vec::new();
        let mut ask = |client: u8, n: usize| {
            let client = [10, 0, 0, client].into();
            let query = a(&format!("n{n}-{client}.test."));
            let subject = subject.clone();
            let asking = async move { subject.ask_as(client, query, &upstreams).await };
            let mut asking = Box::pin(asking);
            let admitted = asking.as_mut().now_or_never().is_none();
            hanging.extend(admitted.then_some(asking));
            admitted
        };
        let mut admitted = 0;
        for n in 0..200 {
            admitted += (0..heavy).filter(|client| ask(*client, n)).count();
        }
        assert_eq!(admitted, usize::from(heavy) * each, "{heavy} heavy clients");
        let light = (0..10).filter(|n| ask(100, *n)).count();
        assert_eq!(
            light, 10,
            "with {heavy} heavy clients, all queries of a light client must be admitted"
        );
        let elsewhere = subject.ask_a("x.test.", &[good.addr()]).await;
        assert_eq!(elsewhere, GOOD, "another route must not be affected");
    }
}

#[tokio::test]
async fn total_in_flight_is_bounded() {
    let upstreams = [Upstream::start(silent).await, Upstream::start(silent).await];
    let subject = Subject::new(ForwardLimits {
        max_in_flight: 3,
        max_in_flight_per_route: 2,
        ..ForwardLimits::default()
    });
    let mut hanging = Vec::new();
    // Each question comes from a different client. The third question exceeds the limit of its
    // route, and the fifth exceeds the total limit.
    for (n, (route, overloaded)) in [(0, false), (0, false), (0, true), (1, false), (1, true)]
        .into_iter()
        .enumerate()
    {
        let upstream = [upstreams[route].addr()];
        let subject = subject.clone();
        let mut asking =
            Box::pin(async move { subject.ask_a(&format!("n{n}.test."), &upstream).await });
        let outcome = asking.as_mut().now_or_never();
        let expected = overloaded.then_some(OVERLOADED);
        assert_eq!(outcome.as_deref(), expected, "question {n}");
        if outcome.is_none() {
            hanging.push(asking);
        }
    }
}

#[tokio::test]
async fn joined_caller_gets_answer_if_first_caller_leaves() {
    let fickle = Fickle::start(&[silent, good]).await;
    let subject = Subject::new(ForwardLimits {
        resend_after: Duration::from_millis(700),
        ..ForwardLimits::default()
    });
    let upstreams = fickle.upstreams();
    let mut first = Box::pin(subject.ask(a("x.test."), &upstreams));
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = Box::pin(subject.ask(a("x.test."), &upstreams));
    assert!(second.as_mut().now_or_never().is_none());
    eventually(PATIENCE, || async { fickle.upstream.count() > 0 }).await;
    drop(first);
    fickle.goes_on();

    // The upstream answers when the first caller's query is sent again. `requests_total` does not
    // count the repeated packet. So a count of 1 shows that the second caller's query was not sent.
    assert_eq!(outcome_text(&second.await), GOOD);
    assert_eq!(subject.count("requests_total"), 1);
}

#[tokio::test]
async fn abandoned_query_leaves_no_state() {
    let upstream = Upstream::start(silent).await;
    let subject = Subject::new(ForwardLimits {
        budget: Duration::from_millis(200),
        ..ForwardLimits::default()
    });
    let upstreams = [upstream.addr()];
    for n in 0..20 {
        let asking = subject.ask(a(&format!("n{n}.test.")), &upstreams);
        assert!(asking.now_or_never().is_none());
    }
    eventually(PATIENCE, || async { upstream.count() == 20 }).await;
    eventually(PATIENCE, || async { subject.count("in_flight") == 0 }).await;
}

#[tokio::test]
async fn shutdown_ends_all_queries() {
    let upstream = Upstream::start(silent).await;
    let subject = Subject::new(ForwardLimits::default());
    let upstreams = [upstream.addr()];
    let asking =
        join_all((0..10).map(|n| subject.ask_a(["x.test.", "y.test."][n % 2], &upstreams)));
    let started = Instant::now();
    let stopping = async {
        eventually(PATIENCE, || async { upstream.count() > 0 }).await;
        subject.forwarder.shutdown().await;
    };
    let (outcomes, ()) = tokio::join!(asking, stopping);
    assert_eq!(outcomes, ["shutting down"; 10]);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(subject.count("in_flight"), 0);
    let late = subject.ask_a("late.test.", &upstreams).await;
    assert_eq!(late, "shutting down");
}
