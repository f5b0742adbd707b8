//! Tools for the tests of all crates; nothing of it is part of a shipped binary.
//!
//! * [`upstream`]: a scripted DNS server on loopback that answers, misbehaves, counts and remembers.
//! * [`tls`]: TLS in front of it, with good certificates and bad ones.
//! * [`client`], [`query`]: build questions and ask them over UDP, TCP or pipelined TCP.
//! * [`message`], [`dig`]: read any answer, even a broken one, and show it as text that can be compared.
//! * [`reply`], [`record`]: write answers from records in presentation format.
//! * [`objects`]: Kubernetes objects as JSON.
//! * [`config_map`]: a mounted `ConfigMap`, edited as a kubelet does.
//! * [`process`], [`ports`]: start one of our binaries, read its log, end it.
//! * [`processes`]: which processes run and what they use.
//! * [`http`]: one request and its response.
//! * [`kubectl`]: the real one.
//! * [`etcd`]: a real one.
//! * [`eventually`]: wait for a condition without sleeping for a guessed time.
//!
//! A broken set-up ends the test at once with a panic that says what is wrong: that is what a test wants.

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
