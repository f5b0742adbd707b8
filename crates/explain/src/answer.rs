//! The engine's answers, in the form of the document. The rules of answering live in the engine alone.

use std::net::IpAddr;

use skydns::wire::text::{rcode_name, type_name};
use skydns::{Name, View};

use crate::document::{Answer, Record};

/// The most records that are shown.
const MAX_RECORDS: usize = 32;

impl Answer {
    /// Asks `view` for all records of a type.
    pub(crate) fn new(view: &impl View, name: &Name, qtype: u16) -> Self {
        let response = skydns::ask(view, name, qtype);
        let mut records: Vec<Record> = response.records.into_iter().map(record).collect();
        // The engine shuffles. Aliases stand before what they lead to, in the order of the chain; addresses in that of
        // their numbers.
        records.sort_by_cached_key(|record| {
            (record.rtype != "CNAME").then(|| (record.data.parse::<IpAddr>().ok(), record.clone()))
        });
        let ask = |ask: &skydns::outside::OutsideQuestion| format!("{} {}", ask.name, type_name(ask.qtype));
        let mut asks: Vec<String> = response.external.iter().map(ask).collect();
        asks.sort();
        asks.dedup();
        let (qtype, rcode) = (type_name(qtype), response.rcode.map(rcode_name));
        Self { qtype, rcode, records, more_records: 0, truncated: response.truncated, asks }
    }

    /// The same with as many records as are shown.
    pub(crate) fn shortened(mut self) -> Self {
        self.more_records = self.records.len().saturating_sub(MAX_RECORDS);
        self.records.truncate(MAX_RECORDS);
        self
    }

    pub(crate) fn has_rcode(&self, rcode: &str) -> bool {
        self.rcode.as_deref() == Some(rcode)
    }

    /// There are records, or there may be once upstream servers were asked.
    pub(crate) fn has_records(&self) -> bool {
        !self.records.is_empty() || !self.asks.is_empty()
    }

    pub(crate) fn is_of_addresses(&self) -> bool {
        self.qtype == "A" || self.qtype == "AAAA"
    }
}

fn record(record: skydns::ask::Record) -> Record {
    let skydns::ask::Record { owner, rtype, ttl, data } = record;
    Record { name: owner, rtype: type_name(rtype), data, ttl }
}
