//! Compares answers with and without `--strict-dns`. `docs/differences.md` lists the differences.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests: a broken set-up ends the test with its reason"
)]

#[path = "in_process/engine.rs"]
mod engine;

use engine::{ask, published};
use serde_json::Value;
use testkit::message::Message;
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_external_name, mk_headless};
use testkit::query::Query;
use tests::lab::in_a_line;
use wire::Transport;

fn objects() -> Vec<Value> {
    let crowd: Vec<String> = (1..=200).map(|n| format!("10.0.1.{n}")).collect();
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    vec![
        mk_cluster_ip("apps", "web", &["10.96.0.10"], &["http:80"]),
        mk_external_name("names", "inside", "web.apps.svc.cluster.local"),
        mk_external_name("names", "outside", "www.outside.test"),
        mk_external_name("literal", "address", "192.0.2.7"),
        mk_headless("apps", "crowd", &[]),
        mk_endpoints("apps", "crowd", &crowd, &["http:80"]),
    ]
}

/// The RCODE, the flags and the answer records in one line.
fn outline(answer: &Message) -> String {
    let (rcode, data) = in_a_line(answer).split_once(' ').map_or_else(
        || (in_a_line(answer), String::new()),
        |(rcode, data)| (rcode.to_owned(), format!(" {data}")),
    );
    format!("{rcode} ({}){data}", answer.flags())
}

const ALIAS: &str = "NOERROR (qr aa rd ra) -> web.apps.svc.cluster.local.";
const NODATA: &str = "NOERROR (qr aa rd ra)";
/// Name and type of a query, and its answers without and with `--strict-dns`.
const STRICT_ANSWERS: &[(&str, &str, &str, &str)] = &[
    // With `--strict-dns` the answer for every type has the CNAME. For A and AAAA it also has
    // the target's records.
    ("inside.names.svc", "TXT", NODATA, ALIAS),
    ("inside.names.svc", "MX", NODATA, ALIAS),
    ("inside.names.svc", "NS", NODATA, ALIAS),
    ("inside.names.svc", "TYPE65280", NODATA, ALIAS),
    (
        "inside.names.svc",
        "SRV",
        "NOERROR (qr aa rd ra) 10 100 0 web.apps.svc.cluster.local.",
        ALIAS,
    ),
    ("inside.names.svc", "CNAME", ALIAS, ALIAS),
    (
        "inside.names.svc",
        "A",
        "NOERROR (qr aa rd ra) -> web.apps.svc.cluster.local. 10.96.0.10",
        "NOERROR (qr aa rd ra) -> web.apps.svc.cluster.local. 10.96.0.10",
    ),
    (
        "outside.names.svc",
        "TXT",
        NODATA,
        "NOERROR (qr aa rd ra) -> www.outside.test.",
    ),
    ("web.apps.svc", "TXT", NODATA, NODATA),
    (
        "missing.names.svc",
        "TXT",
        "NXDOMAIN (qr rd)",
        "NXDOMAIN (qr aa rd ra)",
    ),
    // With `--strict-dns` every namespace is an empty non-terminal.
    (
        "literal.svc",
        "A",
        "NOERROR (qr aa rd ra) 192.0.2.7",
        NODATA,
    ),
    ("literal.svc", "AAAA", NODATA, NODATA),
    ("literal.svc", "TXT", NODATA, NODATA),
    (
        "literal.svc",
        "SRV",
        "NOERROR (qr aa rd ra) 10 100 0 address.literal.svc.cluster.local.",
        NODATA,
    ),
    (
        "address.literal.svc",
        "A",
        "NOERROR (qr aa rd ra) 192.0.2.7",
        "NOERROR (qr aa rd ra) 192.0.2.7",
    ),
    ("names.svc", "TXT", NODATA, NODATA),
    ("apps.svc", "A", "NXDOMAIN (qr rd)", NODATA),
    (
        "gone.svc",
        "A",
        "NXDOMAIN (qr rd)",
        "NXDOMAIN (qr aa rd ra)",
    ),
];

#[test]
fn strict_alias_and_namespace_answers() {
    let [plain, strict] = [false, true].map(|strict| published(objects(), strict));
    for &(name, rtype, usually, strictly) in STRICT_ANSWERS {
        let query = Query::new(&format!("{name}.cluster.local."), rtype).wire();
        for (way, published, expected) in [
            ("usually", &plain, usually),
            ("strictly", &strict, strictly),
        ] {
            assert_eq!(
                outline(&ask(published, &query, Transport::Udp)),
                expected,
                "{way}: {name} {rtype}"
            );
        }
    }
    // Without `--strict-dns` the answer has one of the CNAMEs in the namespace, as in kube-dns.
    let query = Query::new("names.svc.cluster.local.", "A").wire();
    assert_eq!(outline(&ask(&strict, &query, Transport::Udp)), NODATA);
    assert_eq!(
        ask(&plain, &query, Transport::Udp)
            .answer_data("CNAME")
            .len(),
        1
    );
}

/// A query for A of `web`, with the octets of further records and the record counts of the three
/// sections.
fn with_sections(counts: [u8; 3], octets: &[u8]) -> Vec<u8> {
    let mut message = Query::new("web.apps.svc.cluster.local.", "A").wire();
    for (at, count) in [7, 9, 11].into_iter().zip(counts) {
        message[at] = count;
    }
    message.extend(octets);
    message
}

#[test]
fn malformed_sections_get_formerr() {
    const OPT: [u8; 11] = [0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0];
    const ANSWER: &str = "NOERROR (qr aa rd ra) 10.96.0.10";
    const REFUSAL: &str = "FORMERR (qr rd)";
    let not_root = [&[1, b'x'][..], &OPT].concat();
    let [plain, strict] = [false, true].map(|strict| published(objects(), strict));
    for (what, message, strictly) in [
        ("sound", with_sections([0, 0, 1], &OPT), ANSWER),
        (
            "an answer is missing",
            with_sections([1, 0, 0], &[]),
            REFUSAL,
        ),
        (
            "an authority is missing",
            with_sections([0, 1, 0], &[]),
            REFUSAL,
        ),
        (
            "an additional record is missing",
            with_sections([0, 0, 1], &[]),
            REFUSAL,
        ),
        (
            "a second additional record is missing",
            with_sections([0, 0, 2], &OPT),
            REFUSAL,
        ),
        (
            "OPT of another name than the root",
            with_sections([0, 0, 1], &not_root),
            REFUSAL,
        ),
    ] {
        for (way, published, expected) in
            [("usually", &plain, ANSWER), ("strictly", &strict, strictly)]
        {
            let answer = ask(published, &message, Transport::Udp);
            assert_eq!(outline(&answer), expected, "{way}: {what}");
            assert_eq!(answer.questions.len(), 1, "{way}: {what}");
        }
    }
}

#[test]
fn refused_answer_copies_rd() {
    let [plain, strict] = [false, true].map(|strict| published(objects(), strict));
    for (flags, usually, strictly) in [
        ("rd", "REFUSED (qr)", "REFUSED (qr rd)"),
        ("", "REFUSED (qr)", "REFUSED (qr)"),
    ] {
        let query = Query::new("web.apps.svc.cluster.local.", "ANY")
            .flags(flags)
            .wire();
        assert_eq!(outline(&ask(&plain, &query, Transport::Udp)), usually);
        assert_eq!(outline(&ask(&strict, &query, Transport::Udp)), strictly);
    }
}

#[test]
fn udp_answers_fit_1232_octets() {
    let [plain, strict] = [false, true].map(|strict| published(objects(), strict));
    let query = Query::new("crowd.apps.svc.cluster.local.", "A");
    let large = query.clone().edns(4096).wire();
    for (way, published, query, transport, records, cut) in [
        ("usually", &plain, &large, Transport::Udp, 200, false),
        ("strictly", &strict, &large, Transport::Udp, 73, true),
        (
            "strictly over TCP",
            &strict,
            &query.wire(),
            Transport::Tcp,
            200,
            false,
        ),
    ] {
        let answer = ask(published, query, transport);
        // The header has 12 octets, the question 34, the OPT record 11, and each answer record 16.
        assert_eq!(
            (answer.answer.len(), answer.has("tc")),
            (records, cut),
            "{way}"
        );
    }
}
