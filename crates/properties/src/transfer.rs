//! A request for a zone transfer.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};

use cluster::snapshot::Snapshot;
use skydns::ZoneSerials;
use skydns::transfer::{TransferMetrics, TsigKey, ZoneTransfers};
use tokio::runtime::Runtime;
use wire::{Query, Section, Transport, rcode, rtype};

use crate::{example, message};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The time of the older version of the zone, in seconds since 1970. Before its first version, a
/// zone has the time of the start of the process as its serial. The serial of each version is the
/// time of the version, if this time is later than the last serial. `TIME` is later than the start
/// of the process, so the serials do not depend on the clock.
const TIME: u64 = 3_000_000_000;
/// Maximum number of messages in one response. The zone of the example needs far fewer.
const MESSAGES: usize = 16;
/// The TSIG key of the signed requests in the corpus. The signatures date from 1970, so the server
/// with this key rejects these requests.
const KEY: &str =
    r#"key "xfer" { algorithm hmac-sha256; secret "c2VjcmV0IG9mIHR3ZW50eSBvY3RldHM="; };"#;

/// A primary server without a key, and one that requires signed requests.
static PRIMARIES: LazyLock<[Arc<ZoneTransfers<Snapshot>>; 2]> =
    LazyLock::new(|| [primary(None), primary(TsigKey::parse(KEY).ok())]);
/// A second thread of this runtime builds the messages.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build();
    runtime.unwrap_or_else(|error| unreachable!("{error}"))
});

/// EXPIRE of the first primary's SOA records. The client sends this value back in an IXFR request.
/// The value tells the server whether the serial in the request comes from this server process.
static EXPIRE: LazyLock<u32> = LazyLock::new(|| {
    let [open, _] = &*PRIMARIES;
    let domain = example::name("cluster.local");
    let question = [
        domain.wire(),
        &rtype::AXFR.to_be_bytes(),
        &1_u16.to_be_bytes(),
    ]
    .concat();
    let request = [&[0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &question].concat();
    let first = open
        .begin_stream(&request, CLIENT)
        .and_then(|mut stream| RUNTIME.block_on(stream.next_message()));
    let first = first.unwrap_or_default();
    let soa = message::read(&first).section(Section::Answer).next();
    let numbers = soa.and_then(|soa| soa.data().last_chunk::<20>().copied());
    let expire = numbers.and_then(|numbers| numbers.get(12..)?.first_chunk().copied());
    expire.map_or(0, u32::from_be_bytes)
});

/// For any transfer request, each message of the response has the ID and the question of the
/// request, and hickory-proto can parse the message. A transfer begins and ends with the SOA
/// record. If the server has a key, it rejects requests without a valid signature.
///
/// The first octet of the input selects a server with or without a key. It also selects whether the
/// request gets the authority section of an IXFR request, with the serial of the older or the newer
/// version of the zone. The other octets are the request.
pub fn transfer(input: &[u8]) {
    let Some((&choice, octets)) = input.split_first() else {
        return;
    };
    let request = if choice & 2 == 0 {
        octets.to_vec()
    } else {
        since(octets, choice & 4 == 0)
    };
    let [open, signed] = &*PRIMARIES;
    let has_key = choice & 1 != 0;
    let primary = if has_key { signed } else { open };
    let Some(mut stream) = primary.begin_stream(&request, CLIENT) else {
        assert!(
            Query::parse(&request, Transport::Tcp).is_err(),
            "a query gets no response: {request:02x?}"
        );
        return;
    };
    let mut messages = Vec::new();
    while let Some(message) = RUNTIME.block_on(stream.next_message()) {
        messages.push(message);
        assert!(
            messages.len() <= MESSAGES,
            "the response has more messages than the zone needs"
        );
    }
    let types: Vec<u16> = messages
        .iter()
        .flat_map(|message| records(&request, message))
        .collect();
    let refused = messages
        .first()
        .is_none_or(|first| message::extended_rcode(&message::read(first)) != 0);
    assert_eq!(
        types.is_empty(),
        refused,
        "a transfer must have records, and a rejection must have none"
    );
    assert!(
        refused || !has_key,
        "a request without a valid signature is granted"
    );
    assert!(refused || types.first() == Some(&rtype::SOA) && types.last() == Some(&rtype::SOA));
}

/// A primary server with two versions of the example zone. The newer version is the current one.
fn primary(key: Option<TsigKey>) -> Arc<ZoneTransfers<Snapshot>> {
    let metrics = TransferMetrics::new().unwrap_or_else(|error| unreachable!("{error}"));
    let peers = "127.0.0.1"
        .parse()
        .unwrap_or_else(|error| unreachable!("{error}"));
    let transfers = ZoneTransfers::new(peers, key, ZoneSerials::new(), metrics);
    for (view, time) in example::versions().iter().zip(TIME..) {
        assert!(
            transfers.update_versions(view, time),
            "each version must differ from the one before"
        );
    }
    transfers
}

/// Returns the query in `octets`, up to the end of its question, with the authority section of an
/// IXFR request: the SOA record of the older or the newer version (RFC 1995, section 3). Returns
/// `octets` unchanged if they are not a query.
fn since(octets: &[u8], older: bool) -> Vec<u8> {
    let Ok(query) = Query::parse(octets, Transport::Tcp) else {
        return octets.to_vec();
    };
    let mut request = octets
        .get(..query.question_end())
        .unwrap_or_default()
        .to_vec();
    if let Some(counts) = request.get_mut(4..12) {
        counts.copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    }
    request.extend([0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 0, 0, 22, 0, 0]);
    let serial = u32::try_from(TIME + u64::from(!older)).unwrap_or(u32::MAX);
    request.extend(
        [serial, 0, 0, *EXPIRE, 0]
            .into_iter()
            .flat_map(u32::to_be_bytes),
    );
    request
}

/// Checks a message of the response against its request, and returns the types of its answer
/// records.
fn records(request: &[u8], answer: &[u8]) -> Vec<u16> {
    let message = message::read(answer);
    assert!(
        u16::try_from(answer.len()).is_ok(),
        "the message has {} octets, which is too long",
        answer.len()
    );
    assert_eq!(
        answer.get(..2),
        request.get(..2),
        "the ID must be the request's"
    );
    assert!(
        message.header().is_response(),
        "the message must be marked as a response"
    );
    let end = message.question_end();
    let found = answer.get(12..end);
    assert_eq!(
        found,
        request.get(12..end),
        "the question must be the request's"
    );
    let rcode = message::extended_rcode(&message);
    let known = [
        rcode::NOERROR,
        rcode::FORMERR,
        rcode::SERVFAIL,
        rcode::REFUSED,
        rcode::NOTAUTH,
    ];
    assert!(known.contains(&rcode), "the RCODE {rcode} is not expected");
    message
        .section(Section::Answer)
        .map(|record| record.rtype)
        .collect()
}
