//! In which order upstreams are asked, and what a dead or slow one costs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skydns::forward::{Limits, Transport};
use testkit::eventually;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};

use crate::support::{PATIENCE, Subject, a, is, nobody, question, refuses, says, short, silent, told};

const MS: Duration = Duration::from_millis(1);

fn after(
    delay: Duration,
    handler: impl Fn(&Asked) -> Reaction + Send + Sync + 'static,
) -> impl Fn(&Asked) -> Reaction {
    move |asked| handler(asked).after(delay)
}

/// Limits under which a busy machine does not look like a slow upstream, and a second of silence does.
fn steady() -> Limits {
    Limits { hedge_after: 500 * MS, hedge_after_suspect: 500 * MS, ..Limits::default() }
}

#[tokio::test]
async fn the_first_upstream_is_preferred() {
    let (first, second) = (Upstream::start(says(1)).await, Upstream::start(says(2)).await);
    let subject = Subject::new(steady());
    for n in 0..20 {
        let reply = subject.ask_a(&format!("n{n}.test."), &[first.addr(), second.addr()]).await;
        assert_eq!(reply, "NOERROR 192.0.2.1");
    }
    assert_eq!(second.count(), 0);
}

/// One dead upstream of three costs p99 no more than the round trip and 100 ms.
#[tokio::test]
async fn a_silent_upstream_costs_little() {
    let dead = Upstream::start(silent).await;
    let (second, third) = (Upstream::start(says(2)).await, Upstream::start(says(3)).await);
    let mut round_trip = Duration::ZERO;
    let subject = Subject::new(Limits::default());
    for n in 0..100 {
        let asked = Instant::now();
        subject.ask(a(&format!("direct{n}.test.")), &[second.addr()]).await.unwrap();
        round_trip = round_trip.max(asked.elapsed());
    }

    let subject = Subject::new(Limits::default());
    let mut times = Vec::new();
    for n in 0..200 {
        let asked = Instant::now();
        let upstreams = [dead.addr(), second.addr(), third.addr()];
        assert_eq!(subject.ask_a(&format!("n{n}.test."), &upstreams).await, "NOERROR 192.0.2.2");
        times.push(asked.elapsed());
    }
    times.sort();
    let p99 = times[times.len() * 99 / 100];
    assert!(p99 <= round_trip + 100 * MS, "p99 {p99:?}, round trip {round_trip:?}");
}

#[tokio::test]
async fn a_dead_upstream_is_remembered_and_found_again() {
    let (dead, good) = (Arc::new(AtomicBool::new(true)), Upstream::start(says(2)).await);
    let is_dead = Arc::clone(&dead);
    let first =
        Upstream::start(
            move |asked: &Asked| {
                if is_dead.load(Ordering::Relaxed) { Reaction::silence() } else { says(1)(asked) }
            },
        )
        .await;
    // The budget is long for a good one and short for a dead one.
    let limits = Limits { budget: 800 * MS, ..Limits::default() };
    let subject = Subject::new(Limits {
        probation: skydns::forward::Probation { first: 2000 * MS, longest: 2000 * MS },
        ..limits
    });
    let upstreams = [first.addr(), good.addr()];
    let mut n = 0;
    let mut ask_anew = async || {
        n += 1;
        let before = first.count();
        let reply = subject.ask_a(&format!("n{n}.test."), &upstreams).await;
        (reply, first.count() > before)
    };

    // Some questions later the dead one is not asked any more.
    let deadline = Instant::now() + PATIENCE;
    while ask_anew().await.1 {
        assert!(Instant::now() < deadline, "the dead one is still asked");
        tokio::task::yield_now().await;
    }
    assert_eq!(ask_anew().await, ("NOERROR 192.0.2.2".to_owned(), false));

    // Back to life: when its probation is over, one question finds out.
    dead.store(false, Ordering::Relaxed);
    while ask_anew().await.0 != "NOERROR 192.0.2.1" {
        assert!(Instant::now() < deadline + PATIENCE, "never asked again");
        tokio::task::yield_now().await;
    }
    assert_eq!(ask_anew().await, ("NOERROR 192.0.2.1".to_owned(), true));
}

#[tokio::test]
async fn one_that_refuses_is_passed_over_from_then_on() {
    let good = Upstream::start(says(2)).await;
    let subject = Subject::new(Limits::default());
    let upstreams = [nobody(), good.addr()];
    for n in 0..10 {
        assert_eq!(subject.ask_a(&format!("n{n}.test."), &upstreams).await, "NOERROR 192.0.2.2");
    }
    assert!(subject.errors("refused") < 5.0, "asked {} times", subject.errors("refused"));
}

/// A slow upstream is not a dead one: its late reply is listened to, if only to learn that it lives.
#[tokio::test]
async fn a_slow_upstream_stays_the_first() {
    let slow = Upstream::start(after(200 * MS, says(1))).await;
    let good = Upstream::start(says(2)).await;
    let subject = Subject::new(Limits { hedge_after: 20 * MS, ..Limits::default() });
    for n in 0..3 {
        let reply = subject.ask_a(&format!("n{n}.test."), &[slow.addr(), good.addr()]).await;
        assert_eq!(reply, "NOERROR 192.0.2.2", "a positive reply counts at once");
    }
    let label = slow.addr().to_string();
    let late = || async { is(subject.metric("request_duration_seconds", &[("upstream", &label)]), 3) };
    eventually(PATIENCE, late).await;
    subject.ask_a("last.test.", &[slow.addr(), good.addr()]).await;
    assert_eq!(slow.count(), 4, "still asked first");
    assert!(subject.errors("timeout") < 0.1);
}

/// Where the preferred upstream alone knows internal names, another's quick NXDOMAIN would be wrong.
#[tokio::test]
async fn a_negative_reply_waits_for_a_preferred_upstream_that_lives() {
    for rcode in ["NXDOMAIN", "REFUSED", "SERVFAIL", "NOERROR"] {
        let delayed = |asked: &Asked| {
            if asked.name() == "first.test." { says(1)(asked) } else { says(1)(asked).after(150 * MS) }
        };
        let (slow, quick) = (Upstream::start(delayed).await, Upstream::start(refuses(rcode)).await);
        let upstreams = [slow.addr(), quick.addr()];
        let limits = Limits { hedge_after: 30 * MS, patience: 1500 * MS, ..Limits::default() };
        let subject = Subject::new(limits);
        while subject.ask_a("first.test.", &upstreams).await != "NOERROR 192.0.2.1" {}
        quick.forget();
        assert_eq!(subject.ask_a("slow.test.", &upstreams).await, "NOERROR 192.0.2.1", "{rcode}");
        assert!(quick.count() > 0, "{rcode}: the second was asked, and did not count");
    }
}

#[tokio::test]
async fn patience_with_a_preferred_upstream_ends() {
    let turns_silent = |asked: &Asked| {
        if asked.name() == "first.test." { says(1)(asked) } else { Reaction::silence() }
    };
    let (silent, quick) = (Upstream::start(turns_silent).await, Upstream::start(refuses("NXDOMAIN")).await);
    let upstreams = [silent.addr(), quick.addr()];
    let subject = Subject::new(Limits { budget: 1800 * MS, patience: 300 * MS, ..Limits::default() });
    while subject.ask_a("first.test.", &upstreams).await != "NOERROR 192.0.2.1" {}
    let asked = Instant::now();
    assert_eq!(subject.ask_a("second.test.", &upstreams).await, "NXDOMAIN");
    assert!((300 * MS..1700 * MS).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    let asked = Instant::now();
    assert_eq!(subject.ask_a("third.test.", &upstreams).await, "NXDOMAIN");
    assert!(asked.elapsed() < 300 * MS, "it is not trusted any more, {:?}", asked.elapsed());
}

#[tokio::test]
async fn a_negative_reply_does_not_wait_for_an_unknown_upstream() {
    let (silent, quick) = (Upstream::start(silent).await, Upstream::start(refuses("NXDOMAIN")).await);
    let subject = Subject::new(Limits { patience: 1500 * MS, ..Limits::default() });
    let asked = Instant::now();
    assert_eq!(subject.ask_a("x.test.", &[silent.addr(), quick.addr()]).await, "NXDOMAIN");
    assert!(asked.elapsed() < 1000 * MS, "{:?}", asked.elapsed());
}

/// SERVFAIL from one and a better answer from another who was asked meanwhile: the better counts.
#[tokio::test]
async fn servfail_waits_for_those_who_were_asked_too() {
    let slow = Upstream::start(after(100 * MS, refuses("SERVFAIL"))).await;
    let slower = Upstream::start(after(400 * MS, says(2))).await;
    let limits = Limits { hedge_after: 20 * MS, patience: 1500 * MS, ..Limits::default() };
    let subject = Subject::new(limits);
    let upstreams = [slow.addr(), slower.addr()];
    assert_eq!(subject.ask_a("x.test.", &upstreams).await, "NOERROR 192.0.2.2");
}

/// A lost datagram does not cost the whole budget.
#[tokio::test]
async fn a_silent_upstream_is_asked_again() {
    let upstream = Upstream::start(|asked: &Asked| {
        static LOST: AtomicBool = AtomicBool::new(false);
        if LOST.swap(true, Ordering::Relaxed) { says(1)(asked) } else { Reaction::silence() }
    })
    .await;
    let subject = Subject::new(Limits { resend_after: 100 * MS, ..Limits::default() });
    assert_eq!(subject.ask_a("x.test.", &[upstream.addr()]).await, "NOERROR 192.0.2.1");
    let asked = upstream.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].packet, asked[1].packet, "with the same ID");
    assert_eq!(asked[0].from, asked[1].from, "from the same port: no more to guess for others");
}

/// dnsmasq and kubelets restart: an upstream that refuses now may be there in a moment.
#[tokio::test]
async fn a_restarting_upstream_is_asked_again() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let address = nobody();
        let limits = Limits { retry_pause: 1000 * MS, ..Limits::default() };
        let subject = Subject::new(limits);
        let upstreams: [SocketAddr; 1] = [address];
        let asking = subject.ask(question("x.test.", 1, transport), &upstreams);
        let starting = async {
            eventually(PATIENCE, || async { subject.errors("refused") > 0.5 }).await;
            Upstream::start_on(address, says(1)).await
        };
        let (reply, _upstream) = tokio::join!(asking, starting);
        assert_eq!(told(&reply), "NOERROR 192.0.2.1");
    }
}

/// Once it is known that nobody is there, nobody waits for them to come back.
#[tokio::test]
async fn a_dead_upstream_alone_fails_at_once() {
    let subject = Subject::new(short());
    let upstream = nobody();
    assert_eq!(subject.ask_a("x.test.", &[upstream]).await, "failed: Refused Refused");
    assert_eq!(subject.ask_a("y.test.", &[upstream]).await, "failed: Refused");
}

#[tokio::test]
async fn no_more_than_so_many_upstreams_are_listened_to() {
    let mut upstreams = Vec::new();
    for _ in 0..5 {
        upstreams.push(Upstream::start(silent).await);
    }
    let addresses: Vec<_> = upstreams.iter().map(Upstream::addr).collect();
    let subject = Subject::new(Limits { max_open: 3, hedge_after: MS, ..short() });
    assert_eq!(subject.ask_a("x.test.", &addresses).await, "failed: Timeout Timeout Timeout");
    let asked: Vec<_> = upstreams.iter().map(|upstream| upstream.count() > 0).collect();
    assert_eq!(asked, [true, true, true, false, false]);
    // Who fails makes room for the next.
    let good =
        Upstream::start(|asked: &Asked| Reply::to(&asked.packet).answer("x.test. 1 IN A 192.0.2.1").into())
            .await;
    let addresses = [nobody(), nobody(), nobody(), nobody(), good.addr()];
    let subject = Subject::new(Limits { max_open: 1, ..Limits::default() });
    assert_eq!(subject.ask_a("x.test.", &addresses).await, "NOERROR 192.0.2.1");
}
