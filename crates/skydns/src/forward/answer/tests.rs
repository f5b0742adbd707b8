//! Tests with upstream replies that have an OPT record.

use wire::Section;

use super::*;
use crate::forward::{ReplyCheck, UpstreamQuery, UpstreamReply, check_reply};

/// A query for `A.test. A` with an OPT record, which has a UDP size of 512 octets.
const QUERY: &[u8] = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x01A\x04test\x00\x00\x01\x00\x01\x00\x00\x29\x02\x00\x00\x00\x00\x00\x00\x00";
/// Length of the OPT record in the query.
const OPT: usize = 11;

/// An upstream's answer to `a.test. A` with the flags `flags`, one address and an OPT record. The
/// record has one option, with `option` octets of data.
fn upstream(flags: u16, option: u16) -> Vec<u8> {
    let [high, low] = flags.to_be_bytes();
    let mut message = vec![9, 9, high, low, 0, 1, 0, 1, 0, 0, 0, 1];
    message.extend_from_slice(b"\x01a\x04test\x00\x00\x01\x00\x01");
    message.extend_from_slice(b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01");
    message.extend_from_slice(b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00");
    message.extend_from_slice(&(option + 4).to_be_bytes());
    message.extend_from_slice(&65_001_u16.to_be_bytes());
    message.extend_from_slice(&option.to_be_bytes());
    message.extend(std::iter::repeat_n(0, option.into()));
    message
}

fn reply(octets: &[u8]) -> UpstreamReply {
    match check_reply(
        &UpstreamQuery::new(b"\x01a\x04test\x00", 1),
        0x0909,
        &"192.0.2.1".parse().unwrap(),
        octets,
    ) {
        ReplyCheck::Valid(reply) => reply,
        other => panic!("{other:?}"),
    }
}

/// Answers `query` with `reply`. Returns the length of the message, the number of answer records,
/// the length of the OPT record, the TC flag, and whether `append_answer` reports that the answer
/// is truncated.
fn answer(reply: &UpstreamReply, query: &[u8]) -> (usize, u16, usize, bool, bool) {
    let parsed = wire::Query::parse(query, Transport::Udp).unwrap();
    let mut out = Vec::new();
    let truncated = reply.append_answer(&parsed, &mut out);
    let read = Message::parse(&out).unwrap();
    assert_eq!((read.end(), &out[..2]), (out.len(), &query[..2]));
    let name = read.question().unwrap().name;
    assert_eq!(
        name, parsed.name,
        "the name must have the case of the client's query"
    );
    let opt = read
        .section(Section::Additional)
        .map(|opt| opt.range().len())
        .sum();
    (
        out.len(),
        read.header().counts[1],
        opt,
        read.header().is_truncated(),
        truncated,
    )
}

#[test]
fn options_that_leave_no_room_for_question_are_dropped() {
    for (what, option, expected) in [
        ("all of it fits", 400, (455, 1, 415, false, false)),
        ("fits exactly", 457, (512, 1, 472, false, false)),
        ("question and options fit", 458, (497, 0, 473, true, true)),
        (
            "question and options do not fit",
            474,
            (51, 1, OPT, false, false),
        ),
        ("very large options", 4000, (51, 1, OPT, false, false)),
    ] {
        let reply = reply(&upstream(0x8180, option));
        assert_eq!(answer(&reply, QUERY), expected, "{what}");
    }
}

#[test]
fn truncated_reply_stays_truncated() {
    let sent = answer(&reply(&upstream(0x8380, 4000)), QUERY);
    assert_eq!(sent, (51, 1, OPT, true, true));
}

#[test]
fn query_without_edns_gets_no_opt() {
    let mut query = QUERY[..QUERY.len() - OPT].to_vec();
    query[11] = 0;
    let sent = answer(&reply(&upstream(0x8180, 4000)), &query);
    assert_eq!(sent, (40, 1, 0, false, false));
}

#[test]
fn extended_rcode_becomes_servfail_without_edns() {
    let mut octets = upstream(0x8180, 0);
    let extended_rcode = octets.len() - 10;
    octets[extended_rcode] = 1;
    let reply = reply(&octets);
    assert_eq!(reply.rcode, rcode::BADVERS);
    let mut without = QUERY[..QUERY.len() - OPT].to_vec();
    without[11] = 0;
    for (query, expected) in [(QUERY, rcode::NOERROR), (&without[..], rcode::SERVFAIL)] {
        let mut out = Vec::new();
        reply.append_answer(
            &wire::Query::parse(query, Transport::Udp).unwrap(),
            &mut out,
        );
        assert_eq!(Header::parse(&out).unwrap().rcode(), expected);
    }
}
