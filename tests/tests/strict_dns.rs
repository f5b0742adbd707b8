//! Compares answers with and without `--strict-dns`. `docs/differences.md` lists the differences.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test helper may panic if the set-up fails"
)]

#[path = "in_process/engine.rs"]
mod engine;

use engine::{ask, published};
use serde_json::Value;
use testkit::message::Message;
use testkit::objects::mk_cluster_ip;
use testkit::query::Query;
use tests::lab::in_a_line;
use wire::Transport;

fn objects() -> Vec<Value> {
    vec![mk_cluster_ip("apps", "web", &["10.96.0.10"], &["http:80"])]
}

/// The RCODE, the flags and the answer records in one line.
fn outline(answer: &Message) -> String {
    let (rcode, data) = in_a_line(answer).split_once(' ').map_or_else(
        || (in_a_line(answer), String::new()),
        |(rcode, data)| (rcode.to_owned(), format!(" {data}")),
    );
    format!("{rcode} ({}){data}", answer.flags())
}

/// A query for the A records of `web`. `counts` are the record counts of the three sections after
/// the question, and `octets` are the records of these sections.
fn with_sections(counts: [u8; 3], octets: &[u8]) -> Vec<u8> {
    let mut message = Query::new("web.apps.svc.cluster.local.", "A").wire();
    for (at, count) in [7, 9, 11].into_iter().zip(counts) {
        message[at] = count;
    }
    message.extend(octets);
    message
}

#[test]
fn only_strict_server_rejects_malformed_sections() {
    const OPT: [u8; 11] = [0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0];
    const ANSWER: &str = "NOERROR (qr aa rd ra) 10.96.0.10";
    const REFUSAL: &str = "FORMERR (qr rd)";
    let not_root = [&[1, b'x'][..], &OPT].concat();
    let [plain, strict] = [false, true].map(|strict| published(objects(), strict));
    for (what, counts, octets, strictly) in [
        ("sound", [0, 0, 1], &OPT[..], ANSWER),
        ("an answer record is missing", [1, 0, 0], &[], REFUSAL),
        ("an authority record is missing", [0, 1, 0], &[], REFUSAL),
        ("an additional record is missing", [0, 0, 1], &[], REFUSAL),
        ("the record after OPT is missing", [0, 0, 2], &OPT, REFUSAL),
        (
            "the owner name of OPT is not the root",
            [0, 0, 1],
            &not_root,
            REFUSAL,
        ),
    ] {
        let message = with_sections(counts, octets);
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
fn only_strict_server_copies_rd_to_refused_answer() {
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
