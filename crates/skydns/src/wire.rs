//! DNS wire format: reads and writes names, questions, records and whole messages (RFC 1035,
//! section 4; RFC 6891).
//!
//! The module knows neither zones nor upstreams. Parsing is safe for any octets: the parser does
//! not panic, always ends, and allocates no more than the size of the message. The fast path of a
//! query ([`query`], [`writer`], [`reverse`]) does not allocate.

mod codes;
mod compression;
mod edns;
mod frames;
mod header;
mod message;
pub mod name;
mod query;
mod question;
mod rdata;
mod record;
pub mod reverse;
pub mod text;
mod writer;

pub use codes::{class, rtype};
pub(crate) use compression::{NameOffsets, POINTER_TO_QUESTION, pointer_to};
pub use dnsconfig::Transport;
pub use edns::Edns;
pub(crate) use edns::{
    EXTENDED_ERROR, OPT_LEN, OUR_UDP_SIZE, extended_error, extended_rcode, info, options,
};
pub(crate) use frames::set_length;
pub use frames::{Frames, framed};
pub use header::{HEADER, Header, flag, rcode};
pub use message::{Heading, Message};
pub use name::Name;
pub(crate) use query::OwnedQuery;
pub use query::{MAX_UDP, Malformed, PLAIN_UDP, Query};
pub use question::Question;
pub(crate) use record::append_record_body;
pub use record::{Record, Records, Section};
pub(crate) use writer::{Full, Mark, Owner, Writer, refuse};

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
