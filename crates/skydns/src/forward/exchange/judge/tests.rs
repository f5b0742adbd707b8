use proptest::prelude::*;

use super::*;
use crate::wire::rtype;

const ID: u16 = 0x1234;

fn query() -> Query {
    Query::new(&b"\x03WwW\x07outside\x04test\x00"[..], rtype::A)
}

fn upstream() -> SocketAddr {
    ([192, 0, 2, 53], 53).into()
}

/// A right reply with one address.
fn right() -> Vec<u8> {
    let mut packet = query().encode(ID, 0);
    packet[2] |= 0x80;
    packet[7] = 1;
    packet.extend(b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01");
    packet
}

#[test]
fn the_right_reply_is_taken_whole() {
    let Verdict::Reply(reply) = judge(&query(), ID, upstream(), &right()) else { panic!("not taken") };
    assert_eq!(reply.message, right());
    assert_eq!((reply.rcode, reply.answers, reply.truncated, reply.upstream), (0, 1, false, upstream()));
}

/// Whatever is taken is a message with the ID, the question and no more records than it says.
fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Verdict::Reply(reply) = judge(&query(), ID, upstream(), bytes) else { return Ok(()) };
    prop_assert!(bytes.starts_with(&ID.to_be_bytes()));
    let message = Message::parse(&reply.message).unwrap();
    let question = message.question().unwrap();
    prop_assert!(question.name.eq_ignore_ascii_case(&query().name));
    prop_assert_eq!((question.qtype, question.qclass), (1, 1));
    prop_assert!(message.header().is_response());
    prop_assert_eq!(message.header().counts[1], reply.answers);
    prop_assert_eq!(message.header().is_truncated(), reply.truncated);
    prop_assert_eq!(message.end(), reply.message.len());
    Ok(())
}

proptest! {
    #[test]
    fn random_octets_do_no_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), with_id in any::<bool>()) {
        if let Some(id) = bytes.first_chunk_mut().filter(|_| with_id) {
            *id = ID.to_be_bytes();
        }
        check(&bytes)?;
    }

    #[test]
    fn damaged_replies_do_no_harm(
        damage in proptest::collection::vec((2..50_usize, any::<u8>()), 0..4), cut in 0..80_usize,
    ) {
        let mut bytes = right();
        for (at, octet) in damage {
            let at = at % bytes.len();
            bytes[at] = octet;
        }
        bytes.truncate(cut);
        check(&bytes)?;
    }

    /// One wrong octet in ID or question is enough for a reply not to count.
    #[test]
    fn every_octet_of_id_and_question_counts(at in prop_oneof![0..2_usize, 12..34_usize], octet in any::<u8>()) {
        let mut bytes = right();
        prop_assume!(!bytes[at].eq_ignore_ascii_case(&octet));
        bytes[at] = octet;
        prop_assert!(!matches!(judge(&query(), ID, upstream(), &bytes), Verdict::Reply(_)));
    }
}
