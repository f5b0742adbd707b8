//! A walker over DNS messages in wire format (RFC 1035 section 4): header, question, records, names.
//!
//! It reads messages that somebody else wrote, so it trusts nothing: no octets make it panic, loop or allocate more
//! than the message is long. It does not interpret data beyond the names in it, so records of types that nobody has
//! heard of pass through untouched. Messages are written elsewhere.

mod name;
mod rdata;

use std::ops::Range;

pub use name::{Name, expand_name};

/// Octets of a message's header.
pub const HEADER_LEN: usize = 12;

/// RCODE: no error.
pub const NOERROR: u8 = 0;
/// RCODE: the server failed.
pub const SERVFAIL: u8 = 2;
/// RCODE: the name does not exist.
pub const NXDOMAIN: u8 = 3;
/// RCODE: the server does not want to answer.
pub const REFUSED: u8 = 5;

/// TYPE of the EDNS0 pseudo record (RFC 6891).
pub const TYPE_OPT: u16 = 41;

/// Why octets are not a DNS message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message ends in the middle of something.
    #[error("message ends in the middle of a field, at octet {0}")]
    Short(usize),
    /// A name is longer than 255 octets, has a label of an unknown kind, or a pointer that does not point backwards.
    #[error("malformed name at octet {0}")]
    BadName(usize),
    /// The data of a record do not have the form that their type asks for.
    #[error("malformed data of a record of type {rtype} at octet {at}")]
    BadData {
        /// TYPE of the record.
        rtype: u16,
        /// Where its data begin.
        at: usize,
    },
    /// More than one question.
    #[error("{0} questions in one message")]
    ManyQuestions(u16),
}

/// The fixed twelve octets at the start of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The message's ID.
    pub id: u16,
    /// QR, opcode, AA, TC, RD, RA, Z, AD, CD and RCODE as they stand on the wire.
    pub flags: u16,
    /// QDCOUNT, ANCOUNT, NSCOUNT, ARCOUNT.
    pub counts: [u16; 4],
}

impl Header {
    /// Reads the header of a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let word = |n: usize| u16_at(bytes, n * 2);
        Ok(Self { id: word(0)?, flags: word(1)?, counts: [word(2)?, word(3)?, word(4)?, word(5)?] })
    }

    /// QR: is this a response?
    pub fn is_response(&self) -> bool {
        self.flags & 0x8000 != 0
    }

    /// The opcode, 0 for QUERY.
    pub fn opcode(&self) -> u8 {
        (self.flags >> 11).to_be_bytes()[1] & 0xf
    }

    /// TC: has the message been cut to fit?
    pub fn is_truncated(&self) -> bool {
        self.flags & 0x0200 != 0
    }

    /// The four bits of RCODE in the header; an OPT record may hold eight more.
    pub fn rcode(&self) -> u8 {
        self.flags.to_be_bytes()[1] & 0xf
    }
}

/// The question of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// QNAME, with the case it came in.
    pub name: Name,
    /// QTYPE.
    pub qtype: u16,
    /// QCLASS.
    pub qclass: u16,
}

/// Header and question alone: what can be known of a message whose records are cut off.
#[derive(Clone, Debug)]
pub struct Heading {
    /// The header.
    pub header: Header,
    /// The question, if QDCOUNT is 1.
    pub question: Option<Question>,
    /// Where the first record begins.
    pub end: usize,
}

impl Heading {
    /// Reads header and question; QDCOUNT must be 0 or 1.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let header = Header::parse(bytes)?;
        match header.counts[0] {
            0 => Ok(Self { header, question: None, end: HEADER_LEN }),
            1 => {
                let (name, at) = expand_name(bytes, HEADER_LEN)?;
                let question = Question { name, qtype: u16_at(bytes, at)?, qclass: u16_at(bytes, at + 2)? };
                Ok(Self { header, question: Some(question), end: at + 4 })
            }
            n => Err(MessageError::ManyQuestions(n)),
        }
    }
}

/// Which part of a message a record stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// What answers the question.
    Answer,
    /// Who is responsible for it.
    Authority,
    /// What else may help; the OPT record is here.
    Additional,
}

/// A message that has been walked from its first octet to the end of its last record.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
    heading: Heading,
    end: usize,
}

impl<'a> Message<'a> {
    /// Walks a whole message. It is accepted if the header is whole, there is at most one question, every owner name
    /// and every name within record data expands, and the data of well-known types have their form. Octets after the
    /// last record are tolerated; see [`Message::end`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let heading = Heading::parse(bytes)?;
        let mut walk = Records::new(bytes, &heading);
        while let Some(record) = walk.step() {
            rdata::check(&record?)?;
        }
        let end = walk.at;
        Ok(Self { bytes, heading, end })
    }

    /// The header.
    pub fn header(&self) -> Header {
        self.heading.header
    }

    /// The question, if there is one.
    pub fn question(&self) -> Option<&Question> {
        self.heading.question.as_ref()
    }

    /// Where the first record begins, behind the question.
    pub fn question_end(&self) -> usize {
        self.heading.end
    }

    /// Where the last record ends; whatever follows is not part of the message.
    pub fn end(&self) -> usize {
        self.end
    }

    /// All records in their order.
    pub fn records(&self) -> Records<'a> {
        Records::new(self.bytes, &self.heading)
    }

    /// The records of one section in their order.
    pub fn section(&self, section: Section) -> impl Iterator<Item = Record<'a>> + use<'a> {
        self.records().filter(move |record| record.section == section)
    }

    /// The whole RCODE, with the upper bits from the OPT record (RFC 6891 section 6.1.3).
    pub fn extended_rcode(&self) -> u16 {
        let opt = self.section(Section::Additional).find(|record| record.rtype == TYPE_OPT);
        let upper = opt.map_or(0, |record| record.ttl.to_be_bytes()[0]);
        u16::from(upper) << 4 | u16::from(self.header().rcode())
    }
}

/// One record, borrowed from its message.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    bytes: &'a [u8],
    start: usize,
    data: Range<usize>,
    /// Where it stands.
    pub section: Section,
    /// TYPE.
    pub rtype: u16,
    /// CLASS; the sender's UDP payload size for OPT.
    pub class: u16,
    /// TTL in seconds; flags for OPT.
    pub ttl: u32,
}

impl<'a> Record<'a> {
    /// The owner name, uncompressed, with the case it came in.
    pub fn owner(&self) -> Result<Name, MessageError> {
        expand_name(self.bytes, self.start).map(|(name, _)| name)
    }

    /// Where the record stands in the message, owner name to end of data.
    pub fn range(&self) -> Range<usize> {
        self.start..self.data.end
    }

    /// Where the four octets of the TTL stand in the message.
    pub fn ttl_range(&self) -> Range<usize> {
        self.data.start.saturating_sub(6)..self.data.start.saturating_sub(2)
    }

    /// Where the record's data stand in the message.
    pub fn data_range(&self) -> Range<usize> {
        self.data.clone()
    }

    /// The record's data as they stand in the message: names in it may be compressed. See [`Record::append_data`].
    pub fn data(&self) -> &'a [u8] {
        self.bytes.get(self.data.clone()).unwrap_or_default()
    }

    /// Appends the record's data to `out` with all names in it uncompressed, fit to stand in any message.
    pub fn append_data(&self, out: &mut Vec<u8>) -> Result<(), MessageError> {
        rdata::append(self, out)
    }

    /// Appends the whole record to `out` under its own name and with `ttl`, uncompressed, fit to stand in any message.
    /// On an error `out` is as it was.
    pub fn append_to(&self, out: &mut Vec<u8>, ttl: u32) -> Result<(), MessageError> {
        let before = out.len();
        let result = self.try_append_to(out, ttl);
        if result.is_err() {
            out.truncate(before);
        }
        result
    }

    fn try_append_to(&self, out: &mut Vec<u8>, ttl: u32) -> Result<(), MessageError> {
        let bad = MessageError::BadData { rtype: self.rtype, at: self.data.start };
        out.extend_from_slice(self.owner()?.as_wire());
        out.extend_from_slice(&self.rtype.to_be_bytes());
        out.extend_from_slice(&self.class.to_be_bytes());
        out.extend_from_slice(&ttl.to_be_bytes());
        let mut data = Vec::with_capacity(self.data.len());
        self.append_data(&mut data)?;
        // Uncompressing makes data longer; 64 KiB of them fit no record.
        out.extend_from_slice(&u16::try_from(data.len()).map_err(|_| bad)?.to_be_bytes());
        out.extend_from_slice(&data);
        Ok(())
    }

    /// The name that the data of a CNAME, NS, PTR or another record of a single name hold.
    pub fn target(&self) -> Option<Name> {
        rdata::target(self)
    }
}

/// Goes through the records of a message; ends early where a record is not whole.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    left: [u16; 3],
}

impl<'a> Records<'a> {
    fn new(bytes: &'a [u8], heading: &Heading) -> Self {
        let [_, answers, authorities, additionals] = heading.header.counts;
        Self { bytes, at: heading.end, left: [answers, authorities, additionals] }
    }

    fn step(&mut self) -> Option<Result<Record<'a>, MessageError>> {
        let sections = [Section::Answer, Section::Authority, Section::Additional];
        let (left, section) = self.left.iter_mut().zip(sections).find(|(left, _)| **left > 0)?;
        *left -= 1;
        let record = read_record(self.bytes, self.at, section);
        match &record {
            Ok(record) => self.at = record.data.end,
            Err(_) => self.left = [0; 3],
        }
        Some(record)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step()?.ok()
    }
}

fn read_record(bytes: &[u8], start: usize, section: Section) -> Result<Record<'_>, MessageError> {
    let (_, at) = expand_name(bytes, start)?;
    let [rtype, class] = [u16_at(bytes, at)?, u16_at(bytes, at + 2)?];
    let ttl = u32::from(u16_at(bytes, at + 4)?) << 16 | u32::from(u16_at(bytes, at + 6)?);
    let length = usize::from(u16_at(bytes, at + 8)?);
    let data = at + 10..at + 10 + length;
    if data.end > bytes.len() {
        return Err(MessageError::Short(data.start));
    }
    Ok(Record { bytes, start, data, section, rtype, class, ttl })
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, MessageError> {
    bytes
        .get(at..at + 2)
        .and_then(|pair| pair.try_into().ok())
        .map(u16::from_be_bytes)
        .ok_or(MessageError::Short(at))
}

#[cfg(test)]
mod tests;
