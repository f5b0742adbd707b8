//! Writing an answer in wire format, straight into the transport's buffer.

use smallvec::SmallVec;

use crate::wire::query::{HEADER, Query, class, rtype};

/// Header flags, as bits of the 16-bit word (RFC 1035, section 4.1.1; RFC 4035, section 3.2).
pub(crate) mod flag {
    pub(crate) const QR: u16 = 0x8000;
    pub(crate) const OPCODE: u16 = 0x7800;
    pub(crate) const AA: u16 = 0x0400;
    pub(crate) const TC: u16 = 0x0200;
    pub(crate) const RD: u16 = 0x0100;
    pub(crate) const RA: u16 = 0x0080;
    pub(crate) const AD: u16 = 0x0020;
    pub(crate) const CD: u16 = 0x0010;
}

/// The UDP payload size that we offer: what crosses any network without fragments (DNS flag day 2020).
pub(crate) const OUR_UDP_SIZE: u16 = 1232;
/// Octets of an OPT record without options.
const OPT_LEN: usize = 11;

/// The sections behind the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Answer,
    Authority,
    Additional,
}

/// The record did not fit; nothing of it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// A place in the message to go back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    len: usize,
    counts: [u16; 3],
    min_ttl: u32,
    max_ttl: u32,
}

/// An answer being written. It never grows beyond the limit that the query allows.
pub(crate) struct Message<'q, 'b> {
    query: &'q Query<'q>,
    out: &'b mut Vec<u8>,
    start: usize,
    limit: usize,
    counts: [u16; 3],
    min_ttl: u32,
    max_ttl: u32,
}

/// A name to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner<'n> {
    /// The name of the question.
    Question,
    /// Labels relative to a domain, and the domain in wire format.
    Parts(&'n [&'n [u8]]),
    /// A name that stands at this offset already.
    At(u16),
}

impl<'q, 'b> Message<'q, 'b> {
    /// Starts an answer behind what is in `out`: header (to be completed by [`Message::finish`]) and question.
    pub(crate) fn new(query: &'q Query<'q>, out: &'b mut Vec<u8>) -> Self {
        let start = out.len();
        let reserved = if query.edns.is_some() { OPT_LEN } else { 0 };
        out.extend_from_slice(query.message.get(..query.question_end()).unwrap_or_default());
        let limit = query.limit() - reserved;
        Self { query, out, start, limit, counts: [0; 3], min_ttl: u32::MAX, max_ttl: 0 }
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { len: self.out.len(), counts: self.counts, min_ttl: self.min_ttl, max_ttl: self.max_ttl }
    }

    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.out.truncate(mark.len);
        self.counts = mark.counts;
        self.min_ttl = mark.min_ttl;
        self.max_ttl = mark.max_ttl;
    }

    pub(crate) fn count(&self, section: Section) -> u16 {
        self.counts[section as usize]
    }

    /// Lowest and highest TTL among the answers.
    pub(crate) fn answer_ttls(&self) -> (u32, u32) {
        (self.min_ttl, self.max_ttl)
    }

    /// Writes a record of class IN whose RDATA is `rdata`.
    pub(crate) fn record(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        rtype: u16,
        ttl: u32,
        rdata: impl FnOnce(&mut Self),
    ) -> Result<(), Full> {
        self.record_of_class(section, owner, (rtype, class::IN), ttl, rdata)
    }

    /// Writes a record.
    pub(crate) fn record_of_class(
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

    /// Where the next octet goes, as an offset in the message.
    pub(crate) fn position(&self) -> usize {
        self.out.len() - self.start
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Writes a name without compression.
    pub(crate) fn uncompressed(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.bytes(part);
        }
    }

    /// Writes a name, compressed against the question (RFC 1035, section 4.1.4).
    ///
    /// Only a suffix equal in case is pointed to: the case of records is ours, not the asker's.
    pub(crate) fn name(&mut self, owner: Owner<'_>) {
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
        let whole: SmallVec<[u8; 256]> = parts.iter().flat_map(|part| part.iter().copied()).collect();
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

    /// Gives every answer the same TTL: an RRset has one, and SkyDNS takes the lowest of the whole section.
    pub(crate) fn set_answer_ttls(&mut self, ttl: u32) {
        let mut at = self.start + self.query.question_end();
        for _ in 0..self.counts[0] {
            let Some(end) = crate::wire::query::skip_name(self.out, at) else { return };
            let Some([.., l0, l1]) = self.out.get(end..end + 10) else { return };
            let rdata = usize::from(u16::from_be_bytes([*l0, *l1]));
            if let Some(place) = self.out.get_mut(end + 4..end + 8) {
                place.copy_from_slice(&ttl.to_be_bytes());
            }
            at = end + 10 + rdata;
        }
    }

    /// Completes the header, and adds our OPT record if the query had one (RFC 6891, section 6.1.1).
    pub(crate) fn finish(mut self, flags: u16, rcode: u16) {
        if let Some(edns) = &self.query.edns {
            self.out.extend_from_slice(&opt(rcode, edns.dnssec_ok));
            self.counts[Section::Additional as usize] += 1;
        }
        let [an, ns, ar] = self.counts;
        let start = self.start;
        self.patch(start + 2, flag::QR | flags | (rcode & 0x0f));
        self.patch(start + 4, 1);
        self.patch(start + 6, an);
        self.patch(start + 8, ns);
        self.patch(start + 10, ar);
    }
}

/// Where in `name` the name `suffix` begins, if it ends it. Both in wire format.
fn suffix_offset(name: &[u8], suffix: &[u8]) -> Option<usize> {
    crate::backend::is_within(name, suffix).then(|| name.len() - suffix.len())
}

/// Our OPT record, without options (RFC 6891, section 6.1.2).
fn opt(rcode: u16, dnssec_ok: bool) -> [u8; OPT_LEN] {
    let [t0, t1] = rtype::OPT.to_be_bytes();
    let [s0, s1] = OUR_UDP_SIZE.to_be_bytes();
    let [high, low] = rcode.to_be_bytes();
    let extended = (high << 4) | (low >> 4);
    [0, t0, t1, s0, s1, extended, 0, if dnssec_ok { 0x80 } else { 0 }, 0, 0, 0]
}

/// The answer to a message that could not be read: its header with the RCODE, the question if asked for, and an OPT
/// record if there was one to be read (RFC 6891, section 6.1.1).
pub(crate) fn refuse(
    message: &[u8],
    question_end: usize,
    rcode: u16,
    dnssec_ok: Option<bool>,
    out: &mut Vec<u8>,
) {
    let Some(header) = message.first_chunk::<HEADER>() else { return };
    let flags = crate::wire::query::flags_of(message) & (flag::OPCODE | flag::RD | flag::CD);
    out.extend_from_slice(&header[..2]);
    out.extend_from_slice(&(flag::QR | flags | rcode).to_be_bytes());
    let question = message.get(HEADER..question_end).unwrap_or_default();
    out.extend_from_slice(&[0, u8::from(!question.is_empty()), 0, 0, 0, 0]);
    out.extend_from_slice(&[0, u8::from(dnssec_ok.is_some())]);
    out.extend_from_slice(question);
    if let Some(dnssec_ok) = dnssec_ok {
        out.extend_from_slice(&opt(rcode, dnssec_ok));
    }
}
