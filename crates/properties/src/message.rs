//! Properties of every DNS message that we send.

use wire::{
    ErrorResponse, Message, PLAIN_UDP, Query, QueryError, Record, Section, Transport, flag, rtype,
};

/// Parses a message of ours with our parser and with hickory-proto. Panics unless both accept the
/// message, it ends with its last record, and each record can be written without compression.
pub(crate) fn read(message: &[u8]) -> Message<'_> {
    let read = hickory_proto::op::Message::from_vec(message);
    assert!(
        read.is_ok(),
        "hickory-proto cannot parse {message:02x?}: {:?}",
        read.err()
    );
    walk(message)
}

/// [`read`] without hickory-proto, for a message with records of an upstream. hickory-proto rejects
/// some of the records that a forwarder must pass on (RFC 3597), such as an empty record of an
/// unknown type.
fn walk(message: &[u8]) -> Message<'_> {
    let walked = Message::parse(message);
    let walked = walked.unwrap_or_else(|error| unreachable!("{error} in {message:02x?}"));
    assert_eq!(
        walked.end(),
        message.len(),
        "there are octets after the last record of {message:02x?}"
    );
    for record in walked.records() {
        assert!(
            alone(&record).is_some(),
            "{record:?} cannot be written without compression"
        );
    }
    walked
}

/// The octets of a record with uncompressed names; `None` if the uncompressed data is too long.
pub(crate) fn alone(record: &Record<'_>) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    let (owner, appended) = (record.owner(), record.append_data(&mut data));
    let Ok(owner) = owner else {
        unreachable!("the owner of {record:?} cannot be read: {owner:?}")
    };
    assert_eq!(appended, Ok(()), "{record:?}");
    let length = u16::try_from(data.len()).ok()?.to_be_bytes();
    let kind = [record.rtype, record.class].map(u16::to_be_bytes).concat();
    Some(
        [
            owner.wire(),
            &kind,
            &record.ttl.to_be_bytes(),
            &length,
            &data,
        ]
        .concat(),
    )
}

/// Checks the flags, size and EDNS of `reply`, and that the ID and question are those of `query`.
/// If `query` must be rejected, checks the RCODE instead of the question.
pub(crate) fn answers(query: &[u8], transport: Transport, reply: &[u8]) {
    read(reply);
    answers_with_any_records(query, transport, reply);
}

/// [`answers`] for a reply with records of an upstream, which hickory-proto may reject.
pub(crate) fn answers_with_any_records(query: &[u8], transport: Transport, reply: &[u8]) {
    let message = walk(reply);
    let (asked, said) = (flags(query), message.header().flags);
    assert_eq!(reply.get(..2), query.get(..2), "the ID must be the query's");
    assert!(
        message.header().is_response(),
        "the reply must be marked as a response"
    );
    let found = asked & flag::OPCODE;
    assert_eq!(found, said & flag::OPCODE, "the opcode must be the query's");
    assert_eq!(said & 0x0040, 0, "the reserved bit must be zero");
    let opts: Vec<_> = message
        .records()
        .filter(|record| record.rtype == rtype::OPT)
        .collect();
    assert!(
        opts.iter().all(|opt| opt.section == Section::Additional),
        "OPT must be an additional record"
    );
    let plain = transport == Transport::Udp && opts.is_empty();
    let limit = if plain {
        PLAIN_UDP
    } else {
        usize::from(u16::MAX)
    };
    assert!(
        reply.len() <= limit,
        "{} octets are more than {limit}",
        reply.len()
    );
    match Query::parse(query, transport) {
        Ok(parsed) => fits_query(&message, reply, query, &parsed, opts.len()),
        Err(QueryError::Respond(error)) => is_rejection(&message, &error, opts.len()),
        Err(QueryError::Ignore) => {
            unreachable!("a message that is not a query was answered: {query:02x?}")
        }
    }
}

fn fits_query(
    message: &Message<'_>,
    reply: &[u8],
    query: &[u8],
    parsed: &Query<'_>,
    opt_count: usize,
) {
    let limit = parsed.limit();
    assert!(
        reply.len() <= limit,
        "{} octets are more than {limit}",
        reply.len()
    );

    let end = parsed.question_end();
    let found = reply.get(12..end);
    assert_eq!(
        found,
        query.get(12..end),
        "the question must be the query's"
    );
    assert_eq!(
        message.question_end(),
        end,
        "the reply must have one question"
    );
    let expected = usize::from(parsed.edns.is_some());
    assert_eq!(
        opt_count, expected,
        "the reply must have EDNS if and only if the query has EDNS"
    );
}

fn is_rejection(message: &Message<'_>, error: &ErrorResponse, opt_count: usize) {
    let rcode = extended_rcode(message);
    assert_eq!(
        rcode, error.rcode,
        "the rejection must have the expected RCODE"
    );
    assert_eq!(
        opt_count,
        usize::from(error.dnssec_ok.is_some()),
        "a rejection must have EDNS if and only if the EDNS of the query was readable"
    );
    let others = message.records().count();
    assert_eq!(others, opt_count, "a rejection must have no other records");
}

/// The whole RCODE, with the upper bits from the OPT record (RFC 6891, section 6.1.3).
pub(crate) fn extended_rcode(message: &Message<'_>) -> u16 {
    let opt = message.records().find(|record| record.rtype == rtype::OPT);
    let [upper, ..] = opt.map_or(0, |opt| opt.ttl).to_be_bytes();
    u16::from(upper) << 4 | message.header().rcode()
}

/// The flags of a message: the second 16-bit word of its header.
pub(crate) fn flags(message: &[u8]) -> u16 {
    message
        .get(2..4)
        .map_or(0, |word| u16::from_be_bytes([word[0], word[1]]))
}

/// A query of class IN with RD and, if a size is given, EDNS.
pub(crate) fn query(name: &[u8], rtype: u16, edns: Option<u16>) -> Vec<u8> {
    let mut query = vec![
        0x12,
        0x34,
        1,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
        u8::from(edns.is_some()),
    ];
    query.extend_from_slice(name);
    query.extend_from_slice(&rtype.to_be_bytes());
    query.extend_from_slice(&[0, 1]);
    if let Some(size) = edns {
        query.extend_from_slice(&[0, 0, 41]);
        query.extend_from_slice(&size.to_be_bytes());
        query.extend_from_slice(&[0; 6]);
    }
    query
}

/// UDP for an even number, TCP for an odd one.
pub(crate) fn transport(choice: u8) -> Transport {
    if choice & 1 == 0 {
        Transport::Udp
    } else {
        Transport::Tcp
    }
}
