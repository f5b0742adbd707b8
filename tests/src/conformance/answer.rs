//! Normalises the response to a question.

use testkit::codes;
use testkit::hex::hex;
use testkit::message::{self, Message};
use testkit::record::Record;

use super::vector::{Edns, Response};

const CHOICE: &str = "<one of the names below>";

/// The response to a question.
#[derive(Clone, Debug)]
pub enum Observed {
    /// A packet.
    Packet(Vec<u8>),
    /// No packet arrived, or the packet has the ID of another query. The text is the reason.
    Nothing(String),
}

/// A parsed and normalised answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The answer in the form of the recorded answers.
    pub response: Response,
    /// Message ID; 0 without a packet.
    pub id: u16,
    /// Octets of the packet.
    pub size: usize,
    /// Answer records in wire order.
    pub order: Vec<Record>,
    /// A defect of the packet: it is malformed, or has octets after the last record.
    pub defect: Option<String>,
}

impl Answer {
    /// Parses and normalises a response.
    pub fn read(observed: &Observed) -> Self {
        let packet = match observed {
            Observed::Packet(packet) => packet,
            Observed::Nothing(how) => return Self::nothing(how),
        };
        let (message, malformed) = Message::read(packet);
        let trailing = (message.trailing > 0)
            .then(|| format!("{} octets after the last record", message.trailing));
        let defect = malformed
            .map(|malformed| format!("malformed: {malformed}"))
            .or(trailing);
        let response = normalise(&message);
        Self {
            response,
            id: message.id,
            size: packet.len(),
            order: message.answer,
            defect,
        }
    }

    fn nothing(how: &str) -> Self {
        let response = Response {
            no_answer: Some(how.to_owned()),
            ..Response::default()
        };
        Self {
            response,
            id: 0,
            size: 0,
            order: Vec::new(),
            defect: None,
        }
    }

    /// Returns whether each CNAME precedes the records of its target.
    pub fn aliases_come_first(&self) -> bool {
        self.order.iter().enumerate().all(|(at, record)| {
            let earlier = self.order.iter().take(at);
            !is_cname(record)
                || earlier
                    .map(|other| &other.name)
                    .all(|owner| *owner != record.data)
        })
    }

    /// Returns whether the answer has SRV records with targets of different lengths.
    pub fn has_srv_targets_of_different_lengths(&self) -> bool {
        let targets = self
            .order
            .iter()
            .filter(|record| Some(record.rtype) == codes::type_code("SRV"));
        let mut lengths =
            targets.map(|record| record.data.rsplit(' ').next().unwrap_or_default().len());
        lengths
            .next()
            .is_some_and(|first| lengths.any(|other| other != first))
    }

    /// The answer with a fixed mark in place of the target of the queried name's CNAME, for
    /// questions with several possible CNAMEs. The server chooses one of these CNAMEs at random.
    /// The answer stays unchanged if the queried name has no CNAME, or if the answer has no record
    /// of the target.
    pub fn with_choice_marked(&self) -> Response {
        let mut response = self.response.clone();
        let asked = response
            .question
            .first()
            .and_then(|question| question.split(' ').next())
            .unwrap_or_default();
        let is_choice = |record: &&Record| is_cname(record) && record.name == asked;
        let choice = self.order.iter().find(is_choice);
        let Some(choice) =
            choice.filter(|choice| self.order.iter().any(|other| other.name == choice.data))
        else {
            return response;
        };
        let (line, marked) = (
            choice.to_string(),
            Record {
                data: CHOICE.to_owned(),
                ..choice.clone()
            }
            .to_string(),
        );
        for record in response.answer.iter_mut().filter(|record| **record == line) {
            record.clone_from(&marked);
        }
        response.answer.sort();
        response.cname_choice = true;
        response
    }
}

fn is_cname(record: &Record) -> bool {
    Some(record.rtype) == codes::type_code("CNAME")
}

fn normalise(message: &Message) -> Response {
    let opcode = codes::opcode_name(message.opcode());
    Response {
        rcode: message.rcode_name(),
        flags: message.flags(),
        opcode: (opcode != "QUERY").then_some(opcode),
        question: message.questions.iter().map(ToString::to_string).collect(),
        answer: lines(&message.answer),
        authority: lines(&message.authority),
        additional: lines(&message.additional),
        edns: message.edns.as_ref().map(Edns::of),
        ..Response::default()
    }
}

fn lines(records: &[Record]) -> Vec<String> {
    let mut lines: Vec<String> = records.iter().map(Record::normalised).collect();
    lines.sort();
    lines
}

impl Edns {
    fn of(edns: &message::Edns) -> Self {
        let options = edns
            .options
            .iter()
            .map(|(code, data)| (*code, hex(data)))
            .collect();
        Self {
            udp: edns.udp,
            dnssec_ok: edns.dnssec_ok,
            version: edns.version,
            options,
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::query::Query;
    use testkit::reply::Reply;

    use super::*;

    fn answer(records: &[&str]) -> Answer {
        let query = Query::new("x.", "A").wire();
        let reply = records
            .iter()
            .fold(Reply::to(&query), |reply, record| reply.answer(record));
        Answer::read(&Observed::Packet(reply.wire()))
    }

    #[test]
    fn alias_is_marked_only_if_answer_has_its_target() {
        let chosen = answer(&[
            "x. 30 IN CNAME z.",
            "y. 30 IN A 10.0.0.1",
            "z. 30 IN A 10.0.0.2",
        ])
        .with_choice_marked();
        assert!(chosen.cname_choice);
        let marked = "x. 30 IN CNAME <one of the names below>".to_owned();
        assert!(chosen.answer.contains(&marked), "{:?}", chosen.answer);
        let nowhere = answer(&["x. 30 IN CNAME w.", "y. 30 IN A 10.0.0.1"]).with_choice_marked();
        assert!(!nowhere.cname_choice);
    }
}
