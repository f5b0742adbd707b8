//! A secondary of published zones, which receives whole zones (AXFR) and differences (IXFR).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use cluster::snapshot::Snapshot;
use skydns::ZoneSerials;
use skydns::transfer::{TransferMetrics, ZoneTransfers};
use wire::{Message, Name, Section, rcode, rtype};

/// Owner in lower case, type, TTL and data.
pub(crate) type Record = (String, u16, u32, Vec<u8>);

/// A zone in a secondary: its SOA, and the other records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ZoneCopy {
    pub(crate) soa: Record,
    pub(crate) records: BTreeSet<Record>,
}

/// The copies of one zone by their serials.
pub(crate) type ZoneCopies = BTreeMap<u32, ZoneCopy>;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) fn start_transfers() -> Arc<ZoneTransfers<Snapshot>> {
    let metrics = TransferMetrics::new().unwrap();
    ZoneTransfers::new(
        "127.0.0.1".parse().unwrap(),
        None,
        ZoneSerials::new(),
        metrics,
    )
}

/// All records of the response to a query, or `None` for an error response. `authority` is the
/// record in the authority section of the query; empty if there is no such record.
fn transfer_records(
    transfers: &Arc<ZoneTransfers<Snapshot>>,
    zone: &Name,
    qtype: u16,
    authority: &[u8],
) -> Option<Vec<Record>> {
    let counts = [1, 0, u16::from(!authority.is_empty()), 0].map(u16::to_be_bytes);
    let question = [zone.wire(), &qtype.to_be_bytes(), &1_u16.to_be_bytes()].concat();
    let query = [&[0, 7, 0, 0], counts.as_flattened(), &question, authority].concat();
    let mut stream = transfers
        .begin_stream(&query, CLIENT)
        .expect("the message must be a query");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut records = Vec::new();
    while let Some(message) = runtime.block_on(stream.next_message()) {
        let message = Message::parse(&message).expect("the message must be well-formed");
        if message.header().rcode() != rcode::NOERROR {
            return None;
        }
        records.extend(message.section(Section::Answer).map(|record| {
            let mut data = Vec::new();
            record.append_data(&mut data).unwrap();
            let owner = record.owner().unwrap().to_string().to_lowercase();
            (owner, record.rtype, record.ttl, data)
        }));
    }
    Some(records)
}

/// Transfers a whole zone (AXFR); `None` if the zone is not transferred.
pub(crate) fn transfer_whole(
    transfers: &Arc<ZoneTransfers<Snapshot>>,
    zone: &Name,
) -> Option<ZoneCopy> {
    transfer_records(transfers, zone, rtype::AXFR, &[]).map(to_copy)
}

fn to_copy(mut records: Vec<Record>) -> ZoneCopy {
    let soa = records.pop().expect("the response must have a record");
    assert_eq!(
        records.first(),
        Some(&soa),
        "the SOA must come first and last"
    );
    let count = records.len() - 1;
    let records: BTreeSet<Record> = records.into_iter().skip(1).collect();
    assert_eq!(records.len(), count, "each record must come once");
    ZoneCopy { soa, records }
}

impl ZoneCopy {
    pub(crate) fn serial(&self) -> u32 {
        let numbers = self
            .soa
            .3
            .last_chunk::<20>()
            .expect("an SOA must have its numbers");
        u32::from_be_bytes(*numbers.first_chunk().expect("an SOA must have a serial"))
    }

    /// Updates the copy with an IXFR (RFC 1995). Before each difference in the response, the copy
    /// must be one of the `known` copies. Returns false if the response is the whole zone.
    pub(crate) fn update(
        &mut self,
        transfers: &Arc<ZoneTransfers<Snapshot>>,
        zone: &Name,
        known: &ZoneCopies,
    ) -> bool {
        let (_, rtype, ttl, data) = &self.soa;
        let length = u16::try_from(data.len()).unwrap().to_be_bytes();
        let fixed = [
            &rtype.to_be_bytes()[..],
            &1_u16.to_be_bytes(),
            &ttl.to_be_bytes(),
            &length,
        ]
        .concat();
        let authority = [&[0xc0, 12][..], &fixed, data].concat();
        let mut records = transfer_records(transfers, zone, rtype::IXFR, &authority)
            .expect("the zone must be transferred");

        if let [only] = &records[..] {
            assert_eq!(
                *only, self.soa,
                "a response with only an SOA must have the SOA of the copy"
            );
            return true;
        }
        if records.get(1).is_none_or(|record| record.1 != rtype::SOA) {
            *self = to_copy(records);
            return false;
        }

        let newest = records.pop().expect("the response must have a record");
        assert_eq!(
            records.first(),
            Some(&newest),
            "the SOA must come first and last"
        );
        let mut deleting = false;
        for record in records.into_iter().skip(1) {
            if record.1 == rtype::SOA && !deleting {
                assert_eq!(
                    record, self.soa,
                    "a difference must begin at the version of the copy"
                );
                assert_eq!(
                    Some(&*self),
                    known.get(&self.serial()),
                    "the copy must be a known version before each difference"
                );
                deleting = true;
            } else if record.1 == rtype::SOA {
                self.soa = record;
                deleting = false;
            } else if deleting {
                assert!(
                    self.records.remove(&record),
                    "a deleted record must have been there before: {record:?}"
                );
            } else {
                assert!(
                    self.records.insert(record.clone()),
                    "an added record must not have been there before: {record:?}"
                );
            }
        }
        assert_eq!(
            self.soa, newest,
            "the last difference must end with the SOA of the newest version"
        );
        true
    }
}
