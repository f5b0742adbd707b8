//! A DNS client: sends a query to one server, looks up the addresses of servers that are given by
//! name, and reads the files hosts(5) and resolv.conf(5).
//!
//! * [`query_server`]: one query over UDP or TCP, with a timeout, a random ID and a socket of its
//!   own. The error texts are those of Go. An error text may end with a note about ignored packets.
//! * [`query_with_tcp_retry`]: one query over UDP, and over TCP if the answer is truncated. It uses
//!   hickory-net.
//! * [`external_queries`]: the queries that test an upstream. [`DnsAnswer::is_usable`] tells
//!   whether an answer shows that the upstream works.
//! * [`chaos`]: queries of class CHAOS, about the server itself.
//! * [`resolve`]: up-to-date addresses of servers that are given by name. It uses hickory-resolver.
//! * [`hosts`] and [`resolv_conf`]: the content of these files.
//!
//! This crate does not forward queries. The crate `skydns` forwards queries, and parses messages
//! with the crate `wire`, not with hickory.

pub mod chaos;
mod exchange;
pub mod hosts;
pub mod resolv_conf;
pub mod resolve;
mod sockets;
mod tcp_retry;
mod usable;

use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use wire::mnemonic;

pub use exchange::{ExchangeError, IgnoredPackets, address_query, first_address, query_server};
pub use tcp_retry::{QueryError, query_with_tcp_retry};
pub use usable::external_queries;

/// The usual timeout of an exchange.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// An answer and its latency.
#[derive(Clone, Debug)]
pub struct DnsAnswer {
    /// The message.
    pub message: Message,
    /// Time from sending the query to receiving the answer. Over TCP, [`query_server`] also counts
    /// the time to connect.
    pub latency: Duration,
}

/// The mnemonic of a response code, as dig writes it.
pub fn rcode_name(code: ResponseCode) -> String {
    mnemonic::rcode_name(code.into())
}
