use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use prometheus::Registry;
use proptest::prelude::*;
use testkit::message::Edns as Opt;
use testkit::query::Query as Ask;
use testkit::reply::Reply as Answer;
use tokio::time::advance;

use super::*;
use crate::forward::{Failure, Query, Verdict, judge};
use crate::wire::Transport;

const SECOND: Duration = Duration::from_secs(1);
const SOA: &str = "test. 60 IN SOA ns.test. admin.test. 1 3600 600 86400 60";

fn upstreams(last: u8) -> Upstreams {
    [SocketAddr::from(([192, 0, 2, last], 53)).into()].into()
}

/// The query of a client as it is forwarded to `upstreams`.
fn key(ask: &Ask, upstreams: &Upstreams) -> Arc<Key> {
    let wire = ask.wire();
    let query = Query::of_client(&wire::Query::parse(&wire, Transport::Udp).unwrap());
    Arc::new(Key {
        query,
        upstreams: Arc::clone(upstreams),
    })
}

fn received(key: &Key, reply: &Answer) -> Arc<Reply> {
    match judge(&key.query, 7, &key.upstreams[0], &reply.wire()) {
        Verdict::Reply(reply) => Arc::new(reply),
        other => panic!("{other:?}"),
    }
}

struct Subject {
    cache: Cache,
}

impl Subject {
    fn new(limits: CacheLimits) -> Self {
        let metrics = CacheMetrics::new(&Registry::new()).unwrap();
        Self {
            cache: Cache::new(limits, metrics).unwrap(),
        }
    }

    fn settle(&self, ask: &Ask, upstreams: &Upstreams, reply: &Answer) {
        let key = key(ask, upstreams);
        self.cache.settle(&key, &Ok(received(&key, reply)));
    }

    fn knows(&self, ask: &Ask, upstreams: &Upstreams) -> bool {
        let wire = ask.wire();
        let at_once = self
            .cache
            .answer(
                &wire::Query::parse(&wire, Transport::Udp).unwrap(),
                upstreams,
            )
            .is_some();
        assert_eq!(
            at_once,
            self.cache.reply(&key(ask, upstreams), || false).is_some(),
            "{ask:?}"
        );
        at_once
    }
}

fn x() -> Ask {
    Ask::new("x.test.", "A").id(7)
}

fn address(ask: &Ask) -> Answer {
    Answer::to(&ask.wire()).answer("x.test. 60 IN A 192.0.2.1")
}

fn option(code: u16) -> Opt {
    Opt {
        udp: 4096,
        options: vec![(code, vec![0, 1, 24, 0, 10, 0, 0])],
        ..Opt::default()
    }
}

#[test]
fn a_reply_answers_the_questions_that_would_get_the_same() {
    let dnssec_ok = Opt {
        udp: 1232,
        dnssec_ok: true,
        ..Opt::default()
    };
    let (here, there) = (upstreams(1), upstreams(2));
    let cases: [(&str, Ask, &Upstreams, bool); 13] = [
        ("the same", x(), &here, true),
        ("another case", Ask::new("X.tEst.", "A"), &here, true),
        (
            "another list of the same upstreams",
            x(),
            &upstreams(1),
            true,
        ),
        ("EDNS", x().edns(4096), &here, true),
        ("a cookie", x().opt(option(10)), &here, true),
        ("another name", Ask::new("y.test.", "A"), &here, false),
        ("another type", Ask::new("x.test.", "AAAA"), &here, false),
        ("another class", x().class("HS"), &here, false),
        ("no RD", x().flags(""), &here, false),
        ("AD", x().flags("rd ad"), &here, false),
        ("CD", x().flags("rd cd"), &here, false),
        ("DO", x().opt(dnssec_ok), &here, false),
        ("other upstreams", x(), &there, false),
    ];
    let subject = Subject::new(CacheLimits::default());
    subject.settle(&x(), &here, &address(&x()));
    for (what, ask, upstreams, known) in &cases {
        assert_eq!(subject.knows(ask, upstreams), *known, "{what}");
    }
    // The queries are also cached apart from each other.
    for (_, ask, upstreams, _) in cases
        .iter()
        .filter(|case| !case.3 && case.0 != "another name")
    {
        let (ask, rtype) = (
            ask.clone().id(7),
            if ask.wire().contains(&28) {
                "AAAA"
            } else {
                "A"
            },
        );
        let data = if rtype == "AAAA" {
            "fd00::1"
        } else {
            "192.0.2.2"
        };
        subject.settle(
            &ask,
            upstreams,
            &Answer::to(&ask.wire()).answer(&format!("x.test. 60 IN {rtype} {data}")),
        );
        assert!(subject.knows(&ask, upstreams), "{ask:?}");
    }
    assert_eq!(subject.cache.metrics.entries.get(), 8);
}

#[test]
fn replies_that_depend_on_who_asks_are_not_kept() {
    let here = upstreams(1);
    let subject = Subject::new(CacheLimits::default());
    let transfer = Ask::new("x.test.", "TYPE252").id(7);
    for ask in [x().opt(option(8)), x().opt(option(65_001)), transfer] {
        subject.settle(&ask, &here, &address(&ask).authority(SOA));
        assert!(!subject.knows(&ask, &here), "{ask:?}");
    }
    assert_eq!(subject.cache.metrics.entries.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_upstreams_last_word_counts_and_failures_are_none() {
    let limits = CacheLimits {
        stale: 3600 * SECOND,
        ..CacheLimits::default()
    };
    let reply = |rcode: &str| Answer::to(&x().wire()).rcode(rcode);
    let failed = || {
        Err(ForwardError::AllFailed(
            [(upstreams(1)[0].clone(), Failure::Timeout)].into(),
        ))
    };
    let cases: [(&str, Result<Answer, ForwardError>, Option<u16>); 10] = [
        ("an address", Ok(address(&x())), Some(0)),
        ("NXDOMAIN", Ok(reply("NXDOMAIN").authority(SOA)), Some(3)),
        ("NXDOMAIN that cannot be kept", Ok(reply("NXDOMAIN")), None),
        (
            "a TTL of zero",
            Ok(reply("NOERROR").answer("x.test. 0 IN A 192.0.2.1")),
            None,
        ),
        ("SERVFAIL", Ok(reply("SERVFAIL").authority(SOA)), Some(0)),
        ("REFUSED", Ok(reply("REFUSED").authority(SOA)), Some(0)),
        ("FORMERR", Ok(reply("FORMERR")), Some(0)),
        ("silence", failed(), Some(0)),
        ("too many questions", Err(ForwardError::Overloaded), Some(0)),
        ("the end", Err(ForwardError::Stopped), Some(0)),
    ];
    for (what, outcome, kept) in cases {
        let (subject, here) = (Subject::new(limits), upstreams(1));
        let key = key(&x(), &here);
        subject.settle(&x(), &here, &address(&x()));
        advance(61 * SECOND).await;
        assert!(!subject.knows(&x(), &here), "{what}: not fresh");
        subject
            .cache
            .settle(&key, &outcome.map(|reply| received(&key, &reply)));
        let rest = subject
            .cache
            .instead_of(Err(ForwardError::Overloaded), &key);
        assert_eq!(rest.ok().map(|reply| reply.rcode), kept, "{what}");
        let others = Answer::to(&x().wire()).rcode("FORMERR");
        let formerr = subject.cache.instead_of(Ok(received(&key, &others)), &key);
        assert_eq!(
            formerr.unwrap().rcode,
            rcode::FORMERR,
            "{what}: that is an answer"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_again_is_one_and_the_others_need_not_wait() {
    let limits = CacheLimits {
        stale: 3600 * SECOND,
        recheck: 30 * SECOND,
        ..CacheLimits::default()
    };
    let (subject, here) = (Subject::new(limits), upstreams(1));
    let key = key(&x(), &here);
    subject.settle(&x(), &here, &address(&x()));
    advance(61 * SECOND).await;
    assert!(subject.cache.reply(&key, || false).is_none());
    subject.settle(&x(), &here, &Answer::to(&x().wire()).rcode("SERVFAIL"));
    assert!(subject.knows(&x(), &here), "answered at once from now on");
    advance(30 * SECOND).await;
    let refresh: Vec<bool> = (0..5)
        .map(|_| subject.cache.reply(&key, || false).unwrap().1)
        .collect();
    assert_eq!(refresh, [true, false, false, false, false]);
    assert_eq!(
        (
            subject.cache.metrics.stale.get(),
            subject.cache.metrics.misses.get()
        ),
        (7, 1)
    );
    subject.settle(&x(), &here, &address(&x()));
    assert!(subject.knows(&x(), &here));
    assert_eq!(subject.cache.metrics.hits.get(), 2);
}

/// A query, and a TXT reply of about `octets` octets.
fn text(name: &str, octets: usize) -> (Ask, Answer) {
    let ask = Ask::new(name, "TXT").id(7);
    let strings = vec![format!("\"{}\"", "t".repeat(200)); octets / 200 + 1].join(" ");
    let reply = Answer::to(&ask.wire()).answer(&format!("{name} 60 IN TXT {strings}"));
    (ask, reply)
}

#[test]
fn names_asked_for_once_do_not_push_out_those_asked_for_often() {
    let (subject, here) = (
        Subject::new(CacheLimits {
            entries: 500,
            ..CacheLimits::default()
        }),
        upstreams(1),
    );
    let often: Vec<_> = (0..50)
        .map(|n| text(&format!("often-{n}.test."), 100))
        .collect();
    for (ask, reply) in &often {
        subject.settle(ask, &here, reply);
    }
    for n in 0..5000 {
        let (ask, reply) = text(&format!("random-{n}.test."), 100);
        subject.settle(&ask, &here, &reply);
        subject.knows(&often[n % often.len()].0, &here);
    }
    let left = often
        .iter()
        .filter(|(ask, _)| subject.knows(ask, &here))
        .count();
    assert_eq!(left, often.len());
    assert!(subject.cache.metrics.evictions.get() >= 4500);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// The bounds hold for any number and size of replies.
    #[test]
    fn the_bounds_hold_and_the_metrics_tell_what_is_there(
        entries in prop_oneof![1..20_usize, 1..400_usize],
        replies in proptest::collection::vec((0..300_u16, prop_oneof![9 => 0..2000_usize, 1 => 0..60_000_usize]), 1..400),
    ) {
        let (subject, here) = (Subject::new(CacheLimits { entries, ..CacheLimits::default() }), upstreams(1));
        let mut names = HashSet::new();
        for (name, octets) in replies {
            let (ask, reply) = text(&format!("n{name}.test."), octets);
            subject.settle(&ask, &here, &reply);
            names.insert(name);
            let (count, bytes) = (subject.cache.metrics.entries.get(), subject.cache.metrics.bytes.get());
            prop_assert!(usize::try_from(count).unwrap() <= entries.min(names.len()), "{count} entries");
            prop_assert!(usize::try_from(bytes).unwrap() <= entries * 1024, "{bytes} bytes");
        }
        let kept: Vec<_> = subject.cache.table.iter().map(|(_, entry)| i64::from(entry.size())).collect();
        prop_assert_eq!(subject.cache.metrics.entries.get(), i64::try_from(kept.len()).unwrap());
        prop_assert_eq!(subject.cache.metrics.bytes.get(), kept.iter().sum::<i64>());
    }
}

#[test]
fn a_cache_of_nothing_is_none() {
    let metrics = CacheMetrics::new(&Registry::new()).unwrap();
    assert!(
        Cache::new(
            CacheLimits {
                entries: 0,
                ..CacheLimits::default()
            },
            metrics
        )
        .is_none()
    );
}
