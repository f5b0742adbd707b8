//! Writes a response directly into the buffer of the transport.

mod records;

use smallvec::SmallVec;

use super::edns::{Edns, OPT_LEN};
use super::name::is_within;
use super::{HEADER, Header, Query, Records, Section, class, flag, rtype};

pub use records::SoaData;

/// The record did not fit. No part of the record was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// A position in the message to which the writer can roll back.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    len: usize,
    counts: [u16; 3],
    min_ttl: u32,
    max_ttl: u32,
}

/// A response in progress. The response stays within the size limit of the query.
pub struct Writer<'q, 'b> {
    query: &'q Query<'q>,
    out: &'b mut Vec<u8>,
    start: usize,
    limit: usize,
    counts: [u16; 3],
    min_ttl: u32,
    max_ttl: u32,
}

/// An owner name to write.
#[derive(Debug, Clone, Copy)]
pub enum Owner<'n> {
    /// The query name.
    Question,
    /// The name in wire format, in parts that follow each other.
    Parts(&'n [&'n [u8]]),
    /// A compression pointer to a name at this offset.
    At(u16),
}

impl<'q, 'b> Writer<'q, 'b> {
    /// Starts a response after the octets in `out`, with header and question. [`Writer::finish`]
    /// completes the header.
    pub fn new(query: &'q Query<'q>, out: &'b mut Vec<u8>) -> Self {
        let start = out.len();
        let reserved = if query.edns.is_some() { OPT_LEN } else { 0 };
        out.extend_from_slice(
            query
                .message
                .get(..query.question_end())
                .unwrap_or_default(),
        );
        let limit = query.limit() - reserved;
        Self {
            query,
            out,
            start,
            limit,
            counts: [0; 3],
            min_ttl: u32::MAX,
            max_ttl: 0,
        }
    }

    /// The current position, for [`rewind`](Self::rewind).
    pub fn mark(&self) -> Mark {
        Mark {
            len: self.out.len(),
            counts: self.counts,
            min_ttl: self.min_ttl,
            max_ttl: self.max_ttl,
        }
    }

    /// Removes everything that was written after `mark`.
    pub fn rewind(&mut self, mark: Mark) {
        self.out.truncate(mark.len);
        self.counts = mark.counts;
        self.min_ttl = mark.min_ttl;
        self.max_ttl = mark.max_ttl;
    }

    /// The number of records in a section.
    pub fn count(&self, section: Section) -> u16 {
        self.counts[section as usize]
    }

    /// Lowest and highest TTL in the answer section.
    pub fn answer_ttls(&self) -> (u32, u32) {
        (self.min_ttl, self.max_ttl)
    }

    /// Writes a record of class IN; `rdata` writes its RDATA.
    pub fn record(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        rtype: u16,
        ttl: u32,
        rdata: impl FnOnce(&mut Self),
    ) -> Result<(), Full> {
        self.record_of_class(section, owner, (rtype, class::IN), ttl, rdata)
    }

    /// Writes a record of any class.
    pub fn record_of_class(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        (rtype, class): (u16, u16),
        ttl: u32,
        rdata: impl FnOnce(&mut Self),
    ) -> Result<(), Full> {
        let mark = self.mark();
        self.name(owner);
        self.u16(rtype);
        self.u16(class);
        self.out.extend_from_slice(&ttl.to_be_bytes());
        let len_at = self.out.len();
        self.u16(0);
        rdata(self);
        let len = self.out.len() - len_at - 2;
        let Ok(len) = u16::try_from(len) else {
            self.rewind(mark);
            return Err(Full);
        };
        if self.out.len() - self.start > self.limit {
            self.rewind(mark);
            return Err(Full);
        }
        self.patch(len_at, len);
        self.counts[section as usize] += 1;
        if section == Section::Answer {
            self.min_ttl = self.min_ttl.min(ttl);
            self.max_ttl = self.max_ttl.max(ttl);
        }
        Ok(())
    }

    fn patch(&mut self, at: usize, value: u16) {
        if let Some(place) = self.out.get_mut(at..at + 2) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Offset of the next octet in the message.
    pub fn position(&self) -> usize {
        self.out.len() - self.start
    }

    /// Appends a 16-bit number.
    pub fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends octets.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Writes a name without compression.
    pub fn uncompressed(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.bytes(part);
        }
    }

    /// Writes a name. A suffix that the query name also ends with becomes a pointer (RFC 1035,
    /// section 4.1.4).
    ///
    /// The suffix must have the same upper and lower case: our names keep their case, and the
    /// client may use another.
    pub fn name(&mut self, owner: Owner<'_>) {
        match owner {
            Owner::Question => self.pointer(HEADER),
            Owner::At(offset) => self.pointer(usize::from(offset)),
            Owner::Parts(parts) => self.compressed(parts),
        }
    }

    fn pointer(&mut self, offset: usize) {
        self.u16(u16::try_from(offset).unwrap_or(0) | 0xc000);
    }

    fn compressed(&mut self, parts: &[&[u8]]) {
        let whole: SmallVec<[u8; 256]> =
            parts.iter().flat_map(|part| part.iter().copied()).collect();
        let question = self.query.name;
        let mut at = 0;
        while let Some(&len) = whole.get(at).filter(|len| **len != 0) {
            let suffix = whole.get(at..).unwrap_or_default();
            if let Some(offset) = suffix_offset(question, suffix) {
                self.bytes(whole.get(..at).unwrap_or_default());
                self.pointer(HEADER + offset);
                return;
            }
            at += 1 + usize::from(len);
        }
        self.bytes(&whole);
    }

    /// Sets the TTL of all answer records. An RRset has one TTL, and SkyDNS uses the lowest TTL of
    /// the whole section.
    pub fn set_answer_ttls(&mut self, ttl: u32) {
        let mut at = self.query.question_end();
        for _ in 0..self.count(Section::Answer) {
            let message = self.out.get_mut(self.start..).unwrap_or_default();
            let Some(Ok(record)) = Records::new(message, at, [1, 0, 0]).skim() else {
                return;
            };
            let place = record.ttl_range();
            at = record.range().end;
            if let Some(place) = message.get_mut(place) {
                place.copy_from_slice(&ttl.to_be_bytes());
            }
        }
    }

    /// Completes the header, and adds our OPT record if the query has one (RFC 6891, section
    /// 6.1.1).
    pub fn finish(mut self, flags: u16, rcode: u16) {
        if let Some(edns) = &self.query.edns {
            Edns::ours(edns.dnssec_ok).append(rcode, self.out);
            self.counts[Section::Additional as usize] += 1;
        }
        let [an, ns, ar] = self.counts;
        let flags = flag::QR | flags | (rcode & 0x0f);
        let header = Header {
            id: self.query.header.id,
            flags,
            counts: [1, an, ns, ar],
        };
        header.write_over(self.out.get_mut(self.start..).unwrap_or_default());
    }
}

/// The offset of `suffix` in `name`, if `name` ends with `suffix`. Both are in wire format.
fn suffix_offset(name: &[u8], suffix: &[u8]) -> Option<usize> {
    is_within(name, suffix).then(|| name.len() - suffix.len())
}

/// Appends the error response to the query `message`: the header with the RCODE, and the question
/// up to `question_end`. With `dnssec_ok` the response has an OPT record (RFC 6891, section 6.1.1).
pub fn refuse(
    message: &[u8],
    question_end: usize,
    rcode: u16,
    dnssec_ok: Option<bool>,
    out: &mut Vec<u8>,
) {
    let Ok(Header { id, flags, .. }) = Header::parse(message) else {
        return;
    };
    let question = message.get(HEADER..question_end).unwrap_or_default();
    let flags = flag::QR | flags & (flag::OPCODE | flag::RD | flag::CD) | rcode;
    let counts = [
        u16::from(!question.is_empty()),
        0,
        0,
        u16::from(dnssec_ok.is_some()),
    ];
    out.extend_from_slice(&Header { id, flags, counts }.octets());
    out.extend_from_slice(question);
    if let Some(dnssec_ok) = dnssec_ok {
        Edns::ours(dnssec_ok).append(rcode, out);
    }
}
