//! If several clients send queries at the same time, and one reply can answer all these queries,
//! the forwarder sends only one query to an upstream. The file also tests upstreams that reject or
//! drop queries with an OPT record.

use std::time::Duration;

use futures::future::join_all;
use skydns::forward::{CacheLimits, ForwardLimits};
use testkit::client::{ask, ask_tcp};
use testkit::eventually;
use testkit::message::Message;
use testkit::query::Query as Ask;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};
use wire::Transport;

use crate::fixed::{Fixed, start};
use crate::support::{
    Does, Fickle, GOOD, OTHER, PATIENCE, Question, Subject, a, a_over_tcp, address, answers_with,
    good, opt, outcome_text, pass, short_limits, silent,
};

const NAMES: [&str; 4] = [
    "www.outside.test.",
    "WWW.outside.test.",
    "wWw.OuTsIdE.tEsT.",
    "www.outside.TEST.",
];

/// Queries of different clients that one reply can answer.
fn variants() -> Vec<Ask> {
    let cookie = opt(1232, false, &[(10, &[1; 8])]);
    let asks = NAMES.iter().flat_map(|name| {
        let plain = Ask::new(name, "A");
        let sized = [0, 512, 600, 1232, 4096, 65_535].map(|size| Ask::new(name, "A").edns(size));
        std::iter::once(plain).chain(sized)
    });
    asks.chain([Ask::new("www.outside.test.", "A").opt(cookie)])
        .collect()
}

/// A birthday attack needs many equal queries to the upstream at the same time. The forwarder sends
/// only one query, and resends it from the same port with the same ID.
#[tokio::test]
async fn simultaneous_queries_that_share_a_reply_cause_one_query() {
    let fickle = Fickle::start(&[silent, good]).await;
    let subject = Subject::new(ForwardLimits {
        resend_after: PATIENCE / 10,
        ..ForwardLimits::default()
    });
    let upstreams = fickle.upstreams();
    let questions = variants().into_iter().flat_map(|ask| {
        [Transport::Udp, Transport::Tcp]
            .map(|transport| Question::from(ask.clone()).over(transport))
    });
    let questions: Vec<Question> = questions.collect();

    let asking = questions.iter().cloned();
    let asking = join_all(asking.map(|question| subject.outcome(question, &upstreams)));
    let opening = async {
        let joined = questions.len() as u64 - 1;
        eventually(PATIENCE, || async {
            subject.count("joined_total") == joined && fickle.upstream.count() > 0
        })
        .await;
        fickle.goes_on();
    };
    let (replies, ()) = tokio::join!(asking, opening);

    assert!(replies.iter().all(|reply| reply == GOOD), "{replies:?}");
    assert_eq!(subject.count("requests_total"), 1);
    assert_eq!(subject.count("in_flight"), 0);
    let asked = fickle.upstream.asked();
    let is_first = |other: &Asked| other.packet == asked[0].packet && other.from == asked[0].from;
    assert!(
        asked.iter().all(is_first),
        "all packets must have the same ID and come from the same port"
    );
    // Without a cache, a later query is sent to the upstream again.
    assert_eq!(subject.ask_a(NAMES[0], &upstreams).await, GOOD);
    assert_eq!(subject.count("requests_total"), 2);
}

/// A reply with 30 addresses and an extended error.
fn thirty(asked: &Asked) -> Reaction {
    let opt = opt(4096, false, &[(15, &[0, 0])]);
    let records = (0..30).map(|n| format!("{} 60 IN A 198.51.100.{n}", asked.name()));
    records
        .fold(Reply::to(&asked.packet), |reply, record| {
            reply.answer(&record)
        })
        .opt(opt)
        .into()
}

/// The number of records of [`thirty`] in the answer over UDP to a client with the UDP payload size
/// `size`.
fn records_in(size: u16) -> usize {
    match size {
        ..600 => 14,
        600 => 17,
        _ => 30,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_gets_its_own_answer_from_shared_reply() {
    let upstream = Upstream::start(thirty).await;
    let server = start(Fixed::new(&[upstream.addr()]).caching(CacheLimits::default()));
    let queries = variants();
    for round in ["at once", "from the cache"] {
        let over_udp = join_all(queries.iter().map(|query| ask(server.address, query)));
        let over_tcp = join_all(queries.iter().map(|query| ask_tcp(server.address, query)));
        let (over_udp, over_tcp) = tokio::join!(over_udp, over_tcp);

        for (query, answers) in queries.iter().zip(over_udp.into_iter().zip(over_tcp)) {
            let asked = Message::parse(&query.wire()).unwrap();
            let what = format!("{round}: {asked:?}");
            let size = asked.edns.as_ref().map_or(512, |edns| edns.udp);
            for (answer, records) in [(answers.0, records_in(size)), (answers.1, 30)] {
                assert_eq!(answer.id, asked.id, "{what}");
                assert_eq!(answer.questions, asked.questions, "{what}");
                assert_eq!(answer.answer.len(), records, "{what}");
                assert_eq!(answer.has("tc"), records < 30, "{what}");
                let expected = asked.edns.as_ref().map(|_| vec![(15, vec![0, 0])]);
                assert_eq!(answer.edns.map(|opt| opt.options), expected, "{what}");
            }
        }
        assert_eq!(upstream.count(), 1, "{round}");
    }
    server.stop().await;
}

/// An upstream without EDNS: it rejects queries with an OPT record, and sends no OPT record itself.
fn without_edns(rcode: &'static str) -> impl Fn(&Asked) -> Reaction + Send + Sync {
    move |asked| match Message::parse(&asked.packet).unwrap().edns {
        Some(_) => Reply::to(&asked.packet).rcode(rcode).into(),
        None => address(asked, 1).into(),
    }
}

/// If an upstream rejects a query with an OPT record, the query is sent again without an OPT record
/// (RFC 6891, section 7). After FORMERR or NOTIMP, the next query has no OPT record either.
#[tokio::test]
async fn client_of_upstream_without_edns_gets_opt_record() {
    // The RCODE for queries with EDNS, and the number of queries for the first and for the second
    // name.
    for (rcode, counts) in [
        ("FORMERR", [2, 1]),
        ("NOTIMP", [2, 1]),
        ("SERVFAIL", [2, 2]),
    ] {
        let upstream = Upstream::start(without_edns(rcode)).await;
        let subject = Subject::new(ForwardLimits::default());
        for (name, count) in ["x.test.", "y.test."].into_iter().zip(counts) {
            upstream.forget();
            let question = Question::from(Ask::new(name, "A").edns(1400));
            let reply = subject.ask(question.clone(), &[upstream.addr()]).await;
            assert_eq!(outcome_text(&reply), GOOD, "{rcode}");
            assert_eq!(upstream.count(), count, "{rcode}");
            let ours = opt(1232, false, &[]);
            assert_eq!(question.answer(&reply.unwrap()).edns, Some(ours), "{rcode}");
        }
    }
}

/// An upstream, or a device on the way to it, may drop queries with an OPT record. The forwarder
/// notices this, and then queries the upstream without an OPT record.
#[tokio::test]
async fn silence_to_edns_causes_plain_queries() {
    let upstream = Upstream::start(drops_edns).await;
    let subject = Subject::new(short_limits());
    let upstreams = [upstream.addr()];
    for name in ["x.test.", "y.test."] {
        assert_ne!(subject.ask_a(name, &upstreams).await, GOOD, "{name}");
    }

    let is_answered = || async { subject.ask_a("z.test.", &upstreams).await == GOOD };
    eventually(PATIENCE, is_answered).await;
    upstream.forget();
    assert_eq!(subject.ask_a("w.test.", &upstreams).await, GOOD);
    assert_eq!(upstream.count(), 1, "the query must have no OPT record");
}

fn has_opt(asked: &Asked) -> bool {
    Message::parse(&asked.packet).is_ok_and(|message| message.edns.is_some())
}

fn rejects_edns(asked: &Asked) -> Reaction {
    without_edns("FORMERR")(asked)
}

fn drops_edns(asked: &Asked) -> Reaction {
    if has_opt(asked) {
        Reaction::silence()
    } else {
        good(asked)
    }
}

fn knows_edns(asked: &Asked) -> Reaction {
    let reply = address(asked, 1);
    if has_opt(asked) {
        reply.opt(opt(1232, false, &[])).into()
    } else {
        reply.into()
    }
}

/// Ten minutes after an upstream has shown that it does not know EDNS, the next query of a client
/// starts a probe of the upstream with an OPT record. No client waits for the probe. Forwarded
/// queries have an OPT record again only if the reply to the probe has an OPT record.
#[tokio::test]
async fn probe_finds_out_whether_upstream_knows_edns() {
    // The reactions before and after the ten minutes, and whether queries have an OPT record in the
    // end.
    let cases: [(&str, &'static [Does], bool); 3] = [
        ("dropped", &[rejects_edns, drops_edns], false),
        ("rejected", &[rejects_edns, rejects_edns], false),
        ("answered", &[rejects_edns, knows_edns], true),
    ];
    for (what, does, knows) in cases {
        let fickle = Fickle::start(does).await;
        let upstreams = fickle.upstreams();
        let subject = Subject::new(short_limits());
        assert_eq!(subject.ask_a("x.test.", &upstreams).await, GOOD, "{what}");
        fickle.goes_on();
        pass(Duration::from_mins(10) + Duration::from_secs(1)).await;

        // For each packet for a name, whether it has an OPT record.
        let packets_for = |name: &str| -> Vec<bool> {
            let asked = fickle.upstream.asked();
            let packets = asked.iter().filter(|asked| asked.name() == name);
            packets.map(has_opt).collect()
        };
        fickle.upstream.forget();
        assert_eq!(subject.ask_a("y.test.", &upstreams).await, GOOD, "{what}");
        assert_eq!(packets_for("y.test."), [false], "{what}");

        // The probe repeats the query that the upstream has answered before.
        eventually(PATIENCE, || async {
            let probe = packets_for("x.test.");
            let has_ended = probe.last() == Some(&knows) && probe.contains(&true);
            has_ended.then_some(()).ok_or(probe)
        })
        .await;
        let mut names = (0..).map(|n| format!("z{n}.test."));
        eventually(PATIENCE, || {
            let name = names.next().unwrap();
            let (subject, packets_for) = (&subject, &packets_for);
            async move {
                assert_eq!(subject.ask_a(&name, &upstreams).await, GOOD, "{what}");
                let packets = packets_for(&name);
                (packets == [knows]).then_some(()).ok_or(packets)
            }
        })
        .await;
    }
}

#[tokio::test]
async fn restarting_upstream_without_edns_gets_no_opt_record() {
    let upstream = Upstream::start(without_edns("FORMERR")).await;
    let address = upstream.addr();
    let subject = Subject::new(ForwardLimits {
        retry_pause: Duration::from_secs(1),
        ..ForwardLimits::default()
    });
    assert_eq!(subject.ask_a("x.test.", &[address]).await, GOOD);
    drop(upstream);

    let upstreams = [address];
    let asking = subject.ask_a("y.test.", &upstreams);
    let starting = async {
        eventually(PATIENCE, || async { subject.errors("refused") > 0 }).await;
        Upstream::start_on(address, without_edns("FORMERR")).await
    };
    let (reply, upstream) = tokio::join!(asking, starting);

    assert_eq!(reply, GOOD);
    assert_eq!(upstream.count(), 1, "the query must have no OPT record");
}

/// A client over TCP needs a complete answer. If the reply over UDP is truncated, the forwarder
/// queries the upstreams over TCP for this client, one after the other.
#[tokio::test]
async fn tcp_client_gets_reply_over_tcp_after_truncated_udp_reply() {
    let truncated = |asked: &Asked| address(asked, 5).truncated().into();
    let first = Upstream::start_udp_only(truncated).await;
    let second = Upstream::start(answers_with(2)).await;
    let upstreams = [first.addr(), second.addr()];
    let subject = Subject::new(ForwardLimits::default());
    let (over_udp, over_tcp) = tokio::join!(
        subject.ask(a("x.test."), &upstreams),
        subject.ask(a_over_tcp("x.test."), &upstreams)
    );
    assert_eq!(outcome_text(&over_udp), "NOERROR tc 192.0.2.5");
    assert_eq!(outcome_text(&over_tcp), OTHER);
    assert_eq!(subject.count("joined_total"), 1);
    let transports: Vec<_> = second.asked().iter().map(|asked| asked.transport).collect();
    assert_eq!((first.count(), transports), (1, vec![Transport::Tcp]));
}
