//! What the example upstream knows. Pure: from a question's bytes to an answer's.

use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// The zone's name, and the stub domain of the example cluster.
pub const APEX: &str = "acme.example";

/// Short, so that an edit is seen soon.
const TTL: u32 = 10;

/// The names and their records.
pub struct Zone {
    apex: Name,
    records: Vec<(Name, RData)>,
    alone: bool,
}

impl Zone {
    /// The example zone. `alone`: it stands in for the whole outside world, so that a name it does not know does
    /// not exist; otherwise names outside the zone are REFUSED.
    pub fn new(alone: bool) -> Self {
        let v4 = |last| RData::A(A(Ipv4Addr::new(192, 0, 2, last)));
        let v6 = |last| RData::AAAA(AAAA(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)));
        let about = "answered by localpod's example upstream".to_owned();
        let records = vec![
            (under_apex(&[]), RData::TXT(TXT::new(vec![about]))),
            (under_apex(&["payments"]), v4(80)),
            (under_apex(&["payments"]), v6(0x80)),
            (under_apex(&["git"]), v4(22)),
            (under_apex(&["www"]), RData::CNAME(CNAME(under_apex(&["payments"])))),
        ];
        Self { apex: under_apex(&[]), records, alone }
    }

    /// The answer to a question; `None` for what is no question at all.
    pub(super) fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let question = Message::from_vec(question).ok()?;
        if question.metadata.message_type != MessageType::Query {
            return None;
        }
        let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
        answer.metadata.recursion_desired = question.metadata.recursion_desired;
        answer.metadata.recursion_available = true;
        answer.queries.clone_from(&question.queries);
        match question.queries.as_slice() {
            _ if question.metadata.op_code != OpCode::Query => {
                answer.metadata.response_code = ResponseCode::NotImp;
            }
            [query] => self.fill(&mut answer, query.name(), query.query_type()),
            _ => answer.metadata.response_code = ResponseCode::FormErr,
        }
        answer.to_vec().ok()
    }

    fn fill(&self, answer: &mut Message, name: &Name, record_type: RecordType) {
        let inside = self.apex.zone_of(name);
        answer.metadata.authoritative = inside;
        if !inside && !self.alone {
            answer.metadata.response_code = ResponseCode::Refused;
            return;
        }
        answer.answers = self.found(name, record_type);
        if answer.answers.is_empty() {
            answer.authorities.push(self.soa(inside));
            if !self.exists(name) {
                answer.metadata.response_code = ResponseCode::NXDomain;
            }
        }
    }

    /// The records of a name, through at most one alias: the zone has no longer chains.
    fn found(&self, name: &Name, record_type: RecordType) -> Vec<Record> {
        let mut found = self.of_type(name, record_type);
        if found.is_empty()
            && let Some(RData::CNAME(CNAME(target))) =
                self.of(name).find(|data| data.record_type() == RecordType::CNAME)
        {
            found.push(Record::from_rdata(name.clone(), TTL, RData::CNAME(CNAME(target.clone()))));
            found.extend(self.of_type(target, record_type));
        }
        found
    }

    fn of_type(&self, name: &Name, record_type: RecordType) -> Vec<Record> {
        let wanted = self.of(name).filter(|data| data.record_type() == record_type);
        wanted.map(|data| Record::from_rdata(name.clone(), TTL, data.clone())).collect()
    }

    fn of(&self, name: &Name) -> impl Iterator<Item = &RData> {
        self.records.iter().filter(move |(owner, _)| owner == name).map(|(_, data)| data)
    }

    fn exists(&self, name: &Name) -> bool {
        self.records.iter().any(|(owner, _)| name.zone_of(owner))
    }

    /// What says how long a missing name may be remembered as missing (RFC 2308).
    fn soa(&self, inside: bool) -> Record {
        let owner = if inside { self.apex.clone() } else { Name::root() };
        let soa = SOA::new(under_apex(&["ns"]), under_apex(&["hostmaster"]), 1, 3600, 600, 86400, TTL);
        Record::from_rdata(owner, TTL, RData::SOA(soa))
    }
}

/// A name of the zone. The labels are fixed and valid, so that there is no error to report.
fn under_apex(labels: &[&str]) -> Name {
    let labels = labels.iter().copied().chain(APEX.split('.'));
    let mut name = Name::from_labels(labels.map(str::as_bytes)).unwrap_or_default();
    name.set_fqdn(true);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::op::Query;

    /// The answer as "RCODE: data, data".
    fn ask(zone: &Zone, name: &str, record_type: RecordType) -> String {
        let mut question = Message::query();
        question.add_query(Query::query(Name::from_ascii(name).unwrap(), record_type));
        let answer = Message::from_vec(&zone.answer(&question.to_vec().unwrap()).unwrap()).unwrap();
        let data: Vec<String> = answer.answers.iter().map(|record| record.data.to_string()).collect();
        format!("{:?}: {}", answer.metadata.response_code, data.join(", "))
    }

    #[test]
    fn questions_and_answers() {
        let zone = Zone::new(false);
        let cases = [
            ("payments.acme.example.", RecordType::A, "NoError: 192.0.2.80"),
            ("Payments.ACME.example.", RecordType::AAAA, "NoError: 2001:db8::80"),
            ("www.acme.example.", RecordType::A, "NoError: payments.acme.example., 192.0.2.80"),
            ("www.acme.example.", RecordType::CNAME, "NoError: payments.acme.example."),
            ("git.acme.example.", RecordType::AAAA, "NoError: "),
            ("acme.example.", RecordType::A, "NoError: "),
            ("acme.example.", RecordType::TXT, "NoError: answered by localpod's example upstream"),
            ("missing.acme.example.", RecordType::A, "NXDomain: "),
            ("other.example.", RecordType::A, "Refused: "),
        ];
        for (name, record_type, expected) in cases {
            assert_eq!(ask(&zone, name, record_type), expected, "{name} {record_type}");
        }
    }

    #[test]
    fn alone_it_denies_the_rest_of_the_world() {
        assert_eq!(ask(&Zone::new(true), "other.example.", RecordType::A), "NXDomain: ");
    }

    #[test]
    fn what_is_no_question_is_ignored() {
        let zone = Zone::new(false);
        assert!(zone.answer(b"").is_none());
        assert!(zone.answer(b"rubbish").is_none());
        let response = Message::response(1, OpCode::Query).to_vec().unwrap();
        assert!(zone.answer(&response).is_none(), "answers to answers make loops");
    }
}
