//! A message from an upstream server.

use std::net::SocketAddr;

use skydns::external::{ExternalAnswer, ExternalQuery, ExternalRecord};
use skydns::forward::{self, ReplyCheck, UpstreamReply};
use skydns::resolve;
use wire::Name;
use wire::{Message, MessageHeading, Query, Question, Record, Section, Transport, rtype};

use crate::{example, memory, message, query};

/// The header of a message with one record. Records of the input are copied into such messages, one
/// record in each.
const HEADER: [u8; 12] = [0, 0, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0];

/// Parsing any message from an upstream server takes at most a fixed amount of memory plus a
/// multiple of the message's size. An accepted reply has the question of the query. The answer for
/// a client has the ID and the question of the client's query, and is no larger than the client
/// accepts. The answer has EDNS if and only if the client's query has EDNS. hickory-proto can parse
/// the answer for an ExternalName Service whose target is resolved with the upstream's message.
pub fn reply(input: &[u8]) {
    let Some((&[choice, size0, size1], octets)) = input.split_first_chunk() else {
        return;
    };
    let transport = message::transport(choice);
    let edns = (choice & 2 != 0).then_some(u16::from_be_bytes([size0, size1]));
    let walked = memory::bounded(octets.len(), 16, || Message::parse(octets));
    match &walked {
        Ok(message) => walk(message, octets),
        Err(_) => assert!(octets.len() < u16::MAX.into()),
    }
    let asked = asked(octets, edns);
    let Ok(query) = Query::parse(&asked, transport) else {
        unreachable!("our own query is malformed: {asked:02x?}")
    };
    if let Some(reply) = judge(&query, octets) {
        pass_on(&query, &reply);
        pass_on_to_others(&query, &reply);
    }
    answer_with(choice, transport, octets);
}

/// A query with the question of the upstream's message, or with a fixed question if that message
/// has none.
fn asked(octets: &[u8], edns: Option<u16>) -> Vec<u8> {
    match MessageHeading::parse(octets)
        .ok()
        .and_then(|heading| heading.question)
    {
        Some(question) => message::query(question.name, question.qtype, edns),
        None => message::query(example::name("www.outside.test").wire(), rtype::A, edns),
    }
}

/// Checks that the records lie one after another in the message, and that each stays the same when
/// it is copied to a message of its own.
fn walk(message: &Message<'_>, octets: &[u8]) {
    let mut at = message.question_end();
    for record in message.records() {
        assert_eq!(record.range().start, at, "records must follow each other");
        assert!(
            record.ttl_range().end < record.data_range().start + 1
                && record.data_range().end <= octets.len()
        );
        at = record.range().end;
        again(&record);
    }
    assert_eq!(at, message.end());
    assert!(at <= octets.len());
}

fn again(record: &Record<'_>) {
    let Some(octets) = message::alone(record) else {
        return;
    };
    let alone = [&HEADER[..], &octets].concat();
    let read = Message::parse(&alone);
    let read = read.unwrap_or_else(|error| unreachable!("{error} in {alone:02x?} of {record:?}"));
    assert_eq!(read.end(), alone.len());
    let Some(same) = read.records().next() else {
        unreachable!("there is no record in {alone:02x?}")
    };
    assert_eq!(same.owner(), record.owner());
    let fields = (same.rtype, same.class, same.ttl);
    assert_eq!(fields, (record.rtype, record.class, record.ttl));
    let found = message::alone(&same);
    assert_eq!(found, Some(octets), "uncompressed names must not change");
}

/// Checks that a reply with an ID other than the query's is rejected. Checks that an accepted reply
/// has the question of the query, and can be parsed. Returns the accepted reply.
fn judge(query: &Query<'_>, octets: &[u8]) -> Option<UpstreamReply> {
    let id = octets.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
    let upstream = &SocketAddr::from(([192, 0, 2, 1], 53)).into();
    let asked = forward::UpstreamQuery::of_client(query);
    if let ReplyCheck::Valid(_) = forward::check_reply(&asked, id ^ 1, upstream, octets) {
        unreachable!("a reply with another ID was accepted");
    }

    let ReplyCheck::Valid(reply) = forward::check_reply(&asked, id, upstream, octets) else {
        return None;
    };
    let read = Message::parse(&reply.message);
    let read =
        read.unwrap_or_else(|error| unreachable!("{error} in the reply {:02x?}", reply.message));
    assert!(read.header().is_response());
    let header = read.header();
    let header_fields = (header.rcode(), header.is_truncated());
    assert_eq!(header_fields, (reply.rcode & 0xf, reply.truncated));
    let counted = (header.counts[1], read.end());
    assert_eq!(counted, (reply.answers, reply.message.len()));
    assert!(
        read.records()
            .all(|record| record.rtype != rtype::OPT || record.section != Section::Additional)
    );
    let asked = Question {
        name: query.name,
        qtype: query.qtype,
        qclass: query.qclass,
    };
    assert!(
        read.question()
            .is_some_and(|question| question.matches(asked)),
        "the reply must have the question of the query"
    );
    Some(reply)
}

/// Checks that the answer for the client is no larger than the client accepts, has the ID and the
/// question of the query, and has an OPT record if and only if the query has one. Over UDP, the
/// answer must have TC if and only if `append_answer` returns true.
fn pass_on(query: &Query<'_>, reply: &UpstreamReply) {
    let mut out = b"before".to_vec();
    let truncated = reply.append_answer(query, &mut out);
    let answer = out.strip_prefix(b"before").unwrap_or_default();
    assert!(
        answer.len() <= query.limit(),
        "the answer has {} octets, more than the limit of {}",
        answer.len(),
        query.limit()
    );

    let read = Message::parse(answer);
    let read = read.unwrap_or_else(|error| unreachable!("{error} in the answer: {answer:02x?}"));
    let ends = (read.end(), read.header().id);
    assert_eq!(ends, (answer.len(), query.header.id));
    let asked = Question {
        name: query.name,
        qtype: query.qtype,
        qclass: query.qclass,
    };
    assert_eq!(
        read.question(),
        Some(asked),
        "the question must be the query's, in the same upper and lower case"
    );
    let opts = read
        .section(Section::Additional)
        .filter(|record| record.rtype == rtype::OPT)
        .count();
    assert_eq!(opts, usize::from(query.edns.is_some()));

    let whole = Message::parse(&reply.message).map_or(0, |message| message.records().count());
    let left_out = read.records().count() - opts < whole;
    assert!(left_out || read.header().counts[1] == reply.answers);
    if query.transport == Transport::Udp {
        assert_eq!(
            truncated,
            read.header().is_truncated(),
            "TC must be set if and only if the answer is truncated"
        );
    }
}

/// Checks the answers for other clients that share the reply. Their queries have another ID. The
/// upper and lower case of the name, EDNS and the transport may also differ.
fn pass_on_to_others(query: &Query<'_>, reply: &UpstreamReply) {
    let key = forward::UpstreamQuery::of_client(query);
    let upper = query.name.to_ascii_uppercase();
    // Only the letters of the name change. The length octets of the labels are not letters, because
    // they are at most 63.
    for (name, edns) in [
        (&upper[..], None),
        (&upper, Some(0)),
        (query.name, Some(1400)),
        (&upper, Some(u16::MAX)),
    ] {
        let mut other = message::query(name, query.qtype, edns);
        if let Some(id) = other.first_chunk_mut() {
            *id = (!query.header.id).to_be_bytes();
        }
        for transport in [Transport::Udp, Transport::Tcp] {
            let Ok(other) = Query::parse(&other, transport) else {
                unreachable!("our own query is malformed: {other:02x?}")
            };
            let other_key = forward::UpstreamQuery::of_client(&other);
            assert_eq!(other_key, key, "both clients must share one upstream query");
            pass_on(&other, reply);
        }
    }
}

/// Checks answers to queries for ExternalName Services. The targets of these Services are resolved
/// with the upstream's message.
fn answer_with(choice: u8, transport: Transport, octets: &[u8]) {
    let names = ["out.apps.svc", "*.apps.svc", "shout.apps.svc", "*.*.svc"];
    let name = names.get(usize::from(choice >> 4 & 3)).unwrap_or(&"");
    let rtypes = [rtype::A, rtype::AAAA, rtype::SRV, rtype::CNAME];
    let rtype = rtypes
        .get(usize::from(choice >> 6))
        .copied()
        .unwrap_or_default();
    let asked = message::query(
        example::name(&format!("{name}.cluster.local")).wire(),
        rtype,
        Some(4096),
    );
    let rcode = octets.get(3).map_or(0, |octet| u16::from(octet & 0x0f));
    let told = |question: &ExternalQuery| {
        let zone = example::zone(false);
        let told = memory::bounded(octets.len(), 128, || {
            resolve::extract_external_answer(question, |name| zone.owns(name), octets, rcode)
        });
        if let ExternalAnswer::Records(records) = &told {
            belong(question, records);
        }
        told
    };
    query::ask(example::choose(choice >> 2 & 1), &asked, transport, told);
}

/// Checks that every record belongs to the queried name or to a CNAME target, and that no record
/// belongs to a cluster name.
fn belong(question: &ExternalQuery, records: &[ExternalRecord]) {
    let mut names = vec![question.name.to_lowercase()];
    for _ in records {
        let known = |record: &&ExternalRecord| names.contains(&record.owner.to_lowercase());
        let aliases = records
            .iter()
            .filter(|record| record.rtype == rtype::CNAME)
            .filter(known);
        let targets = aliases
            .filter_map(|record| Name::from_wire(&record.rdata))
            .map(|name| name.to_lowercase());
        let Some(new) = targets.into_iter().find(|name| !names.contains(name)) else {
            break;
        };
        names.push(new);
    }
    for record in records {
        assert!(
            names.contains(&record.owner.to_lowercase()),
            "a record belongs neither to the queried name nor to a CNAME target: {record:?}"
        );
        let ours = record
            .owner
            .to_lowercase()
            .to_string()
            .ends_with("cluster.local.");
        assert!(
            !ours,
            "an upstream's record belongs to a cluster name: {record:?}"
        );
    }
}
