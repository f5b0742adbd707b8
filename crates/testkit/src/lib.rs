//! Tools for the tests and benchmarks of all crates. No shipped binary contains this crate.
//!
//! * [`upstream`]: a scripted DNS server on loopback that answers or misbehaves, and records
//!   queries.
//! * [`tls`]: a TLS proxy with a valid or invalid certificate, in front of a server without TLS.
//! * [`client`], [`query`]: build queries and send them over UDP, TCP or pipelined TCP.
//! * [`message`], [`dig`]: parse answers, even malformed ones, and show them as text for
//!   comparison.
//! * [`reply`], [`record`]: build answers from records in presentation format.
//! * [`name`], [`codes`], [`hex`]: convert names, numbers and octets to text and back.
//! * [`objects`]: Kubernetes objects as JSON.
//! * [`config_map`]: edits of a mounted `ConfigMap`, as a kubelet makes them.
//! * [`process`]: start a binary of this project, or another program; read its log; stop the
//!   process.
//! * [`ports`]: free ports, and a check for IPv6.
//! * [`processes`]: running processes and their resources.
//! * [`http`]: one request and its response; a server with one reply.
//! * [`kubectl`], [`etcd`]: run the real programs.
//! * [`table`]: tables of test cases.
//! * [`eventually()`]: wait for a condition without a sleep of guessed length.
//!
//! A set-up that fails panics with the reason, so that the test ends.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test whose set-up fails has to end there, with the reason"
)]

pub mod client;
pub mod codes;
pub mod config_map;
pub mod dig;
pub mod etcd;
mod eventually;
pub mod hex;
pub mod http;
pub mod kubectl;
pub mod message;
pub mod name;
pub mod objects;
pub mod ports;
pub mod process;
pub mod processes;
pub mod query;
pub mod record;
pub mod reply;
pub mod table;
pub mod tls;
pub mod upstream;

pub use eventually::{Settled, eventually};
