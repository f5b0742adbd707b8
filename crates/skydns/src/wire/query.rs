//! Reading a query: header, the one question, EDNS. What is malformed, and what it gets.

use dnsconfig::Transport;

use super::edns::{Edns, options};
use super::name::MAX_NAME;
use super::{HEADER, Header, Question, Records, Section, rcode, rtype};

/// The largest message that UDP over IPv4 carries.
pub const MAX_UDP: usize = 65_507;
/// The largest message over UDP without EDNS (RFC 1035, section 4.2.1).
pub const PLAIN_UDP: usize = 512;
/// The largest message over TCP.
const MAX_TCP: usize = 65_535;

/// A well-formed query with one question.
#[derive(Debug)]
pub struct Query<'q> {
    /// The whole message.
    pub message: &'q [u8],
    /// Its header.
    pub header: Header,
    /// The owner name as sent, in wire format.
    pub name: &'q [u8],
    lower: [u8; MAX_NAME],
    /// QTYPE.
    pub qtype: u16,
    /// QCLASS.
    pub qclass: u16,
    /// EDNS, if the query has an OPT record.
    pub edns: Option<Edns<&'q [u8]>>,
    /// Its transport.
    pub transport: Transport,
    /// A section is shorter than its count says, or an OPT record does not belong to the root. kube-dns answers such
    /// queries; strictly they are malformed.
    pub lax: bool,
    /// The largest answer over UDP, whatever size the query offers.
    pub max_udp: usize,
    /// The largest answer over TCP: what its length can tell, and more only for answers that are sent in parts.
    pub max_tcp: usize,
}

/// Reaction to a message that is not a well-formed query.
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
        let header = Header::parse(message).map_err(|_| Malformed::Ignore)?;
        if header.is_response() {
            return Err(Malformed::Ignore);
        }
        if header.opcode() != 0 {
            return Err(Malformed::refuse(rcode::NOTIMP));
        }
        let [questions, counts @ ..] = header.counts;
        let [answers, authorities, additionals] = counts;
        if questions != 1 || answers > 1 || authorities > 1 || additionals > 2 {
            return Err(Malformed::refuse(rcode::FORMERR));
        }
        let question = Question::read(message).map_err(|_| Malformed::refuse(rcode::FORMERR))?;
        let (Question { name, qtype, qclass }, question_end) = question;
        let records = Records::new(message, question_end, counts);
        let (edns, lax) = edns_among(records).map_err(|edns| Malformed::Refuse {
            rcode: rcode::FORMERR,
            question_end,
            dnssec_ok: edns.map(|edns| edns.dnssec_ok),
        })?;
        let (lower, max_udp, max_tcp) = (lower(name), MAX_UDP, MAX_TCP);
        Ok(Self { message, header, name, lower, qtype, qclass, edns, transport, lax, max_udp, max_tcp })
    }

    /// Where the question section ends.
    pub fn question_end(&self) -> usize {
        HEADER + self.name.len() + 4
    }

    /// The owner name in lower case.
    pub fn lower(&self) -> &[u8] {
        self.lower.get(..self.name.len()).unwrap_or_default()
    }

    /// The largest answer that may be sent back.
    pub fn limit(&self) -> usize {
        match (self.transport, &self.edns) {
            (Transport::Tcp, _) => self.max_tcp,
            (Transport::Udp, None) => PLAIN_UDP,
            (Transport::Udp, Some(edns)) => usize::from(edns.udp_size).clamp(PLAIN_UDP, self.max_udp),
        }
    }
}

fn lower(name: &[u8]) -> [u8; MAX_NAME] {
    let mut lower = [0; MAX_NAME];
    for (to, from) in lower.iter_mut().zip(name) {
        *to = from.to_ascii_lowercase();
    }
    lower
}

type EdnsOf<'q> = Option<Edns<&'q [u8]>>;

/// The EDNS among the records behind the question, and whether they are [lax](Query::lax). The error is that of the first
/// OPT record, where one was read before what is malformed.
fn edns_among(mut records: Records<'_>) -> Result<(EdnsOf<'_>, bool), EdnsOf<'_>> {
    let (mut edns, mut lax) = (None, false);
    while !records.ran_out()
        && let Some(record) = records.skim()
    {
        let record = record.map_err(|_| edns)?;
        if record.section != Section::Additional || record.rtype != rtype::OPT {
            continue;
        }
        if !record.is_of_root() {
            lax = true;
            continue;
        }
        let opt = Edns::of(&record);
        // RFC 6891, section 6.1.1: more than one OPT is a FORMERR.
        if edns.is_some() || !options_are_well_formed(opt.options) {
            return Err(edns.or(Some(opt)));
        }
        edns = Some(opt);
    }
    Ok((edns, lax || records.ran_out()))
}

/// EDNS options have to fill the RDATA exactly; a client subnet has to hold its fixed part (RFC 7871, section 6).
fn options_are_well_formed(octets: &[u8]) -> bool {
    const CLIENT_SUBNET: u16 = 8;
    /// Code, length, family and two prefix lengths.
    const FIXED: usize = 8;
    options(octets)
        .all(|option| option.is_some_and(|(code, option)| code != CLIENT_SUBNET || option.len() >= FIXED))
}
