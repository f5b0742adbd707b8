use std::net::{IpAddr, SocketAddr};

use wire::{
    rcode::{NOERROR, SERVFAIL},
    rtype,
};

use super::*;
use crate::forward::UpstreamQuery;

const SECOND: Duration = Duration::from_secs(1);

fn upstream(n: u8) -> Upstream {
    SocketAddr::from(([192, 0, 2, n], 53)).into()
}

fn question(name: &[u8]) -> Arc<QueryKey> {
    let query = UpstreamQuery::new(name, rtype::A);
    Arc::new(QueryKey {
        query,
        upstreams: [upstream(1), upstream(2)].into(),
    })
}

fn name(question: &Arc<QueryKey>) -> &[u8] {
    &question.query.name
}

/// The last octets of the upstreams, in order: those alive, `|`, and the dead ones. If upstreams
/// are to be probed, `, probe` and their last octets follow.
fn ordered(health: &UpstreamHealth, upstreams: &[u8], now: Instant) -> String {
    let upstreams: Vec<_> = upstreams.iter().map(|n| upstream(*n)).collect();
    let order = health.order(&upstreams, now);
    let octet = |upstream: &Upstream| match upstream.server.ip {
        IpAddr::V4(ip) => format!(" {}", ip.octets()[3]),
        IpAddr::V6(_) => String::new(),
    };
    let (dead, alive): (Vec<_>, Vec<_>) = order.candidates.iter().partition(|one| one.dead);
    assert!(order.candidates.is_sorted_by_key(|one| one.dead));
    let alive: String = alive.iter().map(|one| octet(&one.upstream)).collect();
    let dead: String = dead.iter().map(|one| octet(&one.upstream)).collect();
    let probes: String = order
        .probes
        .iter()
        .map(|probe| octet(&probe.upstream))
        .collect();
    let probes = if probes.is_empty() {
        probes
    } else {
        format!(", probe{probes}")
    };
    format!("{alive} |{dead}{probes}").trim().to_owned()
}

/// Makes the upstream silent to two names and to the probe.
fn kill(health: &UpstreamHealth, n: u8, now: Instant) {
    for name in [b"\x01a\0", b"\x01b\0"] {
        health.record_silence(&upstream(n), &question(name), now, now);
    }
    health.record_probe_failure(&upstream(n), now, now, true);
}

#[test]
fn upstreams_keep_configured_order() {
    let (health, now) = (UpstreamHealth::default(), Instant::now());
    assert_eq!(ordered(&health, &[3, 1, 3, 2, 1], now), "3 1 2 |");
    assert_eq!(ordered(&health, &[], now), "|");
}

#[test]
fn dead_upstreams_come_last() {
    let (health, now) = (UpstreamHealth::default(), Instant::now());
    for (killed, order) in [(1, "2 3 | 1"), (3, "2 | 1 3"), (2, "| 1 2 3")] {
        kill(&health, killed, now);
        assert_eq!(ordered(&health, &[1, 2, 3], now), order);
    }
}

/// An upstream is probed after two unanswered names without an answer in between. The upstream is
/// dead only if the probe gets no answer, too.
#[test]
fn silence_causes_probe_only_after_two_unanswered_names() {
    let (health, start) = (UpstreamHealth::default(), Instant::now());
    let [a, b] = [question(b"\x01a\0"), question(b"\x01b\0")];
    let silent = |question: &Arc<QueryKey>, seconds: u32| {
        health.record_silence(
            &upstream(1),
            question,
            start + SECOND * seconds,
            start + SECOND * (seconds + 1),
        )
    };
    let answered = |question: &Arc<QueryKey>, rcode: u16, seconds: u32| {
        health.record_answer(&upstream(1), question, rcode, start + SECOND * seconds);
    };
    for seconds in 0..5 {
        assert!(
            silent(&a, seconds).is_none(),
            "silence to one name, even if repeated, must cause no probe"
        );
    }
    assert!(
        silent(&question(b"\x01A\0"), 5).is_none(),
        "a name that differs only in upper and lower case must be the same name"
    );
    answered(&question(b"\x05known\0"), NOERROR, 10);
    assert!(
        silent(&b, 11).is_none(),
        "the answer in between must clear the first silence"
    );
    answered(&question(b"\x04fail\0"), SERVFAIL, 20);
    assert!(
        silent(&a, 19).is_none() && silent(&b, 19).is_none(),
        "silence must not count if another query was answered meanwhile"
    );
    assert!(silent(&a, 21).is_none());
    let probe =
        silent(&b, 21).expect("silence to two names since the last answer must cause a probe");
    assert_eq!(
        name(&probe),
        b"\x05known\0",
        "the probe must ask for a name that the upstream answered"
    );
    assert!(
        silent(&question(b"\x01c\0"), 22).is_none(),
        "there must be only one probe at a time"
    );
    let order = ordered(&health, &[1, 2], start + SECOND * 30);
    assert_eq!(
        order, "1 2 |",
        "the upstream must not be dead before the probe fails"
    );
}

#[test]
fn only_unanswered_probe_marks_upstream_dead() {
    let now = Instant::now();
    let [a, b] = [question(b"\x01a\0"), question(b"\x01b\0")];
    let suspected = || {
        let health = UpstreamHealth::default();
        health.record_silence(&upstream(1), &a, now, now);
        let probe = health
            .record_silence(&upstream(1), &b, now, now)
            .expect("silence to two names must cause a probe");
        // Without an earlier answer, the probe repeats the query.
        assert_eq!(name(&probe), name(&b));
        health
    };
    for (what, dead, order) in [
        ("silence", true, "2 | 1"),
        ("no socket to ask with", false, "1 2 |"),
    ] {
        let health = suspected();
        health.record_probe_failure(&upstream(1), now, now, dead);
        assert_eq!(ordered(&health, &[1, 2], now), order, "{what}");
    }
    let health = suspected();
    health.record_answer(&upstream(1), &a, NOERROR, now + SECOND);
    health.record_probe_failure(&upstream(1), now, now + SECOND, true);
    let order = ordered(&health, &[1, 2], now);
    assert_eq!(
        order, "1 2 |",
        "an upstream that answered a client meanwhile must stay alive"
    );
}

#[test]
fn dead_upstream_is_probed_until_answer() {
    let (health, mut now) = (UpstreamHealth::default(), Instant::now());
    kill(&health, 1, now);
    for round in 0..5 {
        let early = now + PROBE_EVERY - Duration::from_millis(1);
        assert_eq!(ordered(&health, &[1, 2], early), "2 | 1", "round {round}");
        now += PROBE_EVERY;
        let due = ordered(&health, &[1, 2], now);
        assert_eq!(due, "2 | 1, probe 1", "round {round}");
        let again = ordered(&health, &[1, 2], now);
        assert_eq!(again, "2 | 1", "there must be only one probe at a time");
        // A failed probe does not make a dead upstream alive, even if the cause is a lack of local
        // sockets.
        health.record_probe_failure(&upstream(1), now, now, round % 2 == 0);
    }
    health.record_answer(&upstream(1), &question(b"\x01a\0"), NOERROR, now);
    let order = ordered(&health, &[1, 2], now);
    assert_eq!(
        order, "1 2 |",
        "its first answer must make the upstream alive again"
    );
}

#[test]
fn tcp_silence_expires() {
    let (health, now) = (UpstreamHealth::default(), Instant::now());
    assert!(!health.was_silent_over_tcp(&upstream(1), now));
    health.record_tcp(&upstream(1), now, true);
    health.record_answer(&upstream(1), &question(b"\x01a\0"), NOERROR, now);
    assert!(
        health.was_silent_over_tcp(&upstream(1), now + TCP_PAUSE - SECOND),
        "an answer over UDP must not end the silence over TCP"
    );
    assert!(!health.was_silent_over_tcp(&upstream(1), now + TCP_PAUSE));
    health.record_tcp(&upstream(1), now, false);
    assert!(!health.was_silent_over_tcp(&upstream(1), now));
}

#[test]
fn least_recently_used_state_is_evicted() {
    let (health, start) = (UpstreamHealth::default(), Instant::now());
    let numbered = |n: usize| {
        let port = u16::try_from(n).unwrap();
        Upstream::from(SocketAddr::from(([192, 0, 2, 1], port)))
    };
    for n in 0..MAX_REMEMBERED {
        health.record_tcp(&numbered(n), start + Duration::from_millis(n as u64), true);
    }
    health.order(&[numbered(0)], start + SECOND);
    let a = question(b"\x01a\0");
    health.record_answer(&numbered(1000), &a, NOERROR, start + 2 * SECOND);
    assert_eq!(health.0.lock().len(), MAX_REMEMBERED);
    let is_remembered = |n| health.was_silent_over_tcp(&numbered(n), start);
    assert!(is_remembered(0), "a state that was used later must be kept");
    assert!(
        !is_remembered(1),
        "the least recently used state must be evicted"
    );
}

/// Outcome of a query; `Died` means all steps that make an upstream dead.
#[derive(Clone, Copy)]
enum Past {
    Silent,
    /// The connection was refused.
    Refused,
    Answered,
    /// The upstream answered with SERVFAIL.
    ServerFailure,
    Died,
}

#[test]
fn upstream_is_down_only_after_recent_failures() {
    use Past::{Answered, Died, Refused, ServerFailure, Silent};
    let (first, now) = (upstream(1), Instant::now());
    let cases: [(&str, &[Past], bool); 11] = [
        ("never asked", &[], false),
        ("lost packets", &[Silent, Silent], false),
        ("silent from the start", &[Silent; 3], true),
        ("no listener", &[Refused; 3], true),
        (
            "answers in between",
            &[Refused, Refused, Answered, Refused],
            false,
        ),
        (
            "slow names",
            &[Answered, Silent, Silent, Silent, Silent],
            false,
        ),
        ("died", &[Answered, Died, Silent], true),
        ("died, and is back", &[Died, Silent, Answered], false),
        (
            "died, and then answers SERVFAIL",
            &[Answered, Died, Silent, ServerFailure],
            true,
        ),
        (
            "died, then answers SERVFAIL, and is back",
            &[Answered, Died, Silent, ServerFailure, Answered],
            false,
        ),
        (
            "died, then answers SERVFAIL, and never gave a usable answer",
            &[Died, Silent, ServerFailure],
            false,
        ),
    ];
    for (case, past, down) in cases {
        let health = UpstreamHealth::default();
        for event in past {
            match event {
                Silent => health.record_failure(&first, true, now),
                Refused => health.record_failure(&first, false, now),
                Answered => health.record_answer(&first, &question(b"\x01a\0"), NOERROR, now),
                ServerFailure => {
                    health.record_answer(&first, &question(b"\x01a\0"), SERVFAIL, now);
                }
                Died => kill(&health, 1, now),
            }
        }
        assert_eq!(health.is_down(&first, now), down, "{case}");
        assert!(
            !health.is_down(&first, now + 60 * SECOND),
            "{case}: a failure must not count after a minute"
        );
    }
}
