//! Sends one query to one DNS server and checks that the reply answers it.
//!
//! * [`ask`]: one query over UDP or TCP, with a timeout, a random ID and a socket of its own.
//! * [`ask_with_retry`]: over UDP, and over TCP when the answer was truncated.
//! * [`chaos`]: queries of class CHAOS, about the server itself.
//! * [`resolve`]: addresses of servers given by name, kept up to date.
//! * [`hosts`] and [`resolv_conf`]: the files of a resolver.
//!
//! This crate does not forward queries. The crate `skydns` forwards queries, without parsing the
//! records of messages.

pub mod chaos;
mod exchange;
pub mod hosts;
pub mod resolv_conf;
pub mod resolve;

use hickory_proto::op::ResponseCode;
use wire::mnemonic;

pub use exchange::{Answer, ExchangeError, Ignored, TIMEOUT, ask, ask_with_retry, first_address};

/// The mnemonic of a response code, as dig writes it.
pub fn rcode_name(code: ResponseCode) -> String {
    mnemonic::rcode_name(code.into())
}
