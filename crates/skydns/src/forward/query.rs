//! Queries to upstreams.
//!
//! A query to an upstream is not a copy of the client's query: the name is in lower case, the UDP
//! size is ours, and the presence of an OPT record depends on the upstream rather than on the
//! client. Otherwise clients could cause several queries at once for one entry of the cache, and a
//! forged reply could match any of these queries.

use wire::{Edns, HEADER, Header, OPT_LEN, Question, class, flag};

use super::options;

/// Header flags of a client's query that are forwarded.
const FORWARDED_FLAGS: u16 = flag::RD | flag::AD | flag::CD;

/// Code of the EDNS option Padding (RFC 7830).
const PADDING: u16 = 12;
/// The length of a padded query is a multiple of this number of octets.
const PADDED_TO: usize = 128;

/// One query for upstreams. Clients share the reply if their queries differ only in the ID, in
/// upper and lower case of the name, in the transport, in the UDP size, in hop-by-hop options, or
/// in whether there is an OPT record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamQuery {
    /// QNAME in uncompressed wire format, in lower case.
    pub(super) name: Box<[u8]>,
    pub(super) kind: QueryKind,
    /// EDNS options without hop-by-hop options. If the other options are longer than 4096 octets,
    /// all options are left out.
    pub(super) options: Box<[u8]>,
}

/// Everything that a reply depends on, except the name, the EDNS options and the upstreams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct QueryKind {
    pub(super) qtype: u16,
    pub(super) qclass: u16,
    /// RD, AD and CD, at their positions in the header.
    pub(super) flags: u16,
    pub(super) dnssec_ok: bool,
}

impl QueryKind {
    pub(super) fn of_client(query: &wire::Query<'_>) -> Self {
        Self {
            qtype: query.qtype,
            qclass: query.qclass,
            flags: query.header.flags & FORWARDED_FLAGS,
            dnssec_ok: query.edns.is_some_and(|edns| edns.dnssec_ok),
        }
    }
}

impl UpstreamQuery {
    /// Creates a query as a stub resolver sends it: class IN, with RD, without DO. `name` is in
    /// uncompressed wire format.
    pub fn new(name: impl AsRef<[u8]>, qtype: u16) -> Self {
        let kind = QueryKind {
            qtype,
            qclass: class::IN,
            flags: flag::RD,
            dnssec_ok: false,
        };
        Self {
            name: name.as_ref().to_ascii_lowercase().into(),
            kind,
            options: Box::default(),
        }
    }

    /// Creates the query that is sent on behalf of a client.
    pub fn of_client(query: &wire::Query<'_>) -> Self {
        let options = query
            .edns
            .map(|edns| options::forwarded_options(edns.options))
            .unwrap_or_default();
        Self {
            name: query.lower().into(),
            kind: QueryKind::of_client(query),
            options: options.into(),
        }
    }

    /// QNAME in uncompressed wire format, in lower case.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The question section.
    pub(super) fn question(&self) -> Question<'_> {
        Question {
            name: &self.name,
            qtype: self.kind.qtype,
            qclass: self.kind.qclass,
        }
    }

    /// The query message. Without `edns`, it has no OPT record.
    pub(super) fn encode(&self, id: u16, edns: bool) -> Vec<u8> {
        self.encode_with(id, edns.then_some(&*self.options))
    }

    /// The query message with ID 0 and an OPT record, padded to a multiple of 128 octets (RFC 8467,
    /// section 4.1). Padding hides the length of the name.
    pub(super) fn encode_padded(&self) -> Vec<u8> {
        // The header of the option Padding has two 16-bit numbers: the code and the length.
        let unpadded = self.length_with(self.options.len() + size_of::<[u16; 2]>());
        let padding = unpadded.next_multiple_of(PADDED_TO) - unpadded;

        let header = [PADDING, u16::try_from(padding).unwrap_or_default()].map(u16::to_be_bytes);
        let options = [&*self.options, header.as_flattened(), &vec![0; padding]].concat();
        self.encode_with(0, Some(&options))
    }

    fn encode_with(&self, id: u16, options: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.length_with(options.map_or(0, <[u8]>::len)));
        let header = Header {
            id,
            flags: self.kind.flags,
            counts: [1, 0, 0, u16::from(options.is_some())],
        };
        out.extend_from_slice(&header.octets());
        self.question().append(&mut out);

        // The UDP size is ours, whatever the client can receive.
        if let Some(options) = options {
            let ours = Edns::ours(self.kind.dnssec_ok);
            Edns { options, ..ours }.append(0, &mut out);
        }
        out
    }

    /// Length of the query message with an OPT record that has `options` octets of options.
    fn length_with(&self, options: usize) -> usize {
        HEADER + self.name.len() + size_of::<[u16; 2]>() + OPT_LEN + options
    }

    /// A reply message without records: the header `reply` and the question.
    pub(super) fn bare_reply(&self, reply: Header) -> Vec<u8> {
        let header = Header {
            counts: [1, 0, 0, 0],
            ..reply
        };
        let mut out = header.octets().to_vec();
        self.question().append(&mut out);
        out
    }
}
