//! Writes a response directly into the buffer of the transport.

mod records;

use smallvec::SmallVec;

use super::edns::{Edns, OPT_LEN};
use super::name::is_within;
use super::{HEADER, Header, Query, RecordIter, Section, class, flag, rtype};

pub use records::SoaData;

/// The record did not fit. No part of the record was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageFull;

/// A position in the message to which the writer can roll back.
#[derive(Debug, Clone, Copy)]
pub struct WriterMark {
    len: usize,
    counts: [u16; 3],
    min_ttl: u32,
    max_ttl: u32,
}

/// A response in progress. The response stays within the size limit of the query.
pub struct ResponseWriter<'q, 'b> {
    query: &'q Query<'q>,
    out: &'b mut Vec<u8>,
    /// Offset in `out` at which the message begins.
    start: usize,
    /// Maximum length of the message, without the OPT record that `finish` appends.
    limit: usize,
    /// The number of records in each section.
    counts: [u16; 3],
    min_ttl: u32,
    max_ttl: u32,
}

/// The form in which a name is written.
#[derive(Debug, Clone, Copy)]
pub enum NameForm<'n> {
    /// The query name.
    Question,
    /// A name in wire format, split into slices that are written one after the other.
    Parts(&'n [&'n [u8]]),
    /// A compression pointer to the name at this offset in the message. The offset must be below
    /// 2^14.
    At(u16),
}

/// The fields of a record before its data, and the section to write it to.
#[derive(Debug, Clone, Copy)]
pub struct RecordHead<'n> {
    /// The section.
    pub section: Section,
    /// The owner name.
    pub owner: NameForm<'n>,
    /// TYPE.
    pub rtype: u16,
    /// CLASS.
    pub class: u16,
    /// TTL in seconds.
    pub ttl: u32,
}

impl<'q, 'b> ResponseWriter<'q, 'b> {
    /// Starts a response after the octets in `out`, with header and question of the query.
    /// [`ResponseWriter::finish`] overwrites the header.
    pub fn new(query: &'q Query<'q>, out: &'b mut Vec<u8>) -> Self {
        let start = out.len();
        let head = query.message.get(..query.question_end());
        out.extend_from_slice(head.unwrap_or_default());

        // `finish` appends the OPT record after the last record, so room for the OPT record is
        // reserved.
        let reserved = if query.edns.is_some() { OPT_LEN } else { 0 };
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
    #[inline]
    pub fn mark(&self) -> WriterMark {
        WriterMark {
            len: self.out.len(),
            counts: self.counts,
            min_ttl: self.min_ttl,
            max_ttl: self.max_ttl,
        }
    }

    /// Removes everything that was written after `mark`.
    #[inline]
    pub fn rewind(&mut self, mark: WriterMark) {
        self.out.truncate(mark.len);
        self.counts = mark.counts;
        self.min_ttl = mark.min_ttl;
        self.max_ttl = mark.max_ttl;
    }

    /// The number of records in a section.
    #[inline]
    pub fn record_count(&self, section: Section) -> u16 {
        self.counts[section as usize]
    }

    /// Lowest and highest TTL with which answer records were written. Without answer records, the
    /// result is `(u32::MAX, 0)`.
    #[inline]
    pub fn answer_ttls(&self) -> (u32, u32) {
        (self.min_ttl, self.max_ttl)
    }

    /// Writes a record; `write_data` writes its RDATA.
    #[inline]
    pub fn write_record(
        &mut self,
        head: &RecordHead<'_>,
        write_data: impl FnOnce(&mut Self),
    ) -> Result<(), MessageFull> {
        let mark = self.mark();

        self.push_name(head.owner);
        self.push_u16(head.rtype);
        self.push_u16(head.class);
        self.push_octets(&head.ttl.to_be_bytes());

        // The length is known after the data are written.
        let len_at = self.out.len();
        self.push_u16(0);
        write_data(self);

        let len = u16::try_from(self.out.len() - len_at - 2);
        let Ok(len) = len else {
            self.rewind(mark);
            return Err(MessageFull);
        };
        if self.out.len() - self.start > self.limit {
            self.rewind(mark);
            return Err(MessageFull);
        }

        self.overwrite_u16(len_at, len);
        self.count_record(head);
        Ok(())
    }

    #[inline]
    fn count_record(&mut self, head: &RecordHead<'_>) {
        self.counts[head.section as usize] += 1;
        if head.section == Section::Answer {
            self.min_ttl = self.min_ttl.min(head.ttl);
            self.max_ttl = self.max_ttl.max(head.ttl);
        }
    }

    /// Overwrites two octets of `out`.
    #[inline]
    fn overwrite_u16(&mut self, at: usize, value: u16) {
        if let Some(place) = self.out.get_mut(at..at + 2) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Offset of the next octet in the message.
    #[inline]
    pub fn position(&self) -> usize {
        self.out.len() - self.start
    }

    /// Appends a 16-bit number.
    #[inline]
    pub fn push_u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends octets.
    #[inline]
    pub fn push_octets(&mut self, octets: &[u8]) {
        self.out.extend_from_slice(octets);
    }

    /// Appends a name without compression.
    #[inline]
    pub fn push_uncompressed(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.push_octets(part);
        }
    }

    /// Appends a name. In [`NameForm::Parts`], a pointer replaces the longest suffix that the name
    /// shares with the query name (RFC 1035, section 4.1.4).
    ///
    /// The suffix must have the same upper and lower case in both names. Otherwise the pointer
    /// would change the case of our name to that in the query.
    #[inline]
    pub fn push_name(&mut self, name: NameForm<'_>) {
        match name {
            NameForm::Question => self.push_pointer(HEADER),
            NameForm::At(offset) => self.push_pointer(usize::from(offset)),
            NameForm::Parts(parts) => self.push_compressed(parts),
        }
    }

    #[inline]
    fn push_pointer(&mut self, offset: usize) {
        self.push_u16(u16::try_from(offset).unwrap_or(0) | 0xc000);
    }

    /// Appends a name. A pointer replaces the longest suffix that the name shares with the query
    /// name.
    fn push_compressed(&mut self, parts: &[&[u8]]) {
        let whole: SmallVec<[u8; 256]> =
            parts.iter().flat_map(|part| part.iter().copied()).collect();
        let question = self.query.name;

        let mut at = 0;
        while let Some(&len) = whole.get(at).filter(|len| **len != 0) {
            // The search begins at the left, so that the longest suffix is found first.
            let suffix = whole.get(at..).unwrap_or_default();
            if let Some(offset) = suffix_offset(question, suffix) {
                self.push_octets(whole.get(..at).unwrap_or_default());
                self.push_pointer(HEADER + offset);
                return;
            }
            at += 1 + usize::from(len);
        }

        self.push_octets(&whole);
    }

    /// Changes the TTL of all answer records written so far to `ttl`. All records of an RRset need
    /// the same TTL (RFC 2181, section 5.2). SkyDNS, the DNS server in kube-dns, gives all answer
    /// records the same TTL.
    pub fn set_answer_ttls(&mut self, ttl: u32) {
        // A new iterator is made for each record, because an iterator borrows the message. This
        // writer wrote the owner names, so they need no check.
        let mut at = self.query.question_end();
        for _ in 0..self.record_count(Section::Answer) {
            let message = self.out.get_mut(self.start..).unwrap_or_default();
            let Some(Ok(record)) = RecordIter::new(message, at, [1, 0, 0]).next_unfollowed() else {
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

        let [answers, authorities, additionals] = self.counts;
        let header = Header {
            id: self.query.header.id,
            flags: flag::QR | flags | header_bits(rcode),
            counts: [1, answers, authorities, additionals],
        };
        header.write_over(self.out.get_mut(self.start..).unwrap_or_default());
    }
}

/// The four bits of an RCODE that the header holds. The OPT record has the upper bits (RFC 6891,
/// section 6.1.3).
#[inline]
fn header_bits(rcode: u16) -> u16 {
    rcode & 0x0f
}

/// The offset of `suffix` in `name`, if `name` ends with these labels in the same case. Both are in
/// wire format.
#[inline]
fn suffix_offset(name: &[u8], suffix: &[u8]) -> Option<usize> {
    is_within(name, suffix).then(|| name.len() - suffix.len())
}

/// A response that has an RCODE but no answer, to a message that may be malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorResponse {
    /// The RCODE.
    pub rcode: u16,
    /// End of the question in the message, or [`HEADER`] for a response without the question.
    pub question_end: usize,
    /// The DO bit of the message's OPT record, if that record was readable. The response then has
    /// an OPT record, too (RFC 6891, section 6.1.1).
    pub dnssec_ok: Option<bool>,
}

impl ErrorResponse {
    /// Appends to `out` the response to `message`: the header with the RCODE, the question, and the
    /// OPT record, if any.
    pub fn append_to(&self, message: &[u8], out: &mut Vec<u8>) {
        let Ok(received) = Header::parse(message) else {
            return;
        };

        let question = message.get(HEADER..self.question_end).unwrap_or_default();
        // A response has the opcode and RD of the query (RFC 1035, section 4.1.1), and the CD of
        // the query (RFC 4035, section 3.2.2).
        let copied = received.flags & (flag::OPCODE | flag::RD | flag::CD);
        let header = Header {
            id: received.id,
            flags: flag::QR | copied | header_bits(self.rcode),
            counts: [
                u16::from(!question.is_empty()),
                0,
                0,
                u16::from(self.dnssec_ok.is_some()),
            ],
        };

        out.extend_from_slice(&header.octets());
        out.extend_from_slice(question);
        if let Some(dnssec_ok) = self.dnssec_ok {
            Edns::ours(dnssec_ok).append(self.rcode, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;

    #[test]
    fn large_rcode_is_split_between_header_and_opt() {
        // The query is for the root. It has only a header and a question.
        let mut query = Header {
            id: 7,
            flags: 0,
            counts: [1, 0, 0, 0],
        }
        .octets()
        .to_vec();
        query.extend_from_slice(&[0, 0, 1, 0, 1]);
        let error = ErrorResponse {
            rcode: 16,
            question_end: query.len(),
            dnssec_ok: Some(false),
        };
        let mut response = Vec::new();
        error.append_to(&query, &mut response);

        let message = Message::parse(&response).unwrap();
        assert_eq!(
            message.header().flags,
            flag::QR,
            "RCODE 16 must set no bit of the header"
        );
        let opt = message.records().next().unwrap();
        assert_eq!(
            opt.ttl.to_be_bytes(),
            [1, 0, 0, 0],
            "the OPT record must have the upper bits of the RCODE"
        );
    }
}
