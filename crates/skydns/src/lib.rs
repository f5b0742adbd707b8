//! The DNS server: records behind a [`Backend`], the query engine, transports and forwarding.
//!
//! A transport ([`udp`], [`tcp`]) receives the octets of a query. The [`engine`] answers the query from one immutable
//! [`View`], or returns the external queries that the answer needs. [`resolve`] sends these to the upstreams and
//! calls the engine again. The crate knows no Kubernetes types.

mod answer;
pub mod ask;
pub mod backend;
mod cause;
pub mod engine;
pub mod external;
pub mod forward;
mod lane;
pub mod metrics;
pub mod own_names;
pub mod record;
pub mod resolve;
pub mod search;
mod serial;
pub mod server;
mod shares;
pub mod tap;
pub mod tcp;
pub mod top;
pub mod transfer;
pub mod udp;
pub mod wire;

pub use ask::ask;
pub use backend::zones::{Authority, FurtherZone, Zones};
pub use backend::{Backend, Entry, Lookup, Pointer, Records, StubDomain, StubDomains, View, Zone};
pub use own_names::OwnNames;
pub use record::{Host, ServiceRecord};
pub use search::Search;
pub use serial::Serials;
pub use wire::name::{self, Name};
