//! Queries to upstreams and their replies.

use dnsconfig::Upstream;

use crate::wire::{Edns, Header, Question, Transport, class, flag};

/// Header flags of a client's query that are forwarded.
pub(crate) const FORWARDED_FLAGS: u16 = flag::RD | flag::AD | flag::CD;

/// Code of the EDNS option Padding (RFC 7830).
const PADDING: u16 = 12;
/// Padded queries are a multiple of this length, in octets.
const PADDED_TO: usize = 128;

/// One query for upstreams. Callers with equal queries may share one reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// QNAME in uncompressed wire format, with the client's case.
    pub name: Box<[u8]>,
    /// QTYPE.
    pub qtype: u16,
    /// QCLASS.
    pub qclass: u16,
    /// RD, AD and CD, at their positions in the header.
    pub flags: u16,
    /// The OPT record to send, if any. Hop-by-hop options are left out. If the other options are longer than 4096
    /// octets, all options are left out.
    pub edns: Option<Edns<Box<[u8]>>>,
    /// Transport of the client. A truncated reply is acceptable for a client over UDP.
    pub transport: Transport,
}

impl Query {
    /// Creates a query as a stub resolver sends it over UDP: class IN, with RD, without EDNS.
    pub fn new(name: impl Into<Box<[u8]>>, qtype: u16) -> Self {
        let (qclass, flags, transport) = (class::IN, flag::RD, Transport::Udp);
        Self { name: name.into(), qtype, qclass, flags, edns: None, transport }
    }

    /// The question section.
    pub(super) fn question(&self) -> Question<'_> {
        Question { name: &self.name, qtype: self.qtype, qclass: self.qclass }
    }

    pub(crate) fn encode(&self, id: u16) -> Vec<u8> {
        let counts = [1, 0, 0, u16::from(self.edns.is_some())];
        let mut out = Header { id, flags: self.flags, counts }.octets().to_vec();
        self.question().append(&mut out);
        if let Some(edns) = &self.edns {
            edns.append(0, &mut out);
        }
        out
    }

    /// The query message with ID 0 and an OPT record, padded to a multiple of 128 octets (RFC 8467, section 4.1).
    /// Padding hides the length of the name.
    pub(super) fn encode_padded(&self) -> Vec<u8> {
        let edns = self.edns.as_ref().map_or_else(|| Edns::ours(false), Edns::borrowed);
        let with = |options: Vec<u8>| Self { edns: Some(edns.map(|_| options.into())), ..self.clone() };
        let header =
            |length: usize| [PADDING, u16::try_from(length).unwrap_or_default()].map(u16::to_be_bytes);
        let length = with([edns.options, header(0).as_flattened()].concat()).encode(0).len();
        let padding = length.next_multiple_of(PADDED_TO) - length;
        with([edns.options, header(padding).as_flattened(), &vec![0; padding]].concat()).encode(0)
    }

    /// A reply message without records: the header `reply` and the question.
    pub(super) fn bare_reply(&self, reply: Header) -> Vec<u8> {
        let mut out = Header { counts: [1, 0, 0, 0], ..reply }.octets().to_vec();
        self.question().append(&mut out);
        out
    }
}

/// Reply of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The whole message: a well-formed response to the query. The question may differ in upper and lower case, and
    /// the ID is not the client's.
    pub message: Vec<u8>,
    /// The upstream that replied.
    pub upstream: Upstream,
    /// RCODE of the header.
    pub rcode: u16,
    /// Whether TC is set: the message is incomplete, and a retry over TCP did not help.
    pub truncated: bool,
    /// ANCOUNT.
    pub answers: u16,
}
