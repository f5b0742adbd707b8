//! Queries that are sent to upstreams, and replies that are accepted as the answer.

use std::sync::atomic::{AtomicUsize, Ordering};

use skydns::forward::ForwardLimits;
use testkit::hex::hex;
use testkit::message::Message;
use testkit::query::Query as Ask;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Upstream};
use wire::Transport;

use crate::support::{
    GOOD, OTHER, Question, Subject, answers_with, good, opt, question, refuses, servfail,
};

/// A forwarded query has the flags RD, AD and CD, the DO bit and the EDNS options of the client's
/// query, but no hop-by-hop options such as COOKIE. If the remaining options are longer than 4096
/// octets in total, all are left out. The forwarder converts the name to lower case, and sets its
/// own UDP payload size. The expected packets have the ID 0.
#[tokio::test]
async fn forwarded_query_has_flags_and_options_of_client() {
    const QUESTION: &str = "03777777076f75747369646504746573740000010001";
    const OPT: &str = "00002904d0000000000000";
    const WITH_SUBNET: &str = "00002904d000000000000b00080007000118000a0000";
    let packet = |flags: &str| format!("0000{flags}0001000000000001{QUESTION}{OPT}");
    let www = || Ask::new("www.outside.test.", "A");
    let edns = |udp, dnssec_ok, options: &[(u16, &[u8])]| www().opt(opt(udp, dnssec_ok, options));
    let subnet: (u16, &[u8]) = (8, &[0, 1, 0x18, 0, 0x0a, 0, 0]);
    let cookie: (u16, &[u8]) = (10, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let many: (u16, &[u8]) = (8, &[0; 4096]);
    let class_hs = packet("0100").replace("00010001", "00010004");
    let dnssec_ok = packet("0100").replace(OPT, "00002904d0000080000000");
    let with_subnet = packet("0100").replace(OPT, WITH_SUBNET);
    let cases: &[(&str, Ask, String)] = &[
        ("plain", www(), packet("0100")),
        ("no RD", www().flags(""), packet("0000")),
        ("CD", www().flags("rd cd"), packet("0110")),
        ("AD", www().flags("rd ad"), packet("0120")),
        ("class HS", www().class("HS"), class_hs),
        (
            "UDP payload size 100",
            edns(100, false, &[]),
            packet("0100"),
        ),
        (
            "UDP payload size 65535",
            edns(65535, false, &[]),
            packet("0100"),
        ),
        ("DO", edns(4096, true, &[]), dnssec_ok),
        ("options", edns(4096, false, &[subnet, cookie]), with_subnet),
        (
            "too many octets of options",
            edns(4096, false, &[many]),
            packet("0100"),
        ),
        ("case", Ask::new("wWw.oUtSiDe.tEsT.", "A"), packet("0100")),
    ];
    let upstream = Upstream::start(answers_with(1)).await;
    let subject = Subject::new(ForwardLimits::default());
    for (what, query, expected) in cases {
        upstream.forget();
        let reply = subject.ask(query.clone().into(), &[upstream.addr()]).await;
        reply.unwrap();
        let asked = upstream.asked();
        assert_eq!(asked.len(), 1, "{what}");
        let without_id = hex(&asked[0].packet[2..]);
        assert_eq!(format!("0000{without_id}"), *expected, "{what}");
    }
}

#[tokio::test]
async fn whole_reply_is_passed_on() {
    let whole = |asked: &Asked| {
        Reply::to(&asked.packet)
            .authoritative()
            .answer("x.test. 120 IN CNAME y.test.")
            .answer("y.test. 5 IN TXT \"hello world\" \"second\"")
            .authority("test. 60 IN NS ns.test.")
            .additional("ns.test. 60 IN AAAA 2001:db8::1")
            .edns(1232)
    };
    let upstream = Upstream::start(move |asked: &Asked| whole(asked).into()).await;
    let subject = Subject::new(ForwardLimits::default());
    let question = Question::from(Ask::new("x.test.", "TXT").edns(1232));
    let reply = subject.ask(question.clone(), &[upstream.addr()]).await;
    let reply = reply.unwrap();
    assert_eq!(reply.upstream.socket_addr(), upstream.addr());
    assert_eq!((reply.rcode, reply.answers, reply.truncated), (0, 2, false));
    let mut answer = question.answer(&reply);
    let whole = Message::parse(&whole(&upstream.asked()[0]).wire()).unwrap();
    answer.id = whole.id;
    assert_eq!(answer, whole);
}

/// After SERVFAIL or REFUSED, the next upstream is queried. After any other RCODE, no other
/// upstream is queried.
#[tokio::test]
async fn only_servfail_and_refused_try_next_upstream() {
    for transport in [Transport::Udp, Transport::Tcp] {
        for (rcode, told_by_two, counts) in [
            ("NXDOMAIN", "NXDOMAIN", (1, 0)),
            // The query is sent to the same upstream again without EDNS.
            ("FORMERR", "FORMERR", (2, 0)),
            ("NOTIMP", "NOTIMP", (2, 0)),
            ("REFUSED", OTHER, (1, 1)),
            // As in kube-dns, a query is sent to the same upstream again after SERVFAIL.
            ("SERVFAIL", OTHER, (2, 1)),
        ] {
            let first = Upstream::start(refuses(rcode)).await;
            let second = Upstream::start(answers_with(2)).await;
            let subject = Subject::new(ForwardLimits::default());
            let query = question("x.test.", "A", transport);
            let upstreams = [first.addr(), second.addr()];
            let what = format!("{rcode} over {transport:?}");
            assert_eq!(
                subject.outcome(query, &upstreams).await,
                told_by_two,
                "{what}"
            );
            assert_eq!((first.count(), second.count()), counts, "{what}");
        }
    }
}

#[tokio::test]
async fn query_is_repeated_at_same_upstream_after_servfail() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let attempts = AtomicUsize::new(0);
        let second = Upstream::start(answers_with(2)).await;
        let flaky =
            Upstream::start(
                move |asked: &Asked| match attempts.fetch_add(1, Ordering::Relaxed) {
                    0 => servfail(asked),
                    _ => good(asked),
                },
            )
            .await;
        let subject = Subject::new(ForwardLimits::default());
        let query = question("x.test.", "A", transport);
        let reply = subject.outcome(query, &[flaky.addr(), second.addr()]).await;
        assert_eq!(reply, GOOD);
        assert_eq!((flaky.count(), second.count()), (2, 0));
        assert_eq!(subject.errors("servfail"), 1);
    }
}

#[tokio::test]
async fn empty_upstream_list_is_error() {
    let subject = Subject::new(ForwardLimits::default());
    let none: &[std::net::SocketAddr] = &[];
    assert_eq!(subject.ask_a("x.test.", none).await, "no upstream servers");
}

/// Replies are not limited to 512 octets.
#[tokio::test]
async fn large_reply_is_passed_on_whole() {
    for (transport, records) in [
        (Transport::Udp, 60),
        (Transport::Udp, 1400),
        (Transport::Tcp, 1400),
    ] {
        let upstream = Upstream::start(move |asked: &Asked| {
            let records = (0..records)
                .map(|n| format!("{} 60 IN A 198.51.{}.{}", asked.name(), n / 250, n % 250));
            records
                .fold(Reply::to(&asked.packet), |reply, record| {
                    reply.answer(&record)
                })
                .into()
        })
        .await;
        let subject = Subject::new(ForwardLimits::default());
        let query = question("big.test.", "A", transport);
        let reply = subject.ask(query, &[upstream.addr()]).await.unwrap();
        assert_eq!(usize::from(reply.answers), records);
    }
}
