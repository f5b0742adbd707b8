//! Queries of class CHAOS, which ask a server for facts about itself. For example, `cachesize.bind`
//! asks for the size of the cache.

use hickory_proto::op::Query;
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};

use crate::DnsAnswer;

/// A TXT query of class CHAOS.
pub fn txt_query(name: &'static str) -> Query {
    let name = Name::from_ascii(name).unwrap_or_default();
    let mut query = Query::query(name, RecordType::TXT);
    query.set_query_class(DNSClass::CH);
    query
}

/// The TXT strings of an answer.
pub fn txt_strings(answer: &DnsAnswer) -> impl Iterator<Item = String> {
    let records = answer
        .message
        .answers
        .iter()
        .filter_map(|record| match &record.data {
            RData::TXT(txt) => Some(&txt.txt_data),
            _ => None,
        });

    records
        .flatten()
        .map(|text| String::from_utf8_lossy(text).into_owned())
}
