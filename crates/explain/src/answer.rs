//! Converts the answers of the query engine (`skydns`) for the JSON document of an explanation. The
//! rules of answering are in the engine alone.

use std::net::IpAddr;

use skydns::View;
use wire::Name;
use wire::mnemonic::{rcode_name, type_name};
use wire::rcode;

use crate::document::{Answer, Outcome, Record};

/// Bound of the records in one answer of the document.
const MAX_RECORDS: usize = 32;

impl Answer {
    /// Queries all records of type `qtype` from `view`.
    pub(crate) fn new(view: &impl View, name: &Name, qtype: u16) -> Self {
        let response = skydns::ask(view, name, qtype);
        let mut records: Vec<Record> = response.records.into_iter().map(record).collect();
        // Sort the records, because the engine shuffles them: first the alias chain, then addresses
        // in numerical order.
        records.sort_by_cached_key(|record| {
            (record.rtype != "CNAME").then(|| (record.data.parse::<IpAddr>().ok(), record.clone()))
        });
        let ask = |ask: &skydns::external::ExternalQuery| {
            format!("{} {}", ask.name, type_name(ask.qtype))
        };
        let mut asks: Vec<String> = response.external.iter().map(ask).collect();
        asks.sort();
        asks.dedup();
        let (qtype, rcode) = (type_name(qtype), response.rcode.map(rcode_name));
        let (more_records, truncated, from_hosts) = (0, response.truncated, false);
        Self {
            qtype,
            rcode,
            records,
            more_records,
            truncated,
            asks,
            from_hosts,
        }
    }

    /// The answer of dnsmasq from its hosts file.
    pub(crate) fn from_hosts(qtype: u16, records: Vec<Record>) -> Self {
        let (qtype, rcode) = (type_name(qtype), Some(rcode_name(rcode::NOERROR)));
        let (more_records, truncated, asks, from_hosts) = (0, false, Vec::new(), true);
        Self {
            qtype,
            rcode,
            records,
            more_records,
            truncated,
            asks,
            from_hosts,
        }
    }

    /// Truncates the records to `MAX_RECORDS` and counts the rest in `more_records`.
    pub(crate) fn shortened(mut self) -> Self {
        self.more_records = self.records.len().saturating_sub(MAX_RECORDS);
        self.records.truncate(MAX_RECORDS);
        self
    }

    pub(crate) fn has_rcode(&self, rcode: &str) -> bool {
        self.rcode.as_deref() == Some(rcode)
    }

    /// Whether the answer has records, or needs records of external names from upstream servers.
    pub(crate) fn has_records(&self) -> bool {
        !self.records.is_empty() || !self.asks.is_empty()
    }

    pub(crate) fn is_of_addresses(&self) -> bool {
        self.qtype == "A" || self.qtype == "AAAA"
    }
}

/// The outcome of the answers of kubedns for all queried types. A record of any type counts as an
/// answer, with two exceptions: SERVFAIL for addresses, and an alias without addresses. Such an
/// alias still has an SRV record, but programs query addresses.
pub(crate) fn outcome(answers: &[Answer]) -> Outcome {
    let addresses = || answers.iter().filter(|answer| answer.is_of_addresses());
    if addresses().any(|answer| answer.has_rcode("SERVFAIL"))
        && !addresses().any(Answer::has_records)
    {
        return Outcome::ServFail;
    }
    if bare_alias(answers).is_some() {
        return Outcome::NoData;
    }
    if answers.iter().any(Answer::has_records) {
        return Outcome::Answered;
    }
    if answers.iter().any(|answer| answer.rcode.is_none()) {
        return Outcome::Forwarded;
    }
    match answers.first().and_then(|answer| answer.rcode.as_deref()) {
        _ if answers.iter().any(|answer| answer.has_rcode("NOERROR")) => Outcome::NoData,
        Some("NXDOMAIN") => Outcome::NxDomain,
        Some("REFUSED") => Outcome::Refused,
        _ => Outcome::ServFail,
    }
}

/// The end of the alias chain, if the address answers have only CNAME records.
pub(crate) fn bare_alias(answers: &[Answer]) -> Option<&str> {
    let addresses = || answers.iter().filter(|answer| answer.is_of_addresses());
    let is_bare = |answer: &Answer| {
        answer.asks.is_empty() && answer.records.iter().all(|record| record.rtype == "CNAME")
    };
    let last = addresses().find_map(|answer| answer.records.last())?;
    addresses().all(is_bare).then_some(last.data.as_str())
}

fn record(record: skydns::ask::Record) -> Record {
    let skydns::ask::Record {
        owner,
        rtype,
        ttl,
        data,
    } = record;
    Record {
        name: owner,
        rtype: type_name(rtype),
        data,
        ttl,
    }
}
