//! Queries that are sent to upstreams, and replies that are accepted as the answer.

use std::sync::atomic::{AtomicUsize, Ordering};

use skydns::forward::{Limits, Query};
use skydns::wire::flag::{AD, CD, RD};
use skydns::wire::{Edns, Transport};
use testkit::reply::Reply;
use testkit::upstream::{Asked, Upstream};

use crate::support::{Subject, a, is, question, refuses, says, told};

fn edns(udp_size: u16, dnssec_ok: bool, options: &[u8]) -> Edns<Box<[u8]>> {
    Edns { udp_size, version: 0, dnssec_ok, options: options.into() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().concat()
}

/// Expected packets are those that kube-dns sent for the same queries, with ID 0 and without the cookie.
#[tokio::test]
async fn queries_are_those_of_the_reference() {
    const QUESTION: &str = "03777777076f75747369646504746573740000010001";
    let www = || a("www.outside.test.");
    let options = [0, 8, 0, 7, 0, 1, 0x18, 0, 0x0a, 0, 0, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    let many = [&[0, 8, 0x10, 0][..], &[0; 4096]].concat();
    let cases: &[(&str, Query, String)] = &[
        ("plain", www(), format!("000001000001000000000000{QUESTION}")),
        ("no RD", Query { flags: 0, ..www() }, format!("000000000001000000000000{QUESTION}")),
        ("CD", Query { flags: RD | CD, ..www() }, format!("000001100001000000000000{QUESTION}")),
        ("AD", Query { flags: RD | AD, ..www() }, format!("000001200001000000000000{QUESTION}")),
        (
            "class HS",
            Query { qclass: 4, ..www() },
            format!("000001000001000000000000{}4", &QUESTION[..QUESTION.len() - 1]),
        ),
        (
            "EDNS of 1232 octets",
            Query { edns: Some(edns(1232, false, &[])), ..www() },
            format!("000001000001000000000001{QUESTION}00002904d0000000000000"),
        ),
        (
            "EDNS of 100 octets",
            Query { edns: Some(edns(100, false, &[])), ..www() },
            format!("000001000001000000000001{QUESTION}0000290064000000000000"),
        ),
        (
            "DO",
            Query { edns: Some(edns(4096, true, &[])), ..www() },
            format!("000001000001000000000001{QUESTION}0000291000000080000000"),
        ),
        (
            "options",
            Query { edns: Some(edns(4096, false, &options)), ..www() },
            format!("000001000001000000000001{QUESTION}000029100000000000000b{}", hex(&options[..11])),
        ),
        (
            "too many options",
            Query { edns: Some(edns(4096, false, &many)), ..www() },
            format!("000001000001000000000001{QUESTION}0000291000000000000000"),
        ),
        (
            "case kept",
            a("wWw.oUtSiDe.tEsT."),
            "00000100000100000000000003775777076f55745369446504744573540000010001".to_owned(),
        ),
    ];
    let upstream = Upstream::start(says(1)).await;
    let subject = Subject::new(Limits::default());
    for (what, query, expected) in cases {
        upstream.forget();
        subject.ask(query.clone(), &[upstream.addr()]).await.unwrap();
        let asked = upstream.asked();
        assert_eq!(asked.len(), 1, "{what}");
        assert_eq!(format!("0000{}", &hex(&asked[0].packet)[4..]), *expected, "{what}");
    }
}

#[tokio::test]
async fn the_whole_reply_is_handed_on() {
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
    let subject = Subject::new(Limits::default());
    let reply = subject.ask(question("x.test.", 16, Transport::Udp), &[upstream.addr()]).await.unwrap();
    assert_eq!(
        (reply.upstream.socket_addr(), reply.rcode, reply.answers, reply.truncated),
        (upstream.addr(), 0, 2, false)
    );
    assert_eq!(reply.message, whole(&upstream.asked()[0]).wire());
}

/// After SERVFAIL and REFUSED, the next upstream is queried. All other replies are returned to the client.
#[tokio::test]
async fn only_servfail_and_refused_lead_to_the_next_upstream() {
    for transport in [Transport::Udp, Transport::Tcp] {
        for (rcode, told_by_two, counts) in [
            ("NXDOMAIN", "NXDOMAIN", (1, 0)),
            ("FORMERR", "FORMERR", (1, 0)),
            ("NOTIMP", "NOTIMP", (1, 0)),
            ("REFUSED", "NOERROR 192.0.2.2", (1, 1)),
            // As in kube-dns, a query is sent to the same upstream again after SERVFAIL.
            ("SERVFAIL", "NOERROR 192.0.2.2", (2, 1)),
        ] {
            let (first, second) = (Upstream::start(refuses(rcode)).await, Upstream::start(says(2)).await);
            let subject = Subject::new(Limits::default());
            let query = question("x.test.", 1, transport);
            let reply = subject.ask(query, &[first.addr(), second.addr()]).await;
            assert_eq!(told(&reply), told_by_two, "{rcode} over {transport:?}");
            assert_eq!((first.count(), second.count()), counts, "{rcode} over {transport:?}");
        }
    }
}

#[tokio::test]
async fn after_servfail_the_same_upstream_is_asked_once_more() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let (flaky, second) = (AtomicUsize::new(0), Upstream::start(says(2)).await);
        let flaky = Upstream::start(move |asked: &Asked| {
            let first = flaky.fetch_add(1, Ordering::Relaxed) == 0;
            if first { refuses("SERVFAIL")(asked) } else { says(1)(asked) }
        })
        .await;
        let subject = Subject::new(Limits::default());
        let reply = subject.ask(question("x.test.", 1, transport), &[flaky.addr(), second.addr()]).await;
        assert_eq!(told(&reply), "NOERROR 192.0.2.1");
        assert_eq!((flaky.count(), second.count()), (2, 0));
        assert!(is(subject.errors("servfail"), 1));
    }
}

#[tokio::test]
async fn no_upstreams_is_an_error_at_once() {
    let subject = Subject::new(Limits::default());
    assert_eq!(subject.ask_a("x.test.", &[]).await, "no upstream servers");
}

/// Replies are not limited to 512 octets.
#[tokio::test]
async fn large_replies_are_whole() {
    for (transport, records) in [(Transport::Udp, 60), (Transport::Udp, 1400), (Transport::Tcp, 1400)] {
        let upstream = Upstream::start(move |asked: &Asked| {
            let records =
                (0..records).map(|n| format!("{} 60 IN A 198.51.{}.{}", asked.name(), n / 250, n % 250));
            records.fold(Reply::to(&asked.packet), |reply, record| reply.answer(&record)).into()
        })
        .await;
        let subject = Subject::new(Limits::default());
        let reply = subject.ask(question("big.test.", 1, transport), &[upstream.addr()]).await.unwrap();
        assert_eq!(usize::from(reply.answers), records);
    }
}
