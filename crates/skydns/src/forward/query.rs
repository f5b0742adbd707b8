//! Questions to upstreams and their replies.

use std::net::SocketAddr;

use crate::wire::message::Header;

const FLAG_RD: u16 = 0x0100;
const FLAG_AD: u16 = 0x0020;
const FLAG_CD: u16 = 0x0010;
const EDNS_DO: u16 = 0x8000;
const TYPE_OPT: u16 = crate::wire::message::TYPE_OPT;

/// EDNS options longer than this are not handed on, so that questions in flight stay small.
const MAX_OPTIONS: usize = 4096;

/// What carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// Streams, each message behind its length.
    Tcp,
}

impl Transport {
    /// The name in metric labels: `udp` or `tcp`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

/// The OPT record to ask with (RFC 6891), as the client sent it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EdnsRequest {
    /// The UDP payload size announced, in octets.
    pub udp_size: u16,
    /// The DO bit.
    pub do_bit: bool,
    /// The options in wire format. Those of one hop are not forwarded, and none are if they are longer than 4096 octets.
    pub options: Box<[u8]>,
}

/// One question for upstreams. Two that are equal may share one exchange.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// QNAME in uncompressed wire format, with the client's case.
    pub name: Box<[u8]>,
    /// QTYPE.
    pub qtype: u16,
    /// QCLASS.
    pub qclass: u16,
    /// RD.
    pub recursion_desired: bool,
    /// CD.
    pub checking_disabled: bool,
    /// AD.
    pub authentic_data: bool,
    /// The OPT record; without one none is sent.
    pub edns: Option<EdnsRequest>,
    /// How the client asked; a truncated reply will do for one that asked over UDP.
    pub transport: Transport,
}

impl Query {
    /// The query message with the given ID, behind room for `prefix` octets.
    pub(super) fn encode(&self, id: u16, prefix: usize) -> Vec<u8> {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let flags = flag(self.recursion_desired, FLAG_RD)
            | flag(self.authentic_data, FLAG_AD)
            | flag(self.checking_disabled, FLAG_CD);
        let mut out = vec![0; prefix];
        for word in [id, flags, 1, 0, 0, u16::from(self.edns.is_some())] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        self.append_question(&mut out);
        if let Some(edns) = &self.edns {
            edns.append(&mut out);
        }
        out
    }

    /// A message with the header `reply` and the question, for upstreams that leave it out of an error.
    pub(super) fn bare_reply(&self, reply: Header) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [reply.id, reply.flags, 1, 0, 0, 0] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        self.append_question(&mut out);
        out
    }

    fn append_question(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&self.qtype.to_be_bytes());
        out.extend_from_slice(&self.qclass.to_be_bytes());
    }
}

impl EdnsRequest {
    fn append(&self, out: &mut Vec<u8>) {
        let options: &[u8] = if self.options.len() > MAX_OPTIONS { &[] } else { &self.options };
        let length = u16::try_from(options.len()).unwrap_or_default();
        let do_bit = if self.do_bit { EDNS_DO } else { 0 };
        out.push(0); // owner: the root
        for word in [TYPE_OPT, self.udp_size, 0, do_bit, length] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(options);
    }
}

/// What an upstream replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The whole message: it parses, is a response and has the question that was asked (perhaps in another case). Its
    /// ID means nothing to the client.
    pub message: Vec<u8>,
    /// Who said so.
    pub upstream: SocketAddr,
    /// RCODE of the header.
    pub rcode: u8,
    /// TC: the message is not complete, and asking over TCP did not help.
    pub truncated: bool,
    /// ANCOUNT.
    pub answers: u16,
}
