//! The answers of the query engine (`skydns`) and of dnsmasq, in the form of the JSON document; and
//! the outcome of a lookup, from its answers.

use std::net::IpAddr;

use skydns::View;
use skydns::external::ExternalQuery;
use wire::Name;
use wire::mnemonic::{rcode_name, type_name};
use wire::rcode;

use crate::document::{AnswerRecord, LookupOutcome, TypeAnswer};

/// Maximum number of records in one answer of the document.
const MAX_RECORDS: usize = 32;

impl TypeAnswer {
    /// Asks the query engine for the records of `name` with type `qtype` in `view`.
    pub(crate) fn ask_engine(view: &impl View, name: &Name, qtype: u16) -> Self {
        let response = skydns::ask(view, name, qtype);

        // The engine shuffles the records, so they are sorted: first the alias chain in its own
        // order, then records without an address, then addresses in numerical order.
        let mut records: Vec<AnswerRecord> =
            response.records.into_iter().map(document_record).collect();
        records.sort_by_cached_key(|record| {
            (record.rtype != "CNAME").then(|| (record.data.parse::<IpAddr>().ok(), record.clone()))
        });

        let mut asks: Vec<String> = response.external.iter().map(query_text).collect();
        asks.sort();
        asks.dedup();

        Self {
            qtype: type_name(qtype),
            rcode: response.rcode.map(rcode_name),
            records,
            more_records: 0,
            truncated: response.truncated,
            asks,
            rule: response.rule.map(|key| key.as_str().to_owned()),
            from_hosts: false,
            from_arguments: false,
        }
    }

    /// The answer of dnsmasq from its hosts file.
    pub(crate) fn from_hosts_file(qtype: u16, records: Vec<AnswerRecord>) -> Self {
        Self {
            from_hosts: true,
            ..Self::with_records(qtype, records)
        }
    }

    /// The answer of dnsmasq from its arguments.
    pub(crate) fn from_arguments(qtype: u16, records: Vec<AnswerRecord>) -> Self {
        Self {
            from_arguments: true,
            ..Self::with_records(qtype, records)
        }
    }

    fn with_records(qtype: u16, records: Vec<AnswerRecord>) -> Self {
        Self {
            qtype: type_name(qtype),
            rcode: Some(rcode_name(rcode::NOERROR)),
            records,
            more_records: 0,
            truncated: false,
            asks: Vec::new(),
            rule: None,
            from_hosts: false,
            from_arguments: false,
        }
    }

    /// Truncates the records to `MAX_RECORDS` and counts the rest in `more_records`.
    pub(crate) fn with_few_records(mut self) -> Self {
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

    /// Whether the answer has no records except aliases, and needs no records from upstream
    /// servers.
    fn is_alias_only(&self) -> bool {
        self.asks.is_empty() && self.records.iter().all(|record| record.rtype == "CNAME")
    }
}

/// The outcome of a lookup, from the answers for all queried types. In general, the outcome is
/// [`LookupOutcome::Answered`] if [`TypeAnswer::has_records`] is true for any type. But an SRV
/// record does not help a program that needs an address. So the outcome is `ServFail` if an address
/// query gets SERVFAIL and `has_records` is false for all address queries. The outcome is `NoData`
/// if the address queries find only an alias without addresses.
pub(crate) fn lookup_outcome(answers: &[TypeAnswer]) -> LookupOutcome {
    let addresses_fail = address_answers(answers).any(|answer| answer.has_rcode("SERVFAIL"));
    if addresses_fail && !address_answers(answers).any(TypeAnswer::has_records) {
        return LookupOutcome::ServFail;
    }
    if bare_alias_target(answers).is_some() {
        return LookupOutcome::NoData;
    }
    if answers.iter().any(TypeAnswer::has_records) {
        return LookupOutcome::Answered;
    }
    // If an answer has no RCODE, kubedns forwards the query, and the response is unknown here.
    if answers.iter().any(|answer| answer.rcode.is_none()) {
        return LookupOutcome::Forwarded;
    }

    // No answer has records, so the RCODEs decide. A NOERROR for any type means that the name
    // exists.
    if answers.iter().any(|answer| answer.has_rcode("NOERROR")) {
        return LookupOutcome::NoData;
    }
    // Otherwise the RCODE of the first queried type decides.
    match answers.first().and_then(|answer| answer.rcode.as_deref()) {
        Some("NXDOMAIN") => LookupOutcome::NxDomain,
        Some("REFUSED") => LookupOutcome::Refused,
        _ => LookupOutcome::ServFail,
    }
}

/// The end of the alias chain, if the address answers have only CNAME records and need no records
/// from upstream servers.
pub(crate) fn bare_alias_target(answers: &[TypeAnswer]) -> Option<&str> {
    let last = address_answers(answers).find_map(|answer| answer.records.last())?;
    address_answers(answers)
        .all(TypeAnswer::is_alias_only)
        .then_some(last.data.as_str())
}

fn address_answers(answers: &[TypeAnswer]) -> impl Iterator<Item = &TypeAnswer> {
    answers.iter().filter(|answer| answer.is_of_addresses())
}

fn document_record(record: skydns::ask::Record) -> AnswerRecord {
    AnswerRecord {
        name: record.owner,
        rtype: type_name(record.rtype),
        data: record.data,
        ttl: record.ttl,
    }
}

fn query_text(query: &ExternalQuery) -> String {
    format!("{} {}", query.name, type_name(query.qtype))
}
