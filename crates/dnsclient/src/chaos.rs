//! Queries of class CHAOS: facts that a server reports about itself, such as `cachesize.bind`.

use hickory_proto::op::Query;
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};

use crate::exchange::Answer;

/// A TXT query of class CHAOS.
pub fn question(name: &'static str) -> Query {
    let mut question = Query::query(Name::from_ascii(name).unwrap_or_default(), RecordType::TXT);
    question.set_query_class(DNSClass::CH);
    question
}

/// The TXT strings of an answer.
pub fn texts(answer: &Answer) -> impl Iterator<Item = String> {
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
