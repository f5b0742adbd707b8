//! DNS in octets and in text: names, questions, records and whole messages (RFC 1035, section 4;
//! RFC 6891), mnemonics of types and RCODEs, and addresses of servers.
//!
//! The crate knows neither zones nor upstreams, and opens no socket. Parsing is safe for any octets:
//! the parser does not panic, always ends, and allocates no more than the size of the message. The
//! fast path of a query ([`Query`], [`Writer`], [`reverse`]) does not allocate.

mod codes;
mod compression;
mod edns;
mod frames;
mod header;
mod message;
pub mod mnemonic;
pub mod name;
mod query;
mod question;
mod rdata;
mod record;
pub mod reverse;
pub mod rfc1123;
mod server;
mod shorten;
pub mod text;
mod transport;
mod writer;

pub use codes::{class, rtype};
pub use compression::{NameOffsets, POINTER_TO_QUESTION, pointer_to};
pub use edns::{
    EXTENDED_ERROR, Edns, OPT_LEN, OUR_UDP_SIZE, extended_error, extended_rcode, info, options,
};
pub use frames::{Frames, framed, set_length};
pub use header::{HEADER, Header, flag, rcode};
pub use message::{Heading, Message};
pub use name::Name;
pub use query::{MAX_UDP, Malformed, OwnedQuery, PLAIN_UDP, Query};
pub use question::Question;
pub use record::{Record, Records, Section, append_record_body};
pub use server::{
    AddressError, DNS_PORT, FlagAddrError, Nameserver, Protocol, ServerAddr, TLS_PORT, Upstream,
};
pub use shorten::shorten;
pub use transport::Transport;
pub use writer::{Full, Mark, Owner, SoaData, Writer, refuse};

/// Error of parsing octets that are not a DNS message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message ends in the middle of a field.
    #[error("message ends in the middle of a field, at octet {0}")]
    Short(usize),
    /// A name is longer than 255 octets, has an unknown label type, or has an invalid compression
    /// pointer.
    #[error("malformed name at octet {0}")]
    BadName(usize),
    /// The data of a record do not match the record type.
    #[error("malformed data of a record of type {rtype} at octet {at}")]
    BadData {
        /// TYPE of the record.
        rtype: u16,
        /// Offset of the data.
        at: usize,
    },
    /// The message has more than one question.
    #[error("{0} questions in one message")]
    ManyQuestions(u16),
}

/// The 16-bit word at `at`.
fn u16_at(bytes: &[u8], at: usize) -> Result<u16, MessageError> {
    let pair = bytes.get(at..).and_then(<[u8]>::first_chunk);
    pair.copied()
        .map(u16::from_be_bytes)
        .ok_or(MessageError::Short(at))
}
