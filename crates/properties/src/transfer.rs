//! A request for a transfer.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};

use cluster::snapshot::Snapshot;
use skydns::transfer::{Key, Serial, TransferMetrics, Transfers};
use skydns::wire::{Query, Section, Transport, rcode, rtype};
use tokio::runtime::Runtime;

use crate::{example, message};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The time of the first version, in seconds since 1970: later than any clock, so that serials are the same in each run.
const TIME: u64 = 3_000_000_000;
/// Limit of messages in one response: the zone is small.
const MESSAGES: usize = 16;
/// The key of the examples in the corpus.
const KEY: &str = r#"key "xfer" { algorithm hmac-sha256; secret "c2VjcmV0IG9mIHR3ZW50eSBvY3RldHM="; };"#;

/// Transfers without a key, and transfers that need a signature.
static PRIMARIES: LazyLock<[Arc<Transfers<Snapshot>>; 2]> =
    LazyLock::new(|| [primary(None), primary(Key::parse(KEY).ok())]);
/// Another thread builds the messages.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
    runtime.unwrap_or_else(|error| unreachable!("{error}"))
});

/// For any transfer request, each message of the response can be parsed by others and has the ID and the question of the
/// request, and the whole begins and ends with the SOA record. If there is a key, no record is sent without a signature.
pub fn transfer(input: &[u8]) {
    let Some((&choice, octets)) = input.split_first() else { return };
    let request = if choice & 2 == 0 { octets.to_vec() } else { since(octets, choice & 4 == 0) };
    let [open, signed] = &*PRIMARIES;
    let has_key = choice & 1 != 0;
    let primary = if has_key { signed } else { open };
    let Some(mut stream) = primary.begin(&request, CLIENT) else {
        assert!(Query::parse(&request, Transport::Tcp).is_err(), "a query gets no response: {request:02x?}");
        return;
    };
    let mut messages = Vec::new();
    while let Some(message) = RUNTIME.block_on(stream.next()) {
        messages.push(message);
        assert!(messages.len() <= MESSAGES, "more messages than the zone has records for");
    }
    let types: Vec<u16> = messages.iter().flat_map(|message| records(&request, message)).collect();
    let refused = messages.first().is_none_or(|first| message::extended_rcode(&message::read(first)) != 0);
    assert_eq!(types.is_empty(), refused, "a transfer has records, and a rejection has none");
    assert!(refused || !has_key, "an unsigned request is granted");
    assert!(refused || types.first() == Some(&rtype::SOA) && types.last() == Some(&rtype::SOA));
}

/// Two versions of the example, the newer one in force.
fn primary(key: Option<Key>) -> Arc<Transfers<Snapshot>> {
    let metrics = TransferMetrics::new().unwrap_or_else(|error| unreachable!("{error}"));
    let peers = "127.0.0.1".parse().unwrap_or_else(|error| unreachable!("{error}"));
    let transfers = Transfers::new(peers, key, Serial::new(), metrics);
    for (view, time) in example::versions().iter().zip(TIME..) {
        assert!(transfers.take(view, time), "a version differs from the one before");
    }
    transfers
}

/// The request with the SOA record of a version in its authority section, in place of all that follows the question.
fn since(octets: &[u8], older: bool) -> Vec<u8> {
    let Ok(query) = Query::parse(octets, Transport::Tcp) else { return octets.to_vec() };
    let mut request = octets.get(..query.question_end()).unwrap_or_default().to_vec();
    if let Some(counts) = request.get_mut(4..12) {
        counts.copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    }
    request.extend([0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 0, 0, 22, 0, 0]);
    let serial = u32::try_from(TIME + u64::from(!older)).unwrap_or(u32::MAX);
    request.extend([serial, 0, 0, 0, 0].into_iter().flat_map(u32::to_be_bytes));
    request
}

/// The types of the records of an answer, after checks against its request.
fn records(request: &[u8], answer: &[u8]) -> Vec<u16> {
    let message = message::read(answer);
    assert!(u16::try_from(answer.len()).is_ok(), "{} octets", answer.len());
    assert_eq!(answer.get(..2), request.get(..2), "the ID is the request's");
    assert!(message.header().is_response(), "it is marked as an answer");
    let end = message.question_end();
    assert_eq!(answer.get(12..end), request.get(12..end), "the question is the request's");
    let rcode = message::extended_rcode(&message);
    let known = [rcode::NOERROR, rcode::FORMERR, rcode::SERVFAIL, rcode::REFUSED, rcode::NOTAUTH];
    assert!(known.contains(&rcode), "RCODE {rcode}");
    message.section(Section::Answer).map(|record| record.rtype).collect()
}
