//! Transfers of published zones: a secondary has the same zone after incremental changes (IXFR) as after a whole transfer.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use cluster::snapshot::Snapshot;
use skydns::Serial;
use skydns::transfer::{TransferMetrics, Transfers};
use skydns::wire::{Message, Name, Section, rtype};

/// Owner, type, TTL and data.
type Record = (String, u16, u32, Vec<u8>);

/// The zone in a secondary: its SOA, and the other records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copy {
    soa: Record,
    records: BTreeSet<Record>,
}

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) fn transfers() -> Arc<Transfers<Snapshot>> {
    let metrics = TransferMetrics::new().unwrap();
    Transfers::new("127.0.0.1".parse().unwrap(), None, Serial::new(), metrics)
}

/// All records of the response to a query. `authority` follows the question.
fn ask(transfers: &Arc<Transfers<Snapshot>>, qtype: u16, authority: &[u8]) -> Vec<Record> {
    let domain = Name::parse("cluster.local").unwrap();
    let counts = [1, 0, u16::from(!authority.is_empty()), 0].map(u16::to_be_bytes);
    let question = [domain.wire(), &qtype.to_be_bytes(), &1_u16.to_be_bytes()].concat();
    let query = [&[0, 7, 0, 0], counts.as_flattened(), &question, authority].concat();
    let mut stream = transfers.begin(&query, CLIENT).expect("it is a query");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut records = Vec::new();
    while let Some(message) = runtime.block_on(stream.next()) {
        let message = Message::parse(&message).expect("a message");
        records.extend(message.section(Section::Answer).map(|record| {
            let mut data = Vec::new();
            record.append_data(&mut data).unwrap();
            (record.owner().unwrap().to_string(), record.rtype, record.ttl, data)
        }));
    }
    records
}

/// Transfers the whole zone (AXFR).
pub(crate) fn whole(transfers: &Arc<Transfers<Snapshot>>) -> Copy {
    copy(ask(transfers, rtype::AXFR, &[]))
}

fn copy(mut records: Vec<Record>) -> Copy {
    let soa = records.pop().expect("a record");
    assert_eq!(records.first(), Some(&soa), "the SOA comes first and last");
    let count = records.len() - 1;
    let records: BTreeSet<Record> = records.into_iter().skip(1).collect();
    assert_eq!(records.len(), count, "each record once");
    Copy { soa, records }
}

impl Copy {
    /// Updates the copy with an IXFR (RFC 1995). Returns false if the response is the whole zone.
    pub(crate) fn update(&mut self, transfers: &Arc<Transfers<Snapshot>>) -> bool {
        let (_, rtype, ttl, data) = &self.soa;
        let length = u16::try_from(data.len()).unwrap().to_be_bytes();
        let fixed = [&rtype.to_be_bytes()[..], &1_u16.to_be_bytes(), &ttl.to_be_bytes(), &length].concat();
        let records = ask(transfers, rtype::IXFR, &[&[0xc0, 12][..], &fixed, data].concat());
        let (newest, changes) = records.split_first().expect("a record");
        if changes.is_empty() {
            assert_eq!(*newest, self.soa, "nothing has changed");
            return true;
        }
        if changes.first().is_none_or(|record| record.1 != rtype::SOA) {
            *self = copy(records);
            return false;
        }
        let mut deleting = false;
        for record in changes {
            if record.1 == rtype::SOA {
                deleting = *record == self.soa;
                assert!(deleting || record == newest, "one step from the old version to the new");
            } else if deleting {
                assert!(self.records.remove(record), "{record:?} is deleted, and was not there");
            } else {
                assert!(self.records.insert(record.clone()), "{record:?} is added, and was there");
            }
        }
        self.soa = newest.clone();
        true
    }
}
