//! Builds correct and wrong answers to a query.

use wire::Header;

use crate::message::{Edns, Message};
use crate::query::append_opt;
use crate::{codes, name, record};

/// An answer under construction. A new answer has NOERROR and RA, and the ID, opcode, RD, CD and
/// question of the query.
#[derive(Clone, Debug)]
pub struct Reply {
    id: u16,
    bits: u16,
    rcode: u16,
    question: Vec<u8>,
    sections: [Vec<Vec<u8>>; 3],
    edns: Option<Edns>,
}

impl Reply {
    /// An answer to the packet `query`, of which only the header and the first question are used.
    pub fn to(query: &[u8]) -> Self {
        let (read, _) = Message::read(query);
        let question = read.questions.first().map_or_else(Vec::new, |question| {
            let mut wire =
                name::to_wire(&question.name).expect("a name that was just read must be valid");
            wire.extend(question.rtype.to_be_bytes());
            wire.extend(question.class.to_be_bytes());
            wire
        });

        Self {
            id: read.id,
            // QR and RA; opcode, RD and CD come from the query.
            bits: 0x8080 | read.bits & 0x7910,
            rcode: 0,
            question,
            sections: [Vec::new(), Vec::new(), Vec::new()],
            edns: None,
        }
    }

    /// Adds an answer record in presentation format.
    #[track_caller]
    #[must_use]
    pub fn answer(self, record: &str) -> Self {
        self.push_record(0, record)
    }

    /// Adds a record to the authority section.
    #[track_caller]
    #[must_use]
    pub fn authority(self, record: &str) -> Self {
        self.push_record(1, record)
    }

    /// Adds a record to the additional section.
    #[track_caller]
    #[must_use]
    pub fn additional(self, record: &str) -> Self {
        self.push_record(2, record)
    }

    #[track_caller]
    fn push_record(mut self, section: usize, text: &str) -> Self {
        if let Some(records) = self.sections.get_mut(section) {
            records.push(record::to_wire(text));
        }
        self
    }

    /// Sets the RCODE, such as `NXDOMAIN`.
    #[track_caller]
    #[must_use]
    pub fn rcode(mut self, rcode: &str) -> Self {
        self.rcode = codes::rcode_code(rcode).unwrap_or_else(|| panic!("no such RCODE: {rcode}"));
        self
    }

    /// Sets AA.
    #[must_use]
    pub fn authoritative(mut self) -> Self {
        self.bits |= 0x0400;
        self
    }

    /// Sets TC.
    #[must_use]
    pub fn truncated(mut self) -> Self {
        self.bits |= 0x0200;
        self
    }

    /// Adds an OPT record with this UDP payload size.
    #[must_use]
    pub fn edns(self, udp: u16) -> Self {
        self.opt(Edns {
            udp,
            ..Edns::default()
        })
    }

    /// Adds this OPT record.
    #[must_use]
    pub fn opt(mut self, edns: Edns) -> Self {
        self.edns = Some(edns);
        self
    }

    /// Sets an ID that differs from the ID of the query.
    #[must_use]
    pub fn wrong_id(mut self) -> Self {
        self.id ^= 0x5555;
        self
    }

    /// Replaces the question with a wrong question.
    #[track_caller]
    #[must_use]
    pub fn wrong_question(mut self, name: &str, rtype: &str) -> Self {
        self.question = name::to_wire(name).unwrap_or_else(|error| panic!("{error}"));
        let rtype = codes::type_code(rtype).unwrap_or_else(|| panic!("no such type: {rtype}"));
        self.question.extend(rtype.to_be_bytes());
        self.question.extend([0, 1]);
        self
    }

    /// The answer in wire format.
    pub fn wire(&self) -> Vec<u8> {
        let [answer, authority, additional] = &self.sections;
        let header = Header {
            id: self.id,
            flags: self.bits | self.rcode & Header::MAX_RCODE,
            counts: [
                u16::from(!self.question.is_empty()),
                record_count(answer),
                record_count(authority),
                record_count(additional) + u16::from(self.edns.is_some()),
            ],
        };

        let mut wire = header.octets().to_vec();
        wire.extend(&self.question);
        wire.extend(self.sections.iter().flatten().flatten());
        if let Some(edns) = &self.edns {
            append_opt(edns, self.rcode, &mut wire);
        }
        wire
    }
}

fn record_count(records: &[Vec<u8>]) -> u16 {
    u16::try_from(records.len()).expect("a section must have fewer than 65536 records")
}
