use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use prometheus::Registry;
use proptest::prelude::*;
use testkit::message::Edns as Opt;
use testkit::query::Query as Ask;
use testkit::reply::Reply as Answer;
use tokio::time::advance;
use wire::Transport;

use super::*;
use crate::forward::{ReplyCheck, UpstreamFailure, UpstreamQuery, check_reply};

const SECOND: Duration = Duration::from_secs(1);
const SOA: &str = "test. 60 IN SOA ns.test. admin.test. 1 3600 600 86400 60";

fn upstreams(last: u8) -> UpstreamList {
    [SocketAddr::from(([192, 0, 2, last], 53)).into()].into()
}

/// The query of a client as it is forwarded to `upstreams`.
fn key(ask: &Ask, upstreams: &UpstreamList) -> Arc<QueryKey> {
    let wire = ask.wire();
    let query = UpstreamQuery::of_client(&wire::Query::parse(&wire, Transport::Udp).unwrap());
    Arc::new(QueryKey {
        query,
        upstreams: Arc::clone(upstreams),
    })
}

fn received(key: &QueryKey, reply: &Answer) -> Arc<UpstreamReply> {
    match check_reply(&key.query, 7, &key.upstreams[0], &reply.wire()) {
        ReplyCheck::Valid(reply) => Arc::new(reply),
        other => panic!("{other:?}"),
    }
}

struct Subject {
    cache: ReplyCache,
}

impl Subject {
    fn new(limits: CacheLimits) -> Self {
        let metrics = CacheMetrics::new(&Registry::new()).unwrap();
        Self {
            cache: ReplyCache::new(limits, metrics).unwrap(),
        }
    }

    fn record(&self, ask: &Ask, upstreams: &UpstreamList, reply: &Answer) {
        let key = key(ask, upstreams);
        self.cache.record_outcome(&key, &Ok(received(&key, reply)));
    }

    fn knows(&self, ask: &Ask, upstreams: &UpstreamList) -> bool {
        let wire = ask.wire();
        let at_once = self
            .cache
            .find_answer(
                &wire::Query::parse(&wire, Transport::Udp).unwrap(),
                upstreams,
            )
            .is_some();
        let is_known = self
            .cache
            .find_reply(&key(ask, upstreams), || false)
            .is_some();
        assert_eq!(at_once, is_known, "{ask:?}");
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
fn cached_reply_answers_only_queries_with_equal_key() {
    let dnssec_ok = Opt {
        udp: 1232,
        dnssec_ok: true,
        ..Opt::default()
    };
    let here = upstreams(1);
    let there = upstreams(2);
    let both: UpstreamList = [there[0].clone(), here[0].clone()].into();
    let cases: [(&str, Ask, &UpstreamList, bool); 14] = [
        ("the same", x(), &here, true),
        ("capital letters", Ask::new("X.tEst.", "A"), &here, true),
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
        ("one more upstream", x(), &both, false),
    ];
    let subject = Subject::new(CacheLimits::default());
    subject.record(&x(), &here, &address(&x()));
    for (what, ask, upstreams, known) in &cases {
        assert_eq!(subject.knows(ask, upstreams), *known, "{what}");
    }
    // A reply to a query that is not `known` gets an entry of its own.
    for (_, ask, upstreams, _) in cases
        .iter()
        .filter(|case| !case.3 && case.0 != "another name")
    {
        let ask = ask.clone().id(7);
        let is_aaaa = ask.wire().contains(&28);
        let data = if is_aaaa {
            "AAAA fd00::1"
        } else {
            "A 192.0.2.2"
        };
        let reply = Answer::to(&ask.wire()).answer(&format!("x.test. 60 IN {data}"));
        subject.record(&ask, upstreams, &reply);
        assert!(subject.knows(&ask, upstreams), "{ask:?}");
    }
    assert_eq!(subject.cache.metrics.size.entries.get(), 9);
}

/// A query is uncacheable if it has EDNS options that are forwarded to the upstreams, or if its
/// type, such as AXFR, is not a record type.
#[test]
fn reply_to_uncacheable_query_is_not_cached() {
    let here = upstreams(1);
    let subject = Subject::new(CacheLimits::default());
    let transfer = Ask::new("x.test.", "TYPE252").id(7);
    for ask in [x().opt(option(8)), x().opt(option(65_001)), transfer] {
        subject.record(&ask, &here, &address(&ask).authority(SOA));
        assert!(!subject.knows(&ask, &here), "{ask:?}");
    }
    assert_eq!(subject.cache.metrics.size.entries.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn only_noerror_and_nxdomain_replace_or_remove_entry() {
    let limits = CacheLimits {
        stale: 3600 * SECOND,
        ..CacheLimits::default()
    };
    let reply = |rcode: &str| Answer::to(&x().wire()).rcode(rcode);
    let failed = || {
        Err(ForwardError::AllFailed(
            [(upstreams(1)[0].clone(), UpstreamFailure::Timeout)].into(),
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
        ("too many queries", Err(ForwardError::Overloaded), Some(0)),
        ("a shutdown", Err(ForwardError::Stopped), Some(0)),
    ];
    for (what, outcome, kept) in cases {
        let (subject, here) = (Subject::new(limits), upstreams(1));
        let key = key(&x(), &here);
        subject.record(&x(), &here, &address(&x()));
        advance(61 * SECOND).await;
        assert!(
            !subject.knows(&x(), &here),
            "{what}: the first reply must have expired"
        );
        let outcome = outcome.map(|reply| received(&key, &reply));
        subject.cache.record_outcome(&key, &outcome);
        let replaced = |outcome| subject.cache.replace_failure(outcome, &key);
        let rest = replaced(Err(ForwardError::Overloaded));
        assert_eq!(rest.ok().map(|reply| reply.rcode), kept, "{what}");
        // FORMERR counts as an answer of the upstream, so no cached reply replaces it.
        let formerr = replaced(Ok(received(&key, &reply("FORMERR"))));
        assert_eq!(formerr.unwrap().rcode, rcode::FORMERR, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_caller_retries_dead_upstreams() {
    let limits = CacheLimits {
        stale: 3600 * SECOND,
        recheck: 30 * SECOND,
        ..CacheLimits::default()
    };
    let (subject, here) = (Subject::new(limits), upstreams(1));
    let key = key(&x(), &here);
    subject.record(&x(), &here, &address(&x()));
    advance(61 * SECOND).await;
    assert!(subject.cache.find_reply(&key, || false).is_none());
    subject.record(&x(), &here, &Answer::to(&x().wire()).rcode("SERVFAIL"));
    assert!(
        subject.knows(&x(), &here),
        "after a failure, the cache must answer at once until the recheck"
    );
    advance(30 * SECOND).await;
    assert!(
        subject.cache.find_reply(&key, || false).is_none(),
        "after the recheck time, a caller must wait, unless all upstreams are known to be dead"
    );
    let refresh: Vec<bool> = (0..5)
        .map(|_| subject.cache.find_reply(&key, || true).unwrap().refresh)
        .collect();
    assert_eq!(refresh, [true, false, false, false, false]);
    let counts = (
        subject.cache.metrics.stale.get(),
        subject.cache.metrics.misses.get(),
    );
    assert_eq!(counts, (7, 2));
    subject.record(&x(), &here, &address(&x()));
    assert!(subject.knows(&x(), &here));
    assert_eq!(subject.cache.metrics.hits.get(), 2);
}

/// A query, and a TXT reply of more than `octets` octets.
fn text(name: &str, octets: usize) -> (Ask, Answer) {
    let ask = Ask::new(name, "TXT").id(7);
    let strings = vec![format!("\"{}\"", "t".repeat(200)); octets / 200 + 1].join(" ");
    let reply = Answer::to(&ask.wire()).answer(&format!("{name} 3600 IN TXT {strings}"));
    (ask, reply)
}

#[test]
fn frequent_names_survive_random_names() {
    let here = upstreams(1);
    let subject = Subject::new(CacheLimits {
        entries: 500,
        ..CacheLimits::default()
    });
    let often: Vec<_> = (0..50)
        .map(|n| text(&format!("often-{n}.test."), 100))
        .collect();
    for (ask, reply) in &often {
        subject.record(ask, &here, reply);
    }
    for n in 0..5000 {
        let (ask, reply) = text(&format!("random-{n}.test."), 100);
        subject.record(&ask, &here, &reply);
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
    fn cache_bounds_hold_and_metrics_match(
        entries in prop_oneof![1..20_usize, 1..400_usize],
        replies in proptest::collection::vec((0..300_u16, prop_oneof![9 => 0..2000_usize, 1 => 0..60_000_usize]), 1..400),
    ) {
        let (subject, here) = (Subject::new(CacheLimits { entries, ..CacheLimits::default() }), upstreams(1));
        let mut names = HashSet::new();
        for (name, octets) in replies {
            let (ask, reply) = text(&format!("n{name}.test."), octets);
            subject.record(&ask, &here, &reply);
            names.insert(name);
            let (count, bytes) = (subject.cache.metrics.size.entries.get(), subject.cache.metrics.size.bytes.get());
            prop_assert!(usize::try_from(count).unwrap() <= entries.min(names.len()), "{count} entries");
            prop_assert!(usize::try_from(bytes).unwrap() <= entries * 1024, "{bytes} bytes");
        }
        let kept: Vec<_> = subject.cache.table.iter().map(|(_, entry)| i64::from(entry.size())).collect();
        prop_assert_eq!(subject.cache.metrics.size.entries.get(), i64::try_from(kept.len()).unwrap());
        prop_assert_eq!(subject.cache.metrics.size.bytes.get(), kept.iter().sum::<i64>());
    }
}

#[test]
fn cache_without_entries_is_none() {
    let metrics = CacheMetrics::new(&Registry::new()).unwrap();
    let limits = CacheLimits {
        entries: 0,
        ..CacheLimits::default()
    };
    assert!(ReplyCache::new(limits, metrics).is_none());
}
