//! Parses a query: header, question, EDNS. Decides the reaction to malformed messages.

use dnsconfig::Transport;

use super::edns::{Edns, options};
use super::name::MAX_NAME;
use super::{HEADER, Header, Question, Records, Section, rcode, rtype};

/// Maximum size of a message in UDP over IPv4.
pub const MAX_UDP: usize = 65_507;
/// Maximum size of a message over UDP without EDNS (RFC 1035, section 4.2.1).
pub const PLAIN_UDP: usize = 512;
/// Maximum size of a message over TCP.
const MAX_TCP: usize = 65_535;

/// A well-formed query with one question.
#[derive(Debug)]
pub struct Query<'q> {
    /// The whole message.
    pub message: &'q [u8],
    /// The header.
    pub header: Header,
    /// The query name as sent, in wire format.
    pub name: &'q [u8],
    lower: [u8; MAX_NAME],
    /// QTYPE.
    pub qtype: u16,
    /// QCLASS.
    pub qclass: u16,
    /// EDNS, if the query has an OPT record.
    pub edns: Option<Edns<&'q [u8]>>,
    /// The transport.
    pub transport: Transport,
    /// Whether a section is shorter than its count says, or an OPT record does not belong to the root. kube-dns
    /// answers such queries; with `--strict-dns` they are malformed.
    pub lax: bool,
    /// Maximum size of a UDP answer, whatever size the query advertises.
    pub max_udp: usize,
    /// Maximum size of a TCP answer: the largest message, and more only for answers that are sent in parts.
    pub max_tcp: usize,
}

/// Reaction to a message that is not a well-formed query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Not a query (no header, or a response): no response is sent, so that two servers cannot ping-pong.
    Ignore,
    /// Respond with an RCODE and the header, and with the question if the message is well-formed up to its end.
    Refuse {
        /// The RCODE.
        rcode: u16,
        /// End of the question, if it is part of the response.
        question_end: usize,
        /// The DO bit of the message's OPT record, if that was readable: then the response has an OPT record, too.
        dnssec_ok: Option<bool>,
    },
}

impl Malformed {
    fn refuse(rcode: u16) -> Self {
        Self::Refuse { rcode, question_end: HEADER, dnssec_ok: None }
    }
}

impl<'q> Query<'q> {
    /// Parses a message.
    ///
    /// The limits on the counts are the same as in kube-dns: one question, at most one record in answer and authority,
    /// two in additional. Sections may be shorter than their counts say, but must not end within a record.
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

    /// Offset of the end of the question section.
    pub fn question_end(&self) -> usize {
        HEADER + self.name.len() + 4
    }

    /// The query name in lower case.
    pub fn lower(&self) -> &[u8] {
        self.lower.get(..self.name.len()).unwrap_or_default()
    }

    /// Maximum size of the response.
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

/// The EDNS in the records after the question, and whether the records are [lax](Query::lax). The error holds the
/// first OPT record, if it was readable.
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

/// Whether EDNS options fill the RDATA exactly, and each client subnet has its fixed part (RFC 7871, section 6).
fn options_are_well_formed(octets: &[u8]) -> bool {
    const CLIENT_SUBNET: u16 = 8;
    /// Option code, length, family and two prefix lengths.
    const FIXED: usize = 8;
    options(octets)
        .all(|option| option.is_some_and(|(code, option)| code != CLIENT_SUBNET || option.len() >= FIXED))
}
