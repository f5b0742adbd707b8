//! Parses a query: header, question and EDNS. Chooses the reaction to a malformed message.

use super::edns::{EXTENDED_ERROR, Edns, split_options};
use super::name::MAX_NAME;
use super::{
    ErrorResponse, HEADER, Header, Question, RecordIter, Section, Transport, rcode, rtype,
};

/// Maximum size of a message in UDP over IPv4, in octets.
pub const MAX_UDP: usize = 65_507;
/// Maximum size of a message over UDP without EDNS, in octets (RFC 1035, section 4.2.1).
pub const PLAIN_UDP: usize = 512;
/// Maximum size of a message over TCP, in octets.
const MAX_TCP: usize = 65_535;

/// A well-formed query with one question.
#[derive(Debug, Clone)]
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
    /// Offset of the EDNS options in the message; 0 without an OPT record.
    options_at: usize,
    /// The transport.
    pub transport: Transport,
    /// Whether a section has fewer records than its count, or an OPT record has an owner other than
    /// the root. kube-dns answers such queries; with `--strict-dns` they get FORMERR.
    pub lax: bool,
    /// Maximum size of a UDP answer in octets, even if the query advertises more.
    pub max_udp: usize,
    /// Maximum size of a TCP answer, in octets. Zone transfers raise this limit, because they split
    /// the records of a large answer among several messages.
    pub max_tcp: usize,
}

/// Reaction to a message that is not a well-formed query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryError {
    /// Send no response: the message is shorter than a header, or is a response. A response to a
    /// response could start an endless exchange between two servers.
    Ignore,
    /// Send this response.
    Respond(ErrorResponse),
}

impl QueryError {
    /// A response with only the header.
    fn respond_header(rcode: u16) -> Self {
        Self::Respond(ErrorResponse {
            rcode,
            question_end: HEADER,
            dnssec_ok: None,
        })
    }
}

impl<'q> Query<'q> {
    /// Parses a message.
    ///
    /// As in kube-dns, QDCOUNT must be 1, ANCOUNT and NSCOUNT at most 1, and ARCOUNT at most 2.
    /// Sections may have fewer records than their counts, but the message must not end within a
    /// record.
    pub fn parse(message: &'q [u8], transport: Transport) -> Result<Self, QueryError> {
        let header = Header::parse(message).map_err(|_| QueryError::Ignore)?;
        if header.is_response() {
            return Err(QueryError::Ignore);
        }
        // With another opcode, the sections may have another meaning (RFC 2136).
        if header.opcode() != 0 {
            return Err(QueryError::respond_header(rcode::NOTIMP));
        }

        let [questions, counts @ ..] = header.counts;
        let [answers, authorities, additionals] = counts;
        if questions != 1 || answers > 1 || authorities > 1 || additionals > 2 {
            return Err(QueryError::respond_header(rcode::FORMERR));
        }
        let (question, question_end) =
            Question::read(message).map_err(|_| QueryError::respond_header(rcode::FORMERR))?;

        // If the error holds EDNS, the error response has EDNS, too.
        let records = RecordIter::new(message, question_end, counts);
        let found = EdnsScan::run(records).map_err(|edns| {
            QueryError::Respond(ErrorResponse {
                rcode: rcode::FORMERR,
                question_end,
                dnssec_ok: edns.map(|edns| edns.dnssec_ok),
            })
        })?;

        Ok(Self {
            message,
            header,
            name: question.name,
            lower: lower_name(question.name),
            qtype: question.qtype,
            qclass: question.qclass,
            edns: found.edns,
            options_at: found.options_at,
            transport,
            lax: found.lax,
            max_udp: MAX_UDP,
            max_tcp: MAX_TCP,
        })
    }

    /// Copies the query, so that the receive buffer can be reused before the query is answered.
    pub fn to_owned(&self) -> OwnedQuery {
        OwnedQuery {
            message: self.message.into(),
            name_len: self.name.len(),
            options_len: self.edns.map_or(0, |edns| edns.options.len()),
            parsed: Query {
                // `OwnedQuery::query` takes the slices from the copy, not from the receive buffer.
                message: &[],
                header: self.header,
                name: &[],
                lower: self.lower,
                qtype: self.qtype,
                qclass: self.qclass,
                edns: self.edns.map(|edns| edns.map_options(|_| &[][..])),
                options_at: self.options_at,
                transport: self.transport,
                lax: self.lax,
                max_udp: self.max_udp,
                max_tcp: self.max_tcp,
            },
        }
    }

    /// Offset of the end of the question section.
    #[inline]
    pub fn question_end(&self) -> usize {
        HEADER + self.name.len() + 4
    }

    /// The query name in lower case.
    #[inline]
    pub fn lower(&self) -> &[u8] {
        self.lower.get(..self.name.len()).unwrap_or_default()
    }

    /// Maximum size of the response, in octets.
    #[inline]
    pub fn limit(&self) -> usize {
        match (self.transport, &self.edns) {
            (Transport::Tcp, _) => self.max_tcp,
            (Transport::Udp, None) => PLAIN_UDP,
            (Transport::Udp, Some(edns)) => {
                usize::from(edns.udp_size).clamp(PLAIN_UDP, self.max_udp)
            }
        }
    }
}

/// A query that owns its message. The parsed fields are kept with the message, which is therefore
/// not parsed again.
#[derive(Debug)]
pub struct OwnedQuery {
    message: Box<[u8]>,
    name_len: usize,
    options_len: usize,
    /// The fields of the query, without those that borrow from the message.
    parsed: Query<'static>,
}

impl OwnedQuery {
    /// The query, as it was parsed.
    pub fn query(&self) -> Query<'_> {
        let options = self.octets(self.parsed.options_at, self.options_len);
        Query {
            message: &self.message,
            name: self.octets(HEADER, self.name_len),
            edns: self.parsed.edns.map(|edns| edns.map_options(|_| options)),
            ..self.parsed.clone()
        }
    }

    fn octets(&self, at: usize, len: usize) -> &[u8] {
        self.message.get(at..at + len).unwrap_or_default()
    }
}

#[inline]
fn lower_name(name: &[u8]) -> [u8; MAX_NAME] {
    let mut lower = [0; MAX_NAME];
    for (to, from) in lower.iter_mut().zip(name) {
        *to = from.to_ascii_lowercase();
    }
    lower
}

/// EDNS of a query, and whether its records make the query [lax](Query::lax).
#[derive(Default)]
struct EdnsScan<'q> {
    edns: Option<Edns<&'q [u8]>>,
    /// Offset of the EDNS options in the message.
    options_at: usize,
    /// Whether the records make the query [lax](Query::lax).
    lax: bool,
}

impl<'q> EdnsScan<'q> {
    /// Scans the records after the question. The error holds the first EDNS that the scan has read,
    /// if any.
    fn run(mut records: RecordIter<'q>) -> Result<Self, Option<Edns<&'q [u8]>>> {
        let mut found = Self::default();
        // Pointers are not followed: only the OPT record matters, and its owner is the root.
        while !records.ran_out()
            && let Some(record) = records.next_unfollowed()
        {
            let record = record.map_err(|_| found.edns)?;
            if record.section != Section::Additional || record.rtype != rtype::OPT {
                continue;
            }
            // kube-dns skips an OPT record with another owner; `--strict-dns` rejects the query.
            if !record.is_of_root() {
                found.lax = true;
                continue;
            }

            let opt = Edns::from_record(&record);
            // More than one OPT record is a FORMERR (RFC 6891, section 6.1.1).
            if found.edns.is_some() || !options_are_well_formed(opt.options) {
                return Err(found.edns.or(Some(opt)));
            }
            found.edns = Some(opt);
            found.options_at = record.data_range().start;
        }

        found.lax |= records.ran_out();
        Ok(found)
    }
}

/// Whether EDNS options fill the RDATA exactly, and the data of each known option are well-formed.
fn options_are_well_formed(octets: &[u8]) -> bool {
    split_options(octets).all(|option| {
        let Some((code, option)) = option else {
            return false;
        };
        let data = option.get(OPTION_HEADER..).unwrap_or_default();
        option_is_well_formed(code, data)
    })
}

/// Size of an option's header (its code and length fields), in octets.
const OPTION_HEADER: usize = 4;

/// Whether the data of an option are well-formed. As in kube-dns, options that are not listed here
/// may have any data.
fn option_is_well_formed(code: u16, data: &[u8]) -> bool {
    const LLQ: u16 = 1;
    const UPDATE_LEASE: u16 = 2;
    const CLIENT_SUBNET: u16 = 8;
    const EXPIRE: u16 = 9;
    const TCP_KEEPALIVE: u16 = 11;

    match code {
        LLQ => data.len() >= 18,
        UPDATE_LEASE => matches!(data.len(), 4 | 8),
        CLIENT_SUBNET => client_subnet_is_well_formed(data),
        EXPIRE => data.is_empty() || data.len() >= 4,
        TCP_KEEPALIVE => matches!(data.len(), 0 | 2),
        EXTENDED_ERROR => data.len() >= 2,
        _ => true,
    }
}

/// Whether a client subnet has all its fixed fields, a known family and possible prefix lengths
/// (RFC 7871, section 6).
fn client_subnet_is_well_formed(data: &[u8]) -> bool {
    let Some(&[high, low, source, scope]) = data.first_chunk() else {
        return false;
    };
    match u16::from_be_bytes([high, low]) {
        // Family 0 has no address, so the source prefix length must be 0. `dig +subnet=0` sends
        // this family.
        0 => source == 0,
        1 => source <= 32 && scope <= 32,
        2 => source <= 128 && scope <= 128,
        _ => false,
    }
}
