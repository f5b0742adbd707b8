use hickory_proto::op::{Message as Hickory, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, MX, NAPTR, NULL, SOA, SRV, TXT};
use hickory_proto::rr::{Name as HickoryName, RData, Record as HickoryRecord, RecordType};
use proptest::prelude::*;

use super::WireError::{BadData, BadName, ManyQuestions, Short};
use super::*;
use crate::rcode::NOERROR;

/// A message whose header has these counts. After the header come the question `a.test. A IN`, if
/// QDCOUNT is 1, and `rest`.
fn message(counts: [u16; 4], rest: &[u8]) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 0x85, 0x80];
    out.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
    if counts[0] == 1 {
        out.extend(b"\x01a\x04test\x00\x00\x01\x00\x01");
    }
    out.extend(rest);
    out
}

/// Offset of the first record in a [`message`] with a question.
const RECORDS: usize = 24;

/// One record with the owner `a.test.` (a pointer), a TTL of 60 and class IN.
fn record(rtype: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    [
        &[0xc0, 0x0c][..],
        &rtype.to_be_bytes(),
        &[0, 1, 0, 0, 0, 60],
        &length.to_be_bytes(),
        data,
    ]
    .concat()
}

#[test]
fn header_and_question_are_read() {
    let wire = message([1, 0, 0, 0], &[]);
    let read = Message::parse(&wire).unwrap();
    let header = read.header();
    let fields = (header.id, header.opcode(), header.rcode());
    assert_eq!(fields, (0x1234, 0, NOERROR));
    assert!(header.is_response() && !header.is_truncated());

    let question = read.question().unwrap();
    let fields = (question.name, question.qtype, question.qclass);
    assert_eq!(fields, (&b"\x01a\x04test\x00"[..], 1, 1));
    assert_eq!((read.question_end(), read.end()), (RECORDS, RECORDS));
}

#[test]
fn records_of_all_sections_are_read() {
    let parts = [
        record(1, &[192, 0, 2, 1]),
        record(65280, &[0xff; 3]),
        record(2, &[0xc0, 0x0e]),
    ];
    let wire = [message([1, 1, 1, 1], &parts.concat()), vec![9, 9]].concat();
    let read = Message::parse(&wire).unwrap();
    let seen: Vec<_> = read
        .records()
        .map(|record| {
            (
                record.section,
                record.rtype,
                record.class,
                record.ttl,
                record.data().to_vec(),
            )
        })
        .collect();
    let expected = [
        (Section::Answer, 1, 1, 60, vec![192, 0, 2, 1]),
        (Section::Authority, 65280, 1, 60, vec![0xff; 3]),
        (Section::Additional, 2, 1, 60, vec![0xc0, 0x0e]),
    ];
    assert_eq!(seen, expected);
    assert_eq!(
        read.end(),
        wire.len() - 2,
        "the message must end with its last record"
    );

    let first = read.records().next().unwrap();
    assert_eq!(first.range(), RECORDS..RECORDS + 16);
    assert_eq!(wire[first.ttl_range()], [0, 0, 0, 60]);
    assert_eq!(first.owner().unwrap().to_string(), "a.test.");

    let mut target = Vec::new();
    read.section(Section::Additional)
        .next()
        .unwrap()
        .append_data(&mut target)
        .unwrap();
    assert_eq!(target, b"\x04test\x00");
}

/// The description of a malformed message, its octets, and the error of parsing them.
type MalformedMessage = (&'static str, Vec<u8>, WireError);

fn assert_rejected(cases: &[MalformedMessage]) {
    for (what, wire, error) in cases {
        assert_eq!(Message::parse(wire).unwrap_err(), *error, "{what}");
    }
}

#[test]
fn short_message_and_two_questions_are_rejected() {
    let a = record(1, &[192, 0, 2, 1]);
    let question = message([1, 0, 0, 0], &[]);
    let one = |octets: &[u8]| message([1, 1, 0, 0], octets);
    let whole = a.len();
    assert_rejected(&[
        ("nothing", vec![], Short(0)),
        ("a header without its last octet", vec![0; 11], Short(10)),
        (
            "two questions",
            message([2, 0, 0, 0], &[]),
            ManyQuestions(2),
        ),
        ("question missing", question[..12].to_vec(), Short(12)),
        ("question cut", question[..22].to_vec(), Short(22)),
        (
            "a record missing",
            message([1, 2, 0, 0], &a),
            Short(RECORDS + whole),
        ),
        ("record cut", one(&a[..9]), Short(RECORDS + 8)),
        ("data cut", one(&a[..whole - 1]), Short(RECORDS + 12)),
    ]);
}

#[test]
fn bad_owner_name_is_rejected() {
    let a = record(1, &[192, 0, 2, 1]);
    let named = |name: &[u8]| message([1, 1, 0, 0], &[name, &a[2..]].concat());
    let long_label = [&[63][..], &[b'x'; 63]].concat();
    let long_name = [long_label.repeat(4), vec![0]].concat();
    let bad_name = BadName(RECORDS);
    let through_header = message([1, 0xc00c, 0, 0], &[0xc0, 6]);
    assert_rejected(&[
        ("pointer to itself", named(&[0xc0, 24]), bad_name),
        ("pointer forwards", named(&[0xc0, 40]), bad_name),
        (
            "pointer into its own name",
            named(&[1, b'x', 0xc0, 24]),
            bad_name,
        ),
        (
            "pointer to a zero in the header",
            named(&[0xc0, 8]),
            bad_name,
        ),
        (
            "pointer to a pointer in the header",
            through_header,
            bad_name,
        ),
        ("label type 01", named(&[0x41, b'x', 0]), bad_name),
        ("label type 10", named(&[0x81, b'x', 0]), bad_name),
        ("name of 257 octets", named(&long_name), bad_name),
    ]);
}

#[test]
fn bad_data_is_rejected() {
    let a = record(1, &[192, 0, 2, 1]);
    let bad_data = |rtype| BadData {
        rtype,
        at: RECORDS + 12,
    };
    let one = |rtype, data: &[u8]| message([1, 1, 0, 0], &record(rtype, data));
    let in_next_record = message([1, 2, 0, 0], &[record(5, &[2]), a].concat());
    assert_rejected(&[
        ("A of three octets", one(1, &[1, 2, 3]), bad_data(1)),
        ("AAAA of four octets", one(28, &[1, 2, 3, 4]), bad_data(28)),
        (
            "CNAME followed by more octets",
            one(5, &[0, 0]),
            bad_data(5),
        ),
        ("SRV without target", one(33, &[0; 6]), Short(RECORDS + 18)),
        (
            "NAPTR with a truncated character-string",
            one(35, &[0, 0, 0, 0, 9]),
            bad_data(35),
        ),
        (
            "CNAME that ends in the next record",
            in_next_record,
            bad_data(5),
        ),
    ]);
}

/// The owner name of the second record points to the data of the first record. Read as a name,
/// these data would continue into the second record, which begins with the pointer.
#[test]
fn name_through_its_own_record_is_rejected() {
    let a = record(1, &[192, 0, 2, 1]);
    let into_pointer = |data: &[u8]| {
        let [_, low] = u16::try_from(RECORDS + 12).unwrap().to_be_bytes();
        let first = record(65280, data);
        message([1, 2, 0, 0], &[&first[..], &[0xc0, low], &a[2..]].concat())
    };
    let ends_at = |octets| BadName(RECORDS + octets);
    assert_rejected(&[
        (
            "name that would continue within a label",
            into_pointer(&[5]),
            ends_at(13),
        ),
        (
            "name that would continue after a label",
            into_pointer(&[1, b'x']),
            ends_at(14),
        ),
    ]);
}

fn name() -> impl Strategy<Value = HickoryName> {
    let label =
        proptest::collection::vec(prop_oneof![b'a'..=b'z', b'A'..=b'Z', b'0'..=b'9'], 1..12);
    proptest::collection::vec(label, 0..4).prop_map(|labels| {
        let suffix = [b"Outside".to_vec(), b"test".to_vec()];
        HickoryName::from_labels(labels.into_iter().chain(suffix)).unwrap()
    })
}

fn data() -> impl Strategy<Value = RData> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|a| RData::A(A::from(std::net::Ipv4Addr::from(a)))),
        any::<[u8; 16]>().prop_map(|a| RData::AAAA(AAAA::from(std::net::Ipv6Addr::from(a)))),
        name().prop_map(|target| RData::CNAME(CNAME(target))),
        (any::<u16>(), name()).prop_map(|(preference, name)| RData::MX(MX::new(preference, name))),
        (name(), name(), any::<u32>()).prop_map(|(mname, rname, serial)| RData::SOA(SOA::new(
            mname, rname, serial, 1, 2, 3, 4
        ))),
        (any::<u16>(), name())
            .prop_map(|(port, target)| RData::SRV(SRV::new(10, 100, port, target))),
        ("[ -~]{0,40}").prop_map(|text| RData::TXT(TXT::new(vec![text]))),
        ("[a-z]{0,9}", name()).prop_map(|(text, target)| {
            let text = text.into_bytes().into_boxed_slice();
            RData::NAPTR(NAPTR::new(1, 2, text.clone(), text.clone(), text, target))
        }),
        proptest::collection::vec(any::<u8>(), 1..40).prop_map(|octets| RData::Unknown {
            code: RecordType::Unknown(65280),
            rdata: NULL::with(octets)
        }),
    ]
}

fn records() -> impl Strategy<Value = Vec<HickoryRecord>> {
    let record = (name(), any::<u32>(), data())
        .prop_map(|(n, ttl, data)| HickoryRecord::from_rdata(n, ttl, data));
    proptest::collection::vec(record, 0..6)
}

fn whole_message() -> impl Strategy<Value = Hickory> {
    (name(), records(), records(), records()).prop_map(
        |(name, answers, authorities, additionals)| {
            let mut message = Hickory::new(1, MessageType::Response, OpCode::Query);
            message.add_query(Query::query(name, RecordType::A));
            message
                .add_answers(answers)
                .add_authorities(authorities)
                .add_additionals(additionals);
            message
        },
    )
}

proptest! {
    /// Parsing a compressed message and writing its records without compression keeps its content.
    #[test]
    fn message_survives_decompression(original in whole_message()) {
        let wire = original.to_vec().unwrap();
        let read = Message::parse(&wire).unwrap();
        prop_assert_eq!(read.end(), wire.len());

        let mut rebuilt = wire[..read.question_end()].to_vec();
        for record in read.records() {
            rebuilt.extend(alone(&record));
        }
        prop_assert_eq!(Hickory::from_vec(&rebuilt).unwrap(), original);
    }
}

/// The record without compression.
fn alone(record: &Record<'_>) -> Vec<u8> {
    let mut data = Vec::new();
    record.append_data(&mut data).unwrap();
    let kind = [record.rtype, record.class].map(u16::to_be_bytes).concat();
    let length = u16::try_from(data.len()).unwrap().to_be_bytes();
    [
        record.owner().unwrap().wire(),
        &kind,
        &record.ttl.to_be_bytes(),
        &length,
        &data,
    ]
    .concat()
}
