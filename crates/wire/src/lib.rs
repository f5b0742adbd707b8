//! Parses and writes names, questions, records and whole messages of DNS (RFC 1035, section 4;
//! RFC 6891). The crate also writes types, RCODEs and record data as text, converts addresses to
//! reverse names and back, and checks names by the rules of Kubernetes. It has types for server
//! addresses, query filters, and rankings of clients and names by number of queries.
//!
//! The crate has no zones and opens no sockets. Parsing is safe for any octets: the parser does not
//! panic, always ends, and allocates no more than the size of the message. The fast path of a query
//! ([`Query`], [`ResponseWriter`], [`reverse::address_of_name`]) does not allocate.

mod codes;
mod compression;
mod edns;
mod frames;
mod header;
mod message;
pub mod mnemonic;
pub mod name;
mod query;
pub mod query_filter;
mod question;
mod rdata;
mod record;
pub mod reverse;
pub mod rfc1123;
mod server;
mod shorten;
pub mod text;
pub mod top;
mod transport;
mod writer;

pub use codes::{class, rtype};
pub use compression::{CompressedRecord, NameOffsets, POINTER_TO_QUESTION, pointer_to};
pub use edns::{
    EXTENDED_ERROR, Edns, OPT_LEN, OUR_UDP_SIZE, extended_error, extended_rcode, info,
    split_options,
};
pub use frames::{FrameBuffer, frame_message, set_frame_length};
pub use header::{HEADER, Header, flag, rcode};
pub use message::{Message, MessageHeading};
pub use name::Name;
pub use query::{MAX_UDP, OwnedQuery, PLAIN_UDP, Query, QueryError};
pub use question::Question;
pub use record::{Record, RecordBody, RecordIter, Section};
pub use server::{
    AddressError, DNS_PORT, FlagAddrError, Nameserver, ServerAddr, TLS_PORT, Upstream,
    UpstreamProtocol,
};
pub use shorten::shorten;
pub use transport::Transport;
pub use writer::{
    ErrorResponse, MessageFull, NameForm, RecordHead, ResponseWriter, SoaData, WriterMark,
};

/// The reason why octets cannot be parsed as a DNS message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The message ends before the end of a field. The number is the offset of the field.
    #[error("message ends before the end of the field at octet {0}")]
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
    #[error("message has {0} questions, but at most one is accepted")]
    ManyQuestions(u16),
}

/// The 16-bit word at `at`.
fn u16_at(bytes: &[u8], at: usize) -> Result<u16, WireError> {
    match bytes.get(at..).and_then(<[u8]>::first_chunk) {
        Some(pair) => Ok(u16::from_be_bytes(*pair)),
        None => Err(WireError::Short(at)),
    }
}
