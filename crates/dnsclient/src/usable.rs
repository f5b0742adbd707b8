//! Whether an upstream gives usable answers, and the queries that test this.

use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};

use crate::{DnsAnswer, rcode_name};

impl DnsAnswer {
    /// Whether the answer is usable: its RCODE is neither SERVFAIL nor REFUSED. NXDOMAIN is usable,
    /// too.
    pub fn is_usable(&self) -> bool {
        let rcode = self.message.metadata.response_code;
        !matches!(rcode, ResponseCode::ServFail | ResponseCode::Refused)
    }

    /// The RCODE and the question, such as `REFUSED for . NS`.
    pub fn describe_rcode(&self) -> String {
        let rcode = rcode_name(self.message.metadata.response_code);
        match self.message.queries.first() {
            Some(question) => format!("{rcode} for {} {}", question.name(), question.query_type()),
            None => rcode,
        }
    }
}

/// The queries that test an upstream for external names: one for the name servers of the root, and
/// one for the IPv4 addresses of `external_name`, if given. The caller sends the queries one after
/// the other. The caller stops at the first usable answer, or when a query gets no answer. A
/// resolver without access to the root servers may still answer the second query.
pub fn external_queries(external_name: Option<Name>) -> Vec<Query> {
    let mut queries = vec![Query::query(Name::root(), RecordType::NS)];
    queries.extend(external_name.map(|name| Query::query(name, RecordType::A)));
    queries
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hickory_proto::op::{Message, MessageType, OpCode};

    use super::*;

    #[test]
    fn only_servfail_and_refused_are_unusable() {
        let [root, ..] = &external_queries(None)[..] else {
            panic!("no query")
        };
        for (rcode, expected) in [
            (ResponseCode::NoError, "true NOERROR for . NS"),
            (ResponseCode::NXDomain, "true NXDOMAIN for . NS"),
            (ResponseCode::NotImp, "true NOTIMP for . NS"),
            (ResponseCode::ServFail, "false SERVFAIL for . NS"),
            (ResponseCode::Refused, "false REFUSED for . NS"),
        ] {
            let mut message = Message::new(1, MessageType::Response, OpCode::Query);
            message.metadata.response_code = rcode;
            message.add_query(root.clone());
            let answer = DnsAnswer {
                message,
                latency: Duration::ZERO,
            };
            let found = format!("{} {}", answer.is_usable(), answer.describe_rcode());
            assert_eq!(found, expected);
        }
    }
}
