//! Tests with upstream messages that are too large.

use super::*;

/// A query for `a.test. A` over UDP without EDNS.
const QUERY: &[u8] = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x01\x00\x01";

/// An upstream's answer with the flags `flags`, one address and an OPT record with `options` octets of options.
fn upstream(flags: u16, options: u16) -> Vec<u8> {
    let [high, low] = flags.to_be_bytes();
    let mut message = vec![9, 9, high, low, 0, 1, 0, 1, 0, 0, 0, 1];
    message.extend_from_slice(&QUERY[12..]);
    message.extend_from_slice(b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01");
    message.extend_from_slice(b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00");
    message.extend_from_slice(&options.to_be_bytes());
    message.extend(std::iter::repeat_n(0, options.into()));
    message
}

/// Length, answer count, additional count and TC of the message for the client, and whether [`fit`] reports
/// truncation.
fn passed_on(message: &[u8]) -> (usize, u16, u16, bool, bool) {
    let query = Query::parse(QUERY, Transport::Udp).unwrap();
    let mut out = Vec::new();
    let truncated = fit(message, &query, &mut out);
    let read = Message::parse(&out).unwrap();
    assert_eq!((read.end(), &out[..2]), (out.len(), &QUERY[..2]));
    let [_, answers, _, additional] = read.header().counts;
    (out.len(), answers, additional, read.header().is_truncated(), truncated)
}

#[test]
fn options_of_any_size_fit() {
    for (what, options, expected) in [
        ("all of it fits", 400, (451, 1, 1, false, false)),
        ("to the octet", 461, (512, 1, 1, false, false)),
        ("only question and options fit", 462, (497, 0, 1, true, true)),
        ("options leave no room for the question", 478, (40, 1, 0, false, false)),
        ("options larger than any answer", 4000, (40, 1, 0, false, false)),
    ] {
        assert_eq!(passed_on(&upstream(0x8180, options)), expected, "{what}");
    }
}

#[test]
fn what_came_truncated_stays_truncated() {
    assert_eq!(passed_on(&upstream(0x8380, 4000)), (40, 1, 0, true, true));
}
