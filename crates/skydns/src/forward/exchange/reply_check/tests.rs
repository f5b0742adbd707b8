use proptest::prelude::*;
use wire::rtype;

use super::*;

const ID: u16 = 0x1234;

fn query() -> UpstreamQuery {
    UpstreamQuery::new(&b"\x03WwW\x07outside\x04test\x00"[..], rtype::A)
}

fn upstream() -> Upstream {
    std::net::SocketAddr::from(([192, 0, 2, 53], 53)).into()
}

/// A correct reply with one address.
fn right() -> Vec<u8> {
    let mut packet = query().encode(ID, false);
    packet[2] |= 0x80;
    packet[7] = 1;
    packet.extend(b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01");
    packet
}

#[test]
fn valid_reply_is_accepted_whole() {
    let ReplyCheck::Valid(reply) = check_reply(&query(), ID, &upstream(), &right()) else {
        panic!("the correct reply was rejected")
    };
    assert_eq!(*reply.message, right());
    let shown = (reply.rcode, reply.answers, reply.truncated, reply.upstream);
    assert_eq!(shown, (0, 1, false, upstream()));
}

proptest! {
    /// A change of one octet in the ID or the question makes a reply invalid, unless it only
    /// changes the case of a letter.
    #[test]
    fn changed_id_or_question_is_rejected(at in prop_oneof![0..2_usize, 12..34_usize], octet in any::<u8>()) {
        let mut bytes = right();
        prop_assume!(!bytes[at].eq_ignore_ascii_case(&octet));
        bytes[at] = octet;
        prop_assert!(!matches!(check_reply(&query(), ID, &upstream(), &bytes), ReplyCheck::Valid(_)));
    }
}
