//! One query to the upstreams for all clients that may share its reply.

use futures::future::join_all;
use skydns::forward::{CacheLimits, ForwardLimits};
use testkit::client::{ask, ask_tcp};
use testkit::eventually;
use testkit::message::{Edns, Message};
use testkit::query::Query as Ask;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};
use tokio::sync::watch;
use wire::Transport;

use crate::fixed::{Fixed, start};
use crate::support::{
    PATIENCE, Question, Subject, a, a_over_tcp, address, answers_with, is_count, outcome_text,
    short_limits,
};

const NAMES: [&str; 4] = [
    "www.outside.test.",
    "WWW.outside.test.",
    "wWw.OuTsIdE.tEsT.",
    "www.outside.TEST.",
];

/// The queries of clients that may share a reply.
fn variants() -> Vec<Ask> {
    let cookie = Edns {
        udp: 1232,
        options: vec![(10, vec![1; 8])],
        ..Edns::default()
    };
    let asks = NAMES.iter().flat_map(|name| {
        let plain = Ask::new(name, "A");
        let sized = [0, 512, 600, 1232, 4096, 65_535].map(|size| Ask::new(name, "A").edns(size));
        std::iter::once(plain).chain(sized)
    });
    asks.chain([Ask::new("www.outside.test.", "A").opt(cookie)])
        .collect()
}

/// The number of queries is that of a birthday attack with one port for each.
#[tokio::test]
async fn variants_at_once_make_one_query() {
    let (open, gate) = watch::channel(false);
    let upstream = Upstream::start(move |asked: &Asked| {
        if *gate.borrow() {
            answers_with(1)(asked)
        } else {
            Reaction::silence()
        }
    })
    .await;
    let subject = Subject::new(ForwardLimits {
        resend_after: PATIENCE / 10,
        ..ForwardLimits::default()
    });
    let upstreams = [upstream.addr()];
    let questions = variants().into_iter().flat_map(|ask| {
        [Transport::Udp, Transport::Tcp]
            .map(|transport| Question::from(ask.clone()).over(transport))
    });
    let questions: Vec<Question> = questions.collect();

    let asking = join_all(
        questions
            .iter()
            .map(|question| subject.ask(question.clone(), &upstreams)),
    );
    let opening = async {
        let joined = questions.len() - 1;
        eventually(PATIENCE, || async {
            is_count(subject.metric("joined_total", &[]), joined) && upstream.count() > 0
        })
        .await;
        open.send_replace(true);
    };
    let (replies, ()) = tokio::join!(asking, opening);

    assert!(
        replies
            .iter()
            .all(|reply| outcome_text(reply) == "NOERROR 192.0.2.1")
    );
    assert!(is_count(subject.metric("requests_total", &[]), 1));
    let first = &upstream.asked()[0];
    assert!(
        upstream
            .asked()
            .iter()
            .all(|asked| asked.packet == first.packet && asked.from == first.from)
    );
}

/// A reply with 30 addresses and an extended error.
fn thirty(asked: &Asked) -> Reaction {
    let opt = Edns {
        udp: 4096,
        options: vec![(15, vec![0, 0])],
        ..Edns::default()
    };
    let records = (0..30).map(|n| format!("{} 60 IN A 198.51.100.{n}", asked.name()));
    records
        .fold(Reply::to(&asked.packet), |reply, record| {
            reply.answer(&record)
        })
        .opt(opt)
        .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_one_query_get_own_answers() {
    let upstream = Upstream::start(thirty).await;
    let server = start(Fixed::new(&[upstream.addr()]).caching(CacheLimits::default()));
    let queries = variants();
    let over_udp = join_all(queries.iter().map(|query| ask(server.address, query)));
    let over_tcp = join_all(queries.iter().map(|query| ask_tcp(server.address, query)));
    let (over_udp, over_tcp) = tokio::join!(over_udp, over_tcp);

    for (query, answers) in queries.iter().zip(over_udp.into_iter().zip(over_tcp)) {
        let asked = Message::parse(&query.wire()).unwrap();
        let size = asked.edns.as_ref().map_or(512, |edns| edns.udp.max(512));
        for (answer, whole) in [(answers.0, size >= 1232), (answers.1, true)] {
            assert_eq!(
                (answer.id, &answer.questions),
                (asked.id, &asked.questions),
                "{asked:?}"
            );
            assert_eq!(
                (answer.answer.len() == 30, answer.has("tc")),
                (whole, !whole),
                "{asked:?}"
            );
            let expected = asked.edns.as_ref().map(|_| vec![(15, vec![0, 0])]);
            assert_eq!(answer.edns.map(|opt| opt.options), expected, "{asked:?}");
        }
    }
    assert_eq!(upstream.count(), 1);
    server.stop().await;
}

/// An upstream without EDNS: it rejects queries with an OPT record, and sends none itself.
fn without_edns(rcode: &'static str) -> impl Fn(&Asked) -> Reaction + Send + Sync {
    move |asked| match Message::parse(&asked.packet).unwrap().edns {
        Some(_) => Reply::to(&asked.packet).rcode(rcode).into(),
        None => address(asked, 1).into(),
    }
}

/// An upstream that does not know EDNS is queried without (RFC 6891, section 7).
#[tokio::test]
async fn upstream_without_edns_answers_all_clients() {
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
            let question = a(name).edns(Edns {
                udp: 1400,
                ..Edns::default()
            });
            let reply = subject.ask(question.clone(), &[upstream.addr()]).await;
            assert_eq!(
                (outcome_text(&reply).as_str(), upstream.count()),
                ("NOERROR 192.0.2.1", count),
                "{rcode}"
            );
            let ours = Edns {
                udp: 1232,
                ..Edns::default()
            };
            assert_eq!(question.answer(&reply.unwrap()).edns, Some(ours), "{rcode}");
        }
    }
}

/// Some devices drop queries with an OPT record. Clients without EDNS must not lose such an
/// upstream.
#[tokio::test]
async fn silence_to_edns_causes_plain_queries() {
    let has_opt =
        |asked: &Asked| Message::parse(&asked.packet).is_ok_and(|message| message.edns.is_some());
    let upstream = Upstream::start(move |asked: &Asked| {
        if has_opt(asked) {
            Reaction::silence()
        } else {
            answers_with(1)(asked)
        }
    })
    .await;
    let subject = Subject::new(short_limits());
    for name in ["x.test.", "y.test."] {
        assert_ne!(
            subject.ask_a(name, &[upstream.addr()]).await,
            "NOERROR 192.0.2.1",
            "{name}"
        );
    }

    eventually(PATIENCE, || async {
        subject.ask_a("z.test.", &[upstream.addr()]).await == "NOERROR 192.0.2.1"
    })
    .await;
    upstream.forget();
    assert_eq!(
        subject.ask_a("w.test.", &[upstream.addr()]).await,
        "NOERROR 192.0.2.1"
    );
    assert_eq!(upstream.count(), 1, "no query with an OPT record");
}

/// For a client over TCP, a reply that is truncated over UDP is no answer. The upstreams are
/// queried over TCP, one after the other.
#[tokio::test]
async fn truncated_reply_moves_tcp_clients_on() {
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
    assert_eq!(outcome_text(&over_tcp), "NOERROR 192.0.2.2");
    assert!(is_count(subject.metric("joined_total", &[]), 1));
    let transports: Vec<_> = second.asked().iter().map(|asked| asked.transport).collect();
    assert_eq!((first.count(), transports), (1, vec![Transport::Tcp]));
}
