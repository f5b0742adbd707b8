//! Cached replies, and stale replies while the upstreams fail.

use std::net::SocketAddr;
use std::time::Duration;

use skydns::forward::{CacheLimits, ForwardLimits};
use testkit::client::{ask, ask_tcp};
use testkit::eventually;
use testkit::query::Query as Ask;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};

use crate::fixed::{Fixed, start};
use crate::support::{
    Does, Fickle, GOOD, OTHER, PATIENCE, Question, Subject, a, address, answers_with, good, opt,
    outcome_text, pass, servfail, short_limits, silent,
};

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn hour_of_stale_answers() -> CacheLimits {
    CacheLimits {
        stale: 3600 * SECOND,
        ..CacheLimits::default()
    }
}

fn other(asked: &Asked) -> Reaction {
    address(asked, 2).into()
}

fn refused(asked: &Asked) -> Reaction {
    Reply::to(&asked.packet).rcode("REFUSED").into()
}

fn garbage(asked: &Asked) -> Reaction {
    Reaction::send([&asked.packet[..2], b"\x80"].concat())
}

fn missing(asked: &Asked) -> Reaction {
    let soa = "test. 60 IN SOA ns.test. admin.test. 1 3600 600 86400 60";
    Reply::to(&asked.packet)
        .rcode("NXDOMAIN")
        .authority(soa)
        .into()
}

/// An address with a TTL of a second.
fn fleeting(asked: &Asked) -> Reaction {
    Reply::to(&asked.packet)
        .answer(&format!("{} 1 IN A 192.0.2.1", asked.name()))
        .into()
}

fn with_edns(name: &str) -> Question {
    Ask::new(name, "A").edns(1232).into()
}

/// Sends a query; returns the RCODE, the TTLs in the answer and authority sections, and the data of
/// the Extended DNS Errors. Without a reply, `none` replaces the RCODE.
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
    let options = message.edns.iter().flat_map(|opt| &opt.options);
    let errors = options.filter(|(code, _)| *code == 15);
    (
        message.rcode_name(),
        records.map(|record| record.ttl).collect(),
        errors.map(|(_, data)| data.clone()).collect(),
    )
}

#[tokio::test]
async fn fresh_reply_is_answered_from_cache() {
    let upstream = Upstream::start(answers_with(1)).await;
    let upstreams = [upstream.addr()];
    let subject = Subject::with_cache(short_limits(), CacheLimits::default());
    assert_eq!(subject.ask_a("x.test.", &upstreams).await, GOOD);
    pass(10 * SECOND).await;
    let question = a("X.TEST.");
    let reply = subject.ask(question.clone(), &upstreams).await;
    assert_eq!(outcome_text(&reply), GOOD);
    let message = question.answer(&reply.unwrap());
    assert_eq!(message.questions[0].name, "X.TEST.");
    let ttl = message.answer[0].ttl;
    assert!((49..=50).contains(&ttl), "{ttl}");
    assert_eq!(upstream.count(), 1);
    for name in ["cache_hits_total", "cache_misses_total", "cache_entries"] {
        assert_eq!(subject.count(name), 1, "{name}");
    }
    assert!(subject.count("cache_bytes") > 100);
    pass(50 * SECOND).await;
    assert_eq!(subject.ask_a("x.test.", &upstreams).await, GOOD);
    assert_eq!(upstream.count(), 2);
}

/// If the upstreams fail, a stale reply is returned (RFC 8767, section 4).
#[tokio::test]
async fn stale_reply_replaces_failure() {
    const STALE: u8 = 3;
    const STALE_NXDOMAIN: u8 = 19;
    let failures: [(&str, &'static [Does], &str, u8); 5] = [
        ("silence", &[good, silent], "NOERROR", STALE),
        ("SERVFAIL", &[good, servfail], "NOERROR", STALE),
        ("REFUSED", &[good, refused], "NOERROR", STALE),
        ("garbage", &[good, garbage], "NOERROR", STALE),
        (
            "a missing name",
            &[missing, servfail],
            "NXDOMAIN",
            STALE_NXDOMAIN,
        ),
    ];
    for (what, does, rcode, code) in failures {
        let fickle = Fickle::start(does).await;
        let upstreams = fickle.upstreams();
        let subject = Subject::with_cache(short_limits(), hour_of_stale_answers());
        subject.ask(a("x.test."), &upstreams).await.unwrap();
        fickle.goes_on();
        pass(61 * SECOND).await;
        let stale = asked(&subject, a("x.test."), &upstreams).await;
        assert_eq!(stale, (rcode.to_owned(), vec![30], vec![]), "{what}");
        assert!(
            fickle.upstream.count() > 1,
            "{what}: the upstreams must be queried first"
        );
        // While the upstreams are known to fail, the stale reply is returned at once.
        fickle.upstream.forget();
        let stale = asked(&subject, with_edns("X.test."), &upstreams).await;
        let errors = vec![vec![0, code]];
        assert_eq!(stale, (rcode.to_owned(), vec![30], errors), "{what}");
        assert_eq!(fickle.upstream.count(), 0, "{what}");
        assert_eq!(subject.count("stale_answers_total"), 2, "{what}");

        let (other_name, ..) = asked(&subject, a("y.test."), &upstreams).await;
        pass(3600 * SECOND).await;
        let (too_old, ..) = asked(&subject, a("x.test."), &upstreams).await;
        for failed in [other_name, too_old] {
            let is_failure = ["none", "SERVFAIL", "REFUSED"].contains(&failed.as_str());
            assert!(is_failure, "{what}: {failed}");
        }
    }
}

/// For 30 seconds after the upstream has answered SERVFAIL, a stale reply is returned at once. The
/// first query after this time waits for the upstream, which may have recovered (RFC 8767, section
/// 5).
#[tokio::test]
async fn recovered_upstream_ends_stale_answers() {
    for (pause, answer) in [(29, GOOD), (31, OTHER), (1800, OTHER)] {
        let fickle = Fickle::start(&[good, servfail, other]).await;
        let upstreams = fickle.upstreams();
        let subject = Subject::with_cache(short_limits(), hour_of_stale_answers());
        assert_eq!(subject.ask_a("x.test.", &upstreams).await, GOOD);
        fickle.goes_on();
        pass(61 * SECOND).await;
        assert_eq!(subject.ask_a("x.test.", &upstreams).await, GOOD);

        fickle.goes_on();
        pass(pause * SECOND).await;
        let question = with_edns("x.test.");
        let reply = subject.ask(question.clone(), &upstreams).await;
        assert_eq!(outcome_text(&reply), answer, "after {pause} s");
        let is_stale = !question
            .answer(&reply.unwrap())
            .edns
            .unwrap()
            .options
            .is_empty();
        assert_eq!(is_stale, answer == GOOD, "after {pause} s");
    }
}

/// A query that exceeds the limit of queries in flight gets a stale reply, if the cache has one.
#[tokio::test]
async fn stale_reply_replaces_overload() {
    let fickle = Fickle::start(&[good, silent]).await;
    let upstreams = fickle.upstreams();
    let limits = ForwardLimits {
        max_in_flight: 2,
        ..short_limits()
    };
    let subject = Subject::with_cache(limits, hour_of_stale_answers());
    subject.ask(a("x.test."), &upstreams).await.unwrap();
    fickle.goes_on();
    pass(61 * SECOND).await;
    let one = subject.ask(a("one.test."), &upstreams);
    let two = subject.ask(a("two.test."), &upstreams);
    let asking = async {
        eventually(PATIENCE, || async { subject.count("in_flight") == 2 }).await;
        let before = tokio::time::Instant::now();
        let answer = subject.ask_a("x.test.", &upstreams).await;
        (answer, before.elapsed())
    };
    let (_, _, (answer, took)) = tokio::join!(one, two, asking);
    assert_eq!(answer, GOOD);
    assert!(took < short_limits().budget, "{took:?}");
    assert_eq!(subject.count("overloaded_total"), 1);
}

#[tokio::test]
async fn disabled_cache_keeps_no_reply_and_default_cache_no_stale_reply() {
    let fickle = Fickle::start(&[good, servfail]).await;
    let upstreams = fickle.upstreams();
    let subject = Subject::new(short_limits());
    for asked in 1..3 {
        assert_eq!(subject.ask_a("x.test.", &upstreams).await, GOOD);
        assert_eq!(fickle.upstream.count(), asked);
    }
    fickle.goes_on();
    assert_eq!(subject.ask_a("x.test.", &upstreams).await, "SERVFAIL");
    // A cache with the default limits returns no stale replies.
    let fickle = Fickle::start(&[good, servfail]).await;
    let subject = Subject::with_cache(short_limits(), CacheLimits::default());
    subject
        .ask(a("x.test."), &fickle.upstreams())
        .await
        .unwrap();
    fickle.goes_on();
    pass(61 * SECOND).await;
    assert_eq!(
        subject.ask_a("x.test.", &fickle.upstreams()).await,
        "SERVFAIL"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_are_cached_by_type_and_flags() {
    let upstream = Upstream::start(|asked: &Asked| {
        let data = match asked.rtype().as_str() {
            "A" => "A 192.0.2.1".to_owned(),
            other => format!("{other} \\# 3 abcdef"),
        };
        Reply::to(&asked.packet)
            .answer(&format!("{} 60 IN {data}", asked.name()))
            .into()
    })
    .await;
    let server = start(Fixed::new(&[upstream.addr()]).caching(CacheLimits::default()));
    let dnssec_ok = opt(1232, true, &[]);
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
        assert_eq!(first.answer[0].data, again.answer[0].data);
        assert_eq!(first.flags(), again.flags());
        assert_eq!(upstream.count(), kept + 1, "{query:?}");
    }
    server.stop().await;
}

/// A stale reply for `www.outside.test` (RFC 8767, section 4) answers queries for three names: this
/// name, a cluster name that is an alias of this name, and `www.apps.search.test`. For
/// `www.apps.search.test`, the server looks up `www` in the domains of a search list, which
/// contains `outside.test`. If the query has EDNS, the answer has the Extended DNS Error Stale
/// Answer (RFC 8914, section 4.4).
#[tokio::test(flavor = "multi_thread")]
async fn server_serves_stale_external_names() {
    let fickle = Fickle::start(&[fleeting, servfail]).await;
    let fixed = Fixed::new(&fickle.upstreams()).search("search.test", &["outside.test"]);
    let server = start(fixed.caching(hour_of_stale_answers()));
    let names = [
        "www.outside.test.",
        "out.apps.svc.cluster.local.",
        "www.apps.search.test.",
    ];
    for name in names {
        let fresh = ask(server.address, &Ask::new(name, "A").edns(1232)).await;
        assert_eq!(fresh.answer_data("A"), ["192.0.2.1"], "{name}");
        assert!(fresh.edns.unwrap().options.is_empty(), "{name}");
    }
    fickle.goes_on();
    let asked = fickle.upstream.count();
    eventually(PATIENCE, || async {
        ask(server.address, &Ask::new(names[0], "A")).await;
        fickle.upstream.count() > asked
    })
    .await;

    for name in names {
        let stale = ask(server.address, &Ask::new(name, "A").edns(1232)).await;
        assert_eq!(stale.answer_data("A"), ["192.0.2.1"], "{name}");
        assert!(stale.answer.iter().all(|record| record.ttl == 30), "{name}");
        assert_eq!(stale.edns.unwrap().options, [(15, vec![0, 3])], "{name}");
        let without_edns = ask_tcp(server.address, &Ask::new(name, "A")).await;
        assert_eq!(without_edns.answer_data("A"), ["192.0.2.1"], "{name}");
        assert_eq!(without_edns.edns, None, "{name}");
    }
    server.stop().await;
}

/// `www.outside.test` is an alias of a cluster name; all other names have an address.
fn alias_back_inside(asked: &Asked) -> Reaction {
    let name = asked.name();
    if name != "www.outside.test." {
        return fleeting(asked);
    }
    let soa = "outside.test. 1 IN SOA ns.test. admin.test. 1 3600 600 86400 1";
    Reply::to(&asked.packet)
        .answer(&format!("{name} 1 IN CNAME back.apps.svc.cluster.local."))
        .authority(soa)
        .into()
}

/// A cluster name is an alias of an external name, which is an alias of a second cluster name. The
/// second cluster name is an alias of a second external name. The silent upstream is queried for
/// the first external name until the forwarder's budget ends. Little time is then left for the
/// second external name, but its stale reply is still used.
#[tokio::test(flavor = "multi_thread")]
async fn late_alias_target_is_served_stale() {
    let fickle = Fickle::start(&[alias_back_inside, silent]).await;
    let fixed =
        Fixed::new(&fickle.upstreams()).alias_at(&["svc", "apps", "back"], "far.outside.test");
    let server = start(fixed.caching(hour_of_stale_answers()));
    let alias = Ask::new("out.apps.svc.cluster.local.", "A");
    let answers = async || ask(server.address, &alias).await.answer_data("A");
    assert_eq!(answers().await, ["192.0.2.1"]);
    assert_eq!(fickle.upstream.count(), 2);
    fickle.goes_on();
    // After a second, the TTL has expired, and the cached answers are stale.
    tokio::time::sleep(SECOND).await;
    assert_eq!(answers().await, ["192.0.2.1"]);
    server.stop().await;
}

/// After the cache is cleared, no earlier reply is used as a fresh or as a stale answer.
#[tokio::test]
async fn cleared_cache_queries_upstream_again() {
    let fickle = Fickle::start(&[good, other, servfail]).await;
    let upstreams = fickle.upstreams();
    let subject = Subject::with_cache(short_limits(), hour_of_stale_answers());
    assert_eq!(subject.ask_a("x.test.", &upstreams).await, GOOD);
    fickle.goes_on();
    assert_eq!(subject.ask_a("x.test.", &upstreams).await, GOOD);
    subject.forwarder.clear_cache();
    assert_eq!(subject.count("cache_entries"), 0);
    assert_eq!(subject.count("cache_bytes"), 0);
    assert_eq!(subject.ask_a("x.test.", &upstreams).await, OTHER);
    fickle.goes_on();
    subject.forwarder.clear_cache();
    let failed = subject.ask_a("x.test.", &upstreams).await;
    assert_eq!(
        failed, "SERVFAIL",
        "the removed reply must not be served stale"
    );
}
