//! Cached replies, and stale replies while the upstreams fail.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use skydns::forward::{CacheLimits, ForwardLimits};
use testkit::client::{ask, ask_tcp};
use testkit::eventually;
use testkit::message::{Edns as Opt, Message};
use testkit::query::Query as Ask;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};

use crate::fixed::{Fixed, start};
use crate::support::{
    PATIENCE, Question, Subject, a, address, answers_with, is_count, outcome_text, short_limits,
};

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn hour_of_stale_answers() -> CacheLimits {
    CacheLimits {
        stale: 3600 * SECOND,
        ..CacheLimits::default()
    }
}

/// A reaction to a query.
type Does = fn(&Asked) -> Reaction;

/// An upstream whose behaviour a test changes step by step.
struct Fickle {
    upstream: Upstream,
    next: Arc<AtomicUsize>,
}

impl Fickle {
    /// Starts the upstream with the first of the reactions `does`. [`Fickle::goes_on`] switches to
    /// the next reaction.
    async fn start(does: &'static [Does]) -> Self {
        let next = Arc::new(AtomicUsize::new(0));
        let now = Arc::clone(&next);
        let upstream =
            Upstream::start(move |asked: &Asked| does[now.load(Ordering::SeqCst)](asked)).await;
        Self { upstream, next }
    }

    fn goes_on(&self) {
        self.next.fetch_add(1, Ordering::SeqCst);
    }

    fn list(&self) -> [SocketAddr; 1] {
        [self.upstream.addr()]
    }
}

fn first(asked: &Asked) -> Reaction {
    address(asked, 1).into()
}

fn second(asked: &Asked) -> Reaction {
    address(asked, 2).into()
}

fn silent(_: &Asked) -> Reaction {
    Reaction::silence()
}

pub(crate) fn servfail(asked: &Asked) -> Reaction {
    Reply::to(&asked.packet).rcode("SERVFAIL").into()
}

fn refused(asked: &Asked) -> Reaction {
    Reply::to(&asked.packet).rcode("REFUSED").into()
}

fn garbage(asked: &Asked) -> Reaction {
    Reaction::send([&asked.packet[..2], b"\x80"].concat())
}

fn formerr(asked: &Asked) -> Reaction {
    Reply::to(&asked.packet).rcode("FORMERR").into()
}

fn missing(asked: &Asked) -> Reaction {
    let soa = "test. 60 IN SOA ns.test. admin.test. 1 3600 600 86400 60";
    Reply::to(&asked.packet)
        .rcode("NXDOMAIN")
        .authority(soa)
        .into()
}

fn passing(asked: &Asked) -> Reaction {
    Reply::to(&asked.packet)
        .answer(&format!("{} 0 IN A 192.0.2.3", asked.name()))
        .into()
}

/// Advances the clock without waiting in real time.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn with_edns(name: &str) -> Question {
    a(name).edns(Opt {
        udp: 1232,
        ..Opt::default()
    })
}

/// Sends a query; returns the RCODE, the TTLs of all records, and the extended errors among the
/// EDNS options.
async fn asked(
    subject: &Subject,
    question: Question,
    upstreams: &[SocketAddr],
) -> (String, Vec<u32>, Vec<Vec<u8>>) {
    let reply = subject.ask(question.clone(), upstreams).await;
    let Ok(message) = reply.map(|reply| question.answer(&reply)) else {
        return ("none".to_owned(), vec![], vec![]);
    };
    let records = message.answer.iter().chain(&message.authority);
    let errors = message
        .edns
        .iter()
        .flat_map(|opt| &opt.options)
        .filter(|(code, _)| *code == 15);
    let errors = errors.map(|(_, data)| data.clone()).collect();
    (
        message.rcode_name(),
        records.map(|record| record.ttl).collect(),
        errors,
    )
}

#[tokio::test]
async fn fresh_reply_is_answered_from_cache() {
    let upstream = Upstream::start(answers_with(1)).await;
    let subject = Subject::with_cache(short_limits(), CacheLimits::default());
    assert_eq!(
        subject.ask_a("x.test.", &[upstream.addr()]).await,
        "NOERROR 192.0.2.1"
    );
    pass(10 * SECOND).await;
    let question = a("X.TEST.");
    let reply = subject.ask(question.clone(), &[upstream.addr()]).await;
    assert_eq!(outcome_text(&reply), "NOERROR 192.0.2.1");
    let message = question.answer(&reply.unwrap());
    assert_eq!(message.questions[0].name, "X.TEST.");
    assert!(
        (49..=50).contains(&message.answer[0].ttl),
        "{}",
        message.answer[0]
    );
    assert_eq!(upstream.count(), 1);
    for (name, count) in [
        ("cache_hits_total", 1),
        ("cache_misses_total", 1),
        ("cache_entries", 1),
    ] {
        assert!(is_count(subject.metric(name, &[]), count), "{name}");
    }
    assert!(subject.metric("cache_bytes", &[]) > 100.0);
    pass(50 * SECOND).await;
    assert_eq!(
        subject.ask_a("x.test.", &[upstream.addr()]).await,
        "NOERROR 192.0.2.1"
    );
    assert_eq!(upstream.count(), 2);
}

/// If the upstreams fail, a stale reply is returned (RFC 8767, section 4).
#[tokio::test]
async fn stale_reply_replaces_failure() {
    let failures: [(&str, &'static [Does]); 4] = [
        ("silence", &[first, silent]),
        ("SERVFAIL", &[first, servfail]),
        ("REFUSED", &[first, refused]),
        ("garbage", &[first, garbage]),
    ];
    for (what, does) in failures {
        let fickle = Fickle::start(does).await;
        let subject = Subject::with_cache(short_limits(), hour_of_stale_answers());
        subject.ask(a("x.test."), &fickle.list()).await.unwrap();
        fickle.goes_on();
        pass(61 * SECOND).await;
        let stale = ("NOERROR".to_owned(), vec![30]);
        let (rcode, ttls, errors) = asked(&subject, a("x.test."), &fickle.list()).await;
        assert_eq!(((rcode, ttls), errors), (stale.clone(), vec![]), "{what}");
        assert!(fickle.upstream.count() > 1, "{what}: they were asked first");
        // While the upstreams are known to fail, the stale reply is returned at once.
        fickle.upstream.forget();
        let (rcode, ttls, errors) = asked(&subject, with_edns("X.test."), &fickle.list()).await;
        assert_eq!(((rcode, ttls), errors), (stale, vec![vec![0, 3]]), "{what}");
        assert_eq!(fickle.upstream.count(), 0, "{what}");
        assert!(
            is_count(subject.metric("stale_answers_total", &[]), 2),
            "{what}"
        );
        // Another name has no stale reply.
        let (rcode, ..) = asked(&subject, a("y.test."), &fickle.list()).await;
        assert!(
            ["none", "SERVFAIL", "REFUSED"].contains(&rcode.as_str()),
            "{what}: {rcode}"
        );
        pass(3600 * SECOND).await;
        let (rcode, ..) = asked(&subject, a("x.test."), &fickle.list()).await;
        assert!(
            ["none", "SERVFAIL", "REFUSED"].contains(&rcode.as_str()),
            "{what}: {rcode}, too old"
        );
    }
}

#[tokio::test]
async fn stale_nxdomain_replaces_failure() {
    let fickle = Fickle::start(&[missing, servfail]).await;
    let subject = Subject::with_cache(short_limits(), hour_of_stale_answers());
    subject.ask(a("x.test."), &fickle.list()).await.unwrap();
    fickle.goes_on();
    pass(61 * SECOND).await;
    let (rcode, ttls, errors) = asked(&subject, with_edns("x.test."), &fickle.list()).await;
    assert_eq!(
        (rcode.as_str(), ttls, errors),
        ("NXDOMAIN", vec![30], vec![vec![0, 19]])
    );
}

#[tokio::test]
async fn recovered_upstream_ends_stale_answers() {
    let fickle = Fickle::start(&[first, servfail, second]).await;
    let subject = Subject::with_cache(short_limits(), hour_of_stale_answers());
    assert_eq!(
        subject.ask_a("x.test.", &fickle.list()).await,
        "NOERROR 192.0.2.1"
    );
    fickle.goes_on();
    pass(61 * SECOND).await;
    assert_eq!(
        subject.ask_a("x.test.", &fickle.list()).await,
        "NOERROR 192.0.2.1"
    );
    fickle.goes_on();
    pass(31 * SECOND).await;
    // The first query starts a refresh, and does not wait for the result.
    assert_eq!(
        subject.ask_a("x.test.", &fickle.list()).await,
        "NOERROR 192.0.2.1"
    );
    eventually(PATIENCE, || async {
        subject.ask_a("x.test.", &fickle.list()).await == "NOERROR 192.0.2.2"
    })
    .await;
    let (_, ttls, errors) = asked(&subject, with_edns("x.test."), &fickle.list()).await;
    assert!(ttls[0] > 30 && errors.is_empty(), "{ttls:?} {errors:?}");
}

/// A newer reply removes the cached reply, even if the newer reply cannot be cached. FORMERR does
/// not remove the cached reply.
#[tokio::test]
async fn new_answer_replaces_stale_reply() {
    for (what, does, after) in [
        (
            "NXDOMAIN",
            &[first, missing, servfail] as &'static [Does],
            "NXDOMAIN",
        ),
        ("a TTL of zero", &[first, passing, servfail], "SERVFAIL"),
        (
            "a question that is at fault",
            &[first, formerr, servfail],
            "NOERROR 192.0.2.1",
        ),
    ] {
        let fickle = Fickle::start(does).await;
        let subject = Subject::with_cache(short_limits(), hour_of_stale_answers());
        subject.ask(a("x.test."), &fickle.list()).await.unwrap();
        for _ in 0..2 {
            fickle.goes_on();
            pass(61 * SECOND).await;
            subject.ask(a("x.test."), &fickle.list()).await.unwrap();
        }
        assert_eq!(
            subject.ask_a("x.test.", &fickle.list()).await,
            after,
            "{what}"
        );
    }
}

#[tokio::test]
async fn cache_is_separate_for_each_upstream_list() {
    let fickle = Fickle::start(&[first, servfail]).await;
    let subject = Subject::with_cache(short_limits(), hour_of_stale_answers());
    subject.ask(a("x.test."), &fickle.list()).await.unwrap();
    let other = Upstream::start(answers_with(9)).await;
    for upstreams in [
        vec![other.addr()],
        vec![other.addr(), fickle.upstream.addr()],
    ] {
        assert_eq!(
            subject.ask_a("x.test.", &upstreams).await,
            "NOERROR 192.0.2.9"
        );
    }
    assert_eq!(other.count(), 2);
}

/// A query beyond the limit of queries in flight is answered with the stale reply.
#[tokio::test]
async fn stale_reply_replaces_overload() {
    let fickle = Fickle::start(&[first, silent]).await;
    let subject = Subject::with_cache(
        ForwardLimits {
            max_in_flight: 2,
            ..short_limits()
        },
        hour_of_stale_answers(),
    );
    subject.ask(a("x.test."), &fickle.list()).await.unwrap();
    fickle.goes_on();
    pass(61 * SECOND).await;
    let list = fickle.list();
    let one = subject.ask(a("one.test."), &list);
    let two = subject.ask(a("two.test."), &list);
    let asking = async {
        eventually(PATIENCE, || async {
            is_count(subject.metric("in_flight", &[]), 2)
        })
        .await;
        let before = tokio::time::Instant::now();
        let answer = subject.ask_a("x.test.", &fickle.list()).await;
        (answer, before.elapsed())
    };
    let (_, _, (answer, took)) = tokio::join!(one, two, asking);
    assert_eq!(answer, "NOERROR 192.0.2.1");
    assert!(took < short_limits().budget, "{took:?}");
    assert!(is_count(subject.metric("overloaded_total", &[]), 1));
}

#[tokio::test]
async fn disabled_cache_keeps_no_reply() {
    let fickle = Fickle::start(&[first, servfail]).await;
    let subject = Subject::new(short_limits());
    for asked in 1..3 {
        assert_eq!(
            subject.ask_a("x.test.", &fickle.list()).await,
            "NOERROR 192.0.2.1"
        );
        assert_eq!(fickle.upstream.count(), asked);
    }
    fickle.goes_on();
    assert_eq!(subject.ask_a("x.test.", &fickle.list()).await, "SERVFAIL");
    // A cache with the default limits returns no stale replies.
    let fickle = Fickle::start(&[first, servfail]).await;
    let subject = Subject::with_cache(short_limits(), CacheLimits::default());
    subject.ask(a("x.test."), &fickle.list()).await.unwrap();
    fickle.goes_on();
    pass(61 * SECOND).await;
    assert_eq!(subject.ask_a("x.test.", &fickle.list()).await, "SERVFAIL");
}

/// A reply with 180 addresses, for every query.
fn large(asked: &Asked) -> Reaction {
    let name = asked.name();
    let many = (0..180).map(|n| format!("{name} 60 IN A 198.51.100.{n}"));
    many.fold(Reply::to(&asked.packet), |reply, record| {
        reply.answer(&record)
    })
    .edns(1232)
    .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_reply_is_cut_to_client_size() {
    let upstream = Upstream::start(large).await;
    let server = start(Fixed::new(&[upstream.addr()]).caching(CacheLimits::default()));
    let query = |name: &str| Ask::new(name, "A");
    for _ in 0..2 {
        for (what, query, answers) in [
            ("EDNS, room", query("www.outside.test.").edns(8192), 180),
            ("EDNS, less room", query("www.outside.test.").edns(1232), 37),
            ("no EDNS", query("Www.Outside.test."), 14),
        ] {
            let answer = ask(server.address, &query).await;
            let whole = answers == 180;
            assert_eq!(
                (answer.answer.len(), answer.has("tc")),
                (answers, !whole),
                "{what}"
            );
            assert_eq!(answer.edns.is_some(), !what.starts_with("no"), "{what}");
            let asked = Message::parse(&query.wire()).unwrap();
            assert_eq!(
                (answer.id, &answer.questions),
                (asked.id, &asked.questions),
                "{what}"
            );
        }
        let answer = ask_tcp(server.address, &query("www.outside.test.")).await;
        assert_eq!(
            (answer.answer.len(), answer.has("tc"), answer.edns),
            (180, false, None)
        );
    }
    assert_eq!(upstream.count(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_types_and_dnssec_are_cached() {
    let upstream = Upstream::start(|asked: &Asked| {
        let reply = Reply::to(&asked.packet);
        match asked.rtype().as_str() {
            "A" => reply
                .answer(&format!("{} 60 IN A 192.0.2.1", asked.name()))
                .into(),
            other => reply
                .answer(&format!("{} 60 IN {other} \\# 3 abcdef", asked.name()))
                .into(),
        }
    })
    .await;
    let server = start(Fixed::new(&[upstream.addr()]).caching(CacheLimits::default()));
    let dnssec_ok = Opt {
        udp: 1232,
        dnssec_ok: true,
        ..Opt::default()
    };
    let queries = [
        Ask::new("www.outside.test.", "TYPE65280"),
        Ask::new("www.outside.test.", "A"),
        Ask::new("www.outside.test.", "A").opt(dnssec_ok),
        Ask::new("www.outside.test.", "A").flags("rd cd"),
    ];
    for (kept, query) in queries.iter().enumerate() {
        assert_eq!(upstream.count(), kept);
        let first = ask(server.address, query).await;
        let again = ask(server.address, query).await;
        assert_eq!(
            (&first.answer[0].data, first.flags()),
            (&again.answer[0].data, again.flags())
        );
        assert_eq!(upstream.count(), kept + 1, "{query:?}");
    }
    server.stop().await;
}

/// A stale reply for an external name answers queries for the external name. The stale reply also
/// answers queries for a cluster name that is an alias of the external name.
#[tokio::test(flavor = "multi_thread")]
async fn server_serves_stale_external_names() {
    static DOWN: AtomicUsize = AtomicUsize::new(0);
    let upstream = Upstream::start(|asked: &Asked| match DOWN.load(Ordering::SeqCst) {
        0 => Reply::to(&asked.packet)
            .answer(&format!("{} 1 IN A 192.0.2.1", asked.name()))
            .into(),
        _ => servfail(asked),
    })
    .await;
    let server = start(Fixed::new(&[upstream.addr()]).caching(hour_of_stale_answers()));
    let outside = Ask::new("www.outside.test.", "A").edns(1232);
    let alias = Ask::new("out.apps.svc.cluster.local.", "A");
    assert_eq!(ask(server.address, &outside).await.answer[0].ttl, 1);
    DOWN.store(1, Ordering::SeqCst);
    let stale = eventually(PATIENCE, || async {
        let answer = ask(server.address, &outside).await;
        (answer.answer.first().map(|record| record.ttl) == Some(30)).then_some(answer)
    })
    .await;
    assert_eq!(stale.answer_data("A"), ["192.0.2.1"]);
    assert_eq!(stale.edns.unwrap().options, [(15, vec![0, 3])]);
    let tcp = ask_tcp(server.address, &outside).await;
    assert_eq!(tcp.answer_data("A"), ["192.0.2.1"]);
    assert_eq!(
        ask(server.address, &alias).await.answer_data("A"),
        ["192.0.2.1"]
    );
    server.stop().await;
}

/// A cluster name is an alias of an external name, which is an alias of a second cluster name. The
/// second cluster name is an alias of a second external name. After the wait for the first external
/// name, no time is left for the second.
#[tokio::test(flavor = "multi_thread")]
async fn late_alias_target_is_served_stale() {
    static DOWN: AtomicUsize = AtomicUsize::new(0);
    let upstream = Upstream::start(|asked: &Asked| {
        match (DOWN.load(Ordering::SeqCst), asked.name().as_str()) {
            (0, name @ "www.outside.test.") => {
                let soa = "outside.test. 1 IN SOA ns.test. admin.test. 1 3600 600 86400 1";
                let alias = format!("{name} 1 IN CNAME back.apps.svc.cluster.local.");
                Reply::to(&asked.packet)
                    .answer(&alias)
                    .authority(soa)
                    .into()
            }
            (0, name) => Reply::to(&asked.packet)
                .answer(&format!("{name} 1 IN A 192.0.2.1"))
                .into(),
            _ => Reaction::silence(),
        }
    })
    .await;
    let fixed = Fixed::new(&[upstream.addr()]).with_aliases(
        &["svc", "apps", "back"],
        ["far.outside.test".to_owned()].into_iter(),
    );
    let server = start(fixed.caching(hour_of_stale_answers()));
    let alias = Ask::new("out.apps.svc.cluster.local.", "A");
    let answers = async || ask(server.address, &alias).await.answer_data("A").join(" ");
    assert_eq!(
        (answers().await.as_str(), upstream.count()),
        ("192.0.2.1", 2)
    );
    DOWN.store(1, Ordering::SeqCst);
    // Wait until the TTL has expired. Before, the cached answer is fresh.
    tokio::time::sleep(SECOND).await;
    assert_eq!(answers().await, "192.0.2.1");
    server.stop().await;
}

/// Emptying the cache removes fresh and stale replies.
#[tokio::test]
async fn cleared_cache_queries_upstream_again() {
    let fickle = Fickle::start(&[first, second, servfail]).await;
    let subject = Subject::with_cache(short_limits(), hour_of_stale_answers());
    assert_eq!(
        subject.ask_a("x.test.", &fickle.list()).await,
        "NOERROR 192.0.2.1"
    );
    fickle.goes_on();
    assert_eq!(
        subject.ask_a("x.test.", &fickle.list()).await,
        "NOERROR 192.0.2.1"
    );
    subject.forwarder.clear_cache();
    assert!(
        is_count(subject.metric("cache_entries", &[]), 0)
            && is_count(subject.metric("cache_bytes", &[]), 0)
    );
    assert_eq!(
        subject.ask_a("x.test.", &fickle.list()).await,
        "NOERROR 192.0.2.2"
    );
    fickle.goes_on();
    subject.forwarder.clear_cache();
    assert_eq!(
        subject.ask_a("x.test.", &fickle.list()).await,
        "SERVFAIL",
        "nor is it served stale"
    );
}
