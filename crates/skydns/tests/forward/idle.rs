//! Upstreams that no client has queried for some time, and upstreams without usable answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use skydns::forward::{ForwardLimits, UpstreamQuery};
use testkit::upstream::{Asked, Reaction, Upstream};
use wire::rtype;

use crate::clock::StoppedClock;
use crate::support::{GOOD, Subject, good, refuses, servfail, unused_address};

const SECOND: Duration = Duration::from_secs(1);
/// Time without a usable answer after which an upstream is probed. The tests call `probe_if_idle`
/// each second.
const IDLE: Duration = Duration::from_secs(4);
/// Maximum number of seconds until the forwarder knows of a fault, or of its end.
const BOUND: u32 = 10;

/// A fault of an upstream.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Refuses,
    Servfails,
    Silent,
}

impl Fault {
    fn react(self, asked: &Asked) -> Reaction {
        match self {
            Self::Refuses => refuses("REFUSED")(asked),
            Self::Servfails => servfail(asked),
            Self::Silent => Reaction::silence(),
        }
    }
}

/// Starts an upstream that answers while the switch is off, and has the fault while the switch is
/// on.
async fn start_faulty(fault: Fault) -> (Upstream, Arc<AtomicBool>) {
    let switch = Arc::new(AtomicBool::new(false));
    let is_faulty = Arc::clone(&switch);
    let upstream = Upstream::start(move |asked: &Asked| {
        if is_faulty.load(Ordering::Relaxed) {
            fault.react(asked)
        } else {
            good(asked)
        }
    })
    .await;
    (upstream, switch)
}

/// Starts a probe of the upstream if a probe is due. As kubedns does for the upstreams of external
/// names, the test gives two questions for the probes: the root, and the name of
/// `--upstream-probe-name`, here `example.com`. The forwarder adds the last question that got a
/// usable answer.
fn probe_if_idle(subject: &Subject, address: SocketAddr) {
    let root = UpstreamQuery::new([0], rtype::NS);
    let other = UpstreamQuery::new(b"\x07example\x03com\0", rtype::A);
    let upstreams = [(address.into(), vec![root, other])];
    subject.forwarder.probe_idle(&upstreams, IDLE);
}

/// Calls `probe_if_idle` each second until the upstream is down, or until it is up if `is_down` is
/// false. Returns the number of seconds.
async fn seconds_until(
    subject: &Subject,
    address: SocketAddr,
    is_down: bool,
    clock: &StoppedClock,
) -> u32 {
    for seconds in 0..60 {
        if subject.forwarder.is_down(&address.into()) == is_down {
            return seconds;
        }
        probe_if_idle(subject, address);
        for _ in 0..5 {
            clock.turn().await;
        }
        clock.advance(SECOND).await;
        clock.turn().await;
    }
    panic!("the state did not change within a minute");
}

#[tokio::test]
async fn idle_upstream_fault_is_known_soon() {
    for fault in [Fault::Refuses, Fault::Servfails, Fault::Silent] {
        let subject = Subject::new(ForwardLimits::default());
        let (upstream, switch) = start_faulty(fault).await;
        let address = upstream.addr();
        assert_eq!(subject.ask_a("x.test.", &[address]).await, GOOD);

        let clock = StoppedClock::stop();
        switch.store(true, Ordering::Relaxed);
        let found = seconds_until(&subject, address, true, &clock).await;
        assert!(found <= BOUND, "{fault:?} was found after {found} s");

        // No client sends a query for minutes, and the fault stays known.
        for _ in 0..180 {
            probe_if_idle(&subject, address);
            clock.turn().await;
            clock.advance(SECOND).await;
            assert!(subject.forwarder.is_down(&address.into()), "{fault:?}");
        }

        switch.store(false, Ordering::Relaxed);
        let ended = seconds_until(&subject, address, false, &clock).await;
        assert!(
            ended <= BOUND,
            "the end of {fault:?} was found after {ended} s"
        );
    }
}

/// The name of the last query with a usable answer may fail later, although the upstream works.
#[tokio::test]
async fn one_failing_name_is_no_fault() {
    for fault in [Fault::Refuses, Fault::Servfails, Fault::Silent] {
        let subject = Subject::new(ForwardLimits::default());
        let switch = Arc::new(AtomicBool::new(false));
        let is_faulty = Arc::clone(&switch);
        let upstream = Upstream::start(move |asked: &Asked| {
            if is_faulty.load(Ordering::Relaxed) && asked.name() == "x.test." {
                fault.react(asked)
            } else {
                good(asked)
            }
        })
        .await;
        let address = upstream.addr();
        assert_eq!(subject.ask_a("x.test.", &[address]).await, GOOD);

        let clock = StoppedClock::stop();
        switch.store(true, Ordering::Relaxed);
        for _ in 0..60 {
            probe_if_idle(&subject, address);
            for _ in 0..5 {
                clock.turn().await;
            }
            clock.advance(SECOND).await;
            let is_down = subject.forwarder.is_down(&address.into());
            assert!(!is_down, "{fault:?}");
        }
        let probed = upstream.count_of("x.test.", "A");
        assert!(probed > 1, "{fault:?}: the probe must query the name");
    }
}

#[tokio::test]
async fn closed_port_without_queries_is_down() {
    let subject = Subject::new(ForwardLimits::default());
    let address = unused_address();
    let clock = StoppedClock::stop();
    assert!(seconds_until(&subject, address, true, &clock).await <= BOUND);
}

#[tokio::test]
async fn busy_upstream_is_not_probed() {
    let subject = Subject::new(ForwardLimits::default());
    let upstream = Upstream::start(good).await;
    let clock = StoppedClock::stop();
    for n in 0..10 {
        subject
            .ask_a(&format!("n{n}.test."), &[upstream.addr()])
            .await;
        probe_if_idle(&subject, upstream.addr());
        clock.turn().await;
        clock.advance(SECOND).await;
    }
    assert_eq!(upstream.count(), 10);
}

/// A server that has only private names refuses the probes for the root and for `example.com`.
/// These refusals do not prove a fault. Once a client has got an answer for a private name, each
/// probe queries that name first.
#[tokio::test]
async fn server_of_private_names_stays_up() {
    let subject = Subject::new(ForwardLimits::default());
    let upstream = Upstream::start(|asked: &Asked| {
        if asked.name().ends_with("corp.test.") {
            good(asked)
        } else {
            refuses("REFUSED")(asked)
        }
    })
    .await;
    let address = upstream.addr();
    let clock = StoppedClock::stop();

    for asks in [false, true] {
        if asks {
            assert_eq!(subject.ask_a("www.corp.test.", &[address]).await, GOOD);
        }
        for _ in 0..60 {
            probe_if_idle(&subject, address);
            clock.turn().await;
            clock.advance(SECOND).await;
            assert!(
                !subject.forwarder.is_down(&address.into()),
                "a client has queried: {asks}"
            );
        }
        // Refusals do not cause additional probes: each period of length `IDLE` has at most one
        // probe, so a minute has at most 15. In the first minute, each probe has two queries. In
        // the second minute, after one query of a client, each probe has one query.
        let most = if asks { 30 + 1 + 15 } else { 30 };
        let count = upstream.count();
        assert!(
            count <= most,
            "{count} queries; a client has queried: {asks}"
        );
    }
}

/// The names in the queries of several clients, and whether the upstream is down after these
/// queries.
const FAILED_NAMES: &[(&[&str], bool)] = &[
    (&["a.test.", "a.test.", "a.test."], false),
    (&["a.test.", "b.test."], true),
    (&["a.test.", "fine.test.", "b.test."], false),
];

#[tokio::test]
async fn failures_of_two_names_in_a_row_mean_down() {
    for (names, is_down) in FAILED_NAMES {
        let subject = Subject::new(ForwardLimits::default());
        let upstream = Upstream::start(|asked: &Asked| {
            if asked.name() == "fine.test." {
                good(asked)
            } else {
                servfail(asked)
            }
        })
        .await;
        let address = upstream.addr();
        for name in *names {
            subject.ask_a(name, &[address]).await;
        }

        // If the queries have started a probe, the probe ends here.
        let clock = StoppedClock::stop();
        for _ in 0..10 {
            clock.turn().await;
        }
        let found = subject.forwarder.is_down(&address.into());
        assert_eq!(found, *is_down, "{names:?}");
    }
}
