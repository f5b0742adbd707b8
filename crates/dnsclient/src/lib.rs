//! Asks one DNS server one question, and checks that what comes back is the answer.
//!
//! * [`ask`]: over UDP or TCP, with a bound in time, a random ID and a port of its own.
//! * [`ask_with_retry`]: over UDP, and over TCP when the answer did not fit.
//! * [`chaos`]: questions about the server itself.
//! * [`resolve`]: names of servers, looked up again and again.
//! * [`hosts`]: the hosts file.
//!
//! Forwarding is not done here: `skydns` has its own way, which hands octets on.

pub mod chaos;
mod exchange;
pub mod hosts;
pub mod resolve;

use hickory_proto::op::ResponseCode;

pub use dnsconfig::Transport;
pub use exchange::{Answer, ExchangeError, Ignored, TIMEOUT, ask, ask_with_retry};

/// A response code as dig writes it.
pub fn rcode_name(code: ResponseCode) -> String {
    match code {
        ResponseCode::NoError => "NOERROR".to_owned(),
        ResponseCode::FormErr => "FORMERR".to_owned(),
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        ResponseCode::NXDomain => "NXDOMAIN".to_owned(),
        ResponseCode::NotImp => "NOTIMP".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        other => format!("RCODE{}", u16::from(other)),
    }
}
