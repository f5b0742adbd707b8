//! Reading a query: header, the one question, EDNS (RFC 1035 section 4, RFC 6891).

use crate::wire::name::{self, MAX_NAME};

/// RCODEs that we give (RFC 1035, section 4.1.1; RFC 6891, section 9).
pub mod rcode {
    #![allow(missing_docs, reason = "the names are the registry's own")]
    pub const NOERROR: u16 = 0;
    pub const FORMERR: u16 = 1;
    pub const SERVFAIL: u16 = 2;
    pub const NXDOMAIN: u16 = 3;
    pub const NOTIMP: u16 = 4;
    pub const REFUSED: u16 = 5;
    pub const BADVERS: u16 = 16;
}

/// Record types that we know by name.
pub mod rtype {
    #![allow(missing_docs, reason = "the names are the registry's own")]
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const OPT: u16 = 41;
    pub const ANY: u16 = 255;
}

/// Classes.
pub mod class {
    #![allow(missing_docs, reason = "the names are the registry's own")]
    pub const IN: u16 = 1;
    pub const CH: u16 = 3;
}

/// Octets of a message's header.
pub const HEADER: usize = 12;
/// The largest message that UDP over IPv4 carries.
pub const MAX_UDP: usize = 65_507;
/// The largest message over UDP without EDNS (RFC 1035, section 4.2.1).
pub const PLAIN_UDP: usize = 512;
/// The largest message over TCP.
pub const MAX_TCP: usize = 65_535;

/// How a query came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// One datagram.
    Udp,
    /// A stream with length-prefixed messages.
    Tcp,
}

/// EDNS of a query (RFC 6891).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edns<'q> {
    /// Requestor's UDP payload size, as sent.
    pub udp_size: u16,
    /// EDNS version.
    pub version: u8,
    /// DNSSEC OK.
    pub dnssec_ok: bool,
    /// The options as they stand in the message.
    pub options: &'q [u8],
}

/// A well-formed query with one question.
#[derive(Debug)]
pub struct Query<'q> {
    /// The whole message.
    pub message: &'q [u8],
    /// The owner name as sent, in wire format.
    pub name: &'q [u8],
    lower: [u8; MAX_NAME],
    /// QTYPE.
    pub qtype: u16,
    /// QCLASS.
    pub qclass: u16,
    /// EDNS, if the query has an OPT record.
    pub edns: Option<Edns<'q>>,
    /// How it came in.
    pub transport: Transport,
    /// A section is shorter than its count says, or an OPT record does not belong to the root. kube-dns answers such
    /// queries; strictly they are malformed.
    pub lax: bool,
    /// The largest answer over UDP, whatever size the query offers.
    pub max_udp: usize,
}

/// What is to be done with a message that is not a well-formed query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Not a query at all (no header, or a response): nothing is sent, so that two servers cannot ping-pong.
    Ignore,
    /// An RCODE with the bare header, and with the question where the message is sound up to there.
    Refuse {
        /// The RCODE.
        rcode: u16,
        /// Where the question ends, if it is to be sent back.
        question_end: usize,
        /// DO of the message's OPT record, where one could be read: then the answer has one too.
        dnssec_ok: Option<bool>,
    },
}

impl Malformed {
    fn refuse(rcode: u16) -> Self {
        Self::Refuse { rcode, question_end: HEADER, dnssec_ok: None }
    }
}

impl<'q> Query<'q> {
    /// Reads a message.
    ///
    /// Limits on the counts are those of the reference: one question, at most one record in answer and authority,
    /// two in additional; sections may be shorter than their counts say, but not cut off within a record.
    pub fn parse(message: &'q [u8], transport: Transport) -> Result<Self, Malformed> {
        let header = message.first_chunk::<HEADER>().ok_or(Malformed::Ignore)?;
        if header[2] & 0x80 != 0 {
            return Err(Malformed::Ignore);
        }
        if header[2] & 0x78 != 0 {
            return Err(Malformed::refuse(rcode::NOTIMP));
        }
        let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if count(4) != 1 || count(6) > 1 || count(8) > 1 || count(10) > 2 {
            return Err(Malformed::refuse(rcode::FORMERR));
        }
        let mut query = Self::parse_question(message, transport).ok_or(Malformed::refuse(rcode::FORMERR))?;
        let question_end = query.question_end();
        let mut records = Records { message, at: question_end, lax: false };
        query.edns = records.edns(count(6) + count(8), count(10)).map_err(|edns| Malformed::Refuse {
            rcode: rcode::FORMERR,
            question_end,
            dnssec_ok: edns.map(|edns| edns.dnssec_ok),
        })?;
        query.lax = records.lax;
        Ok(query)
    }

    fn parse_question(message: &'q [u8], transport: Transport) -> Option<Self> {
        let end = name::end_of(message, HEADER)?;
        let name = message.get(HEADER..end)?;
        let &[t0, t1, c0, c1] = message.get(end..)?.first_chunk()?;
        let mut lower = [0; MAX_NAME];
        for (to, from) in lower.iter_mut().zip(name) {
            *to = from.to_ascii_lowercase();
        }
        let (qtype, qclass) = (u16::from_be_bytes([t0, t1]), u16::from_be_bytes([c0, c1]));
        Some(Self {
            message,
            name,
            lower,
            qtype,
            qclass,
            edns: None,
            transport,
            lax: false,
            max_udp: MAX_UDP,
        })
    }

    /// Where the question section ends.
    pub fn question_end(&self) -> usize {
        HEADER + self.name.len() + 4
    }

    /// The owner name in lower case.
    pub fn lower(&self) -> &[u8] {
        self.lower.get(..self.name.len()).unwrap_or_default()
    }

    /// Header flags of the query, as one 16-bit word.
    pub fn flags(&self) -> u16 {
        flags_of(self.message)
    }

    /// The largest answer that may be sent back.
    pub fn limit(&self) -> usize {
        match (self.transport, &self.edns) {
            (Transport::Tcp, _) => MAX_TCP,
            (Transport::Udp, None) => PLAIN_UDP,
            (Transport::Udp, Some(edns)) => usize::from(edns.udp_size).clamp(PLAIN_UDP, self.max_udp),
        }
    }
}

/// The flags word of a message; 0 when it has none.
pub(crate) fn flags_of(message: &[u8]) -> u16 {
    message.get(2..4).map_or(0, |flags| u16::from_be_bytes([flags[0], flags[1]]))
}

struct Records<'q> {
    message: &'q [u8],
    at: usize,
    /// See [`Query::lax`].
    lax: bool,
}

struct RawRecord<'q> {
    root_owner: bool,
    rtype: u16,
    class: u16,
    ttl: u32,
    rdata: &'q [u8],
}

impl<'q> Records<'q> {
    /// Walks the records behind the question and returns the EDNS among them. The error is that of the first OPT
    /// record, where one was read before what is malformed.
    fn edns(&mut self, skipped: u16, additional: u16) -> Result<Option<Edns<'q>>, Option<Edns<'q>>> {
        for _ in 0..skipped {
            self.next_record().ok_or(None)?;
        }
        let mut edns = None;
        for _ in 0..additional {
            let Some(record) = self.next_record().ok_or(edns)? else { continue };
            self.lax |= record.rtype == rtype::OPT && !record.root_owner;
            let Some(opt) = record.edns() else { continue };
            // RFC 6891, section 6.1.1: more than one OPT is a FORMERR.
            if edns.is_some() || !options_are_well_formed(opt.options) {
                return Err(edns.or(Some(opt)));
            }
            edns = Some(opt);
        }
        Ok(edns)
    }

    /// The next record; `Some(None)` at the end of the message, `None` when it is cut off.
    #[allow(clippy::option_option, reason = "the three cases are distinct: a record, the end, an error")]
    fn next_record(&mut self) -> Option<Option<RawRecord<'q>>> {
        if self.at >= self.message.len() {
            self.lax = true;
            return Some(None);
        }
        let start = self.at;
        let end = skip_name(self.message, start)?;
        let fixed: [u8; 10] = *self.message.get(end..)?.first_chunk()?;
        let [t0, t1, c0, c1, a, b, c, d, l0, l1] = fixed;
        let rdata_at = end + fixed.len();
        let rdata_end = rdata_at + usize::from(u16::from_be_bytes([l0, l1]));
        let rdata = self.message.get(rdata_at..rdata_end)?;
        self.at = rdata_end;
        Some(Some(RawRecord {
            root_owner: end == start + 1,
            rtype: u16::from_be_bytes([t0, t1]),
            class: u16::from_be_bytes([c0, c1]),
            ttl: u32::from_be_bytes([a, b, c, d]),
            rdata,
        }))
    }
}

impl<'q> RawRecord<'q> {
    fn edns(&self) -> Option<Edns<'q>> {
        let [_, version, flags, _] = self.ttl.to_be_bytes();
        (self.rtype == rtype::OPT && self.root_owner).then_some(Edns {
            udp_size: self.class,
            version,
            dnssec_ok: flags & 0x80 != 0,
            options: self.rdata,
        })
    }
}

/// Where the name at `at`, possibly compressed, ends.
pub(crate) fn skip_name(message: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    loop {
        match *message.get(end)? {
            0 => return Some(end + 1),
            len @ 1..=0x3f => end += 1 + usize::from(len),
            0xc0.. => return (end + 2 <= message.len()).then_some(end + 2),
            _ => return None,
        }
        if end - at > MAX_NAME {
            return None;
        }
    }
}

/// EDNS options have to fill the RDATA exactly; a client subnet has to hold its fixed part (RFC 7871, section 6).
fn options_are_well_formed(mut options: &[u8]) -> bool {
    const CLIENT_SUBNET: u16 = 8;
    while let Some((&[c0, c1, l0, l1], rest)) = options.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        let Some((_, rest)) = rest.split_at_checked(len) else { return false };
        if u16::from_be_bytes([c0, c1]) == CLIENT_SUBNET && len < 4 {
            return false;
        }
        options = rest;
    }
    options.is_empty()
}
