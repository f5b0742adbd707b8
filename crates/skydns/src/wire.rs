//! DNS in octets: names, questions, records and whole messages, read and written (RFC 1035, section 4; RFC 6891).
//!
//! Nothing here knows zones, records of ours or upstreams. What reads somebody else's octets trusts none of them, and what
//! is on the way of a query allocates nothing.

pub mod message;
pub mod name;
pub mod query;
pub(crate) mod reverse;
pub(crate) mod writer;
