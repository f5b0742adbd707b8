//! The DNS server: records behind a [`Backend`], the query engine, transports and forwarding.
//!
//! The way of a query: a transport ([`udp`], [`tcp`]) receives its bytes, the [`engine`] answers from one immutable
//! [`View`] or says what it needs from outside, [`resolve`] gets that from the upstreams and lets the engine
//! answer again. No Kubernetes type is known here.

mod answer;
pub mod backend;
pub mod engine;
pub mod forward;
mod lane;
mod message;
pub mod metrics;
pub mod name;
pub mod outside;
pub mod query;
pub mod record;
pub mod resolve;
mod reverse;
pub mod server;
mod shares;
pub mod tcp;
pub mod udp;

pub use backend::{Backend, Entry, Lookup, Pointer, StubDomain, StubDomains, View, Zone};
pub use name::Name;
pub use record::{Host, ServiceRecord};
