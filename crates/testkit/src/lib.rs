//! Tools for the tests of all crates; no part of a shipped binary.
//!
//! * [`upstream`]: a scripted DNS server on loopback that answers, misbehaves, counts and remembers.
//! * [`tls`]: TLS in front of it, with good certificates and bad ones.
//! * [`client`], [`query`]: build queries and send them over UDP, TCP or pipelined TCP.
//! * [`message`], [`dig`]: parse any answer, even a malformed one, and show it as text that can be compared.
//! * [`reply`], [`record`]: build answers from records in presentation format.
//! * [`objects`]: Kubernetes objects as JSON.
//! * [`config_map`]: edits of a mounted `ConfigMap`, as a kubelet makes them.
//! * [`process`], [`ports`]: start one of our binaries, read its log, end it.
//! * [`processes`]: running processes and their resources.
//! * [`http`]: one request and its response.
//! * [`kubectl`], [`etcd`]: the real programs.
//! * [`eventually`]: wait for a condition without a guessed sleep.
//!
//! A failing set-up panics with the reason, which ends the test.

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
pub mod tls;
pub mod upstream;

pub use eventually::{Settled, eventually};
