//! The DNS server: records behind a [`Backend`], the query engine, transports and forwarding.
//!
//! ```text
//! transport    udp, tcp                  octets in, octets out
//!    |
//! Resolver::attempt_query                makes an Ask: the parsed query, its client and the view
//!    |-- authority  try_authority        names of our zones, hosts and aliases (engine, answer)
//!    |-- search     try_search           the names of a pod's search list, one after the other
//!    |-- cache      try_cache            external names that an upstream has answered before
//!    |
//!    v  AnswerAttempt: answered, a WaitingQuery, a Transfer, or Ignored
//! admission    admit                     a place for a waiting query; all clients get fair shares
//!    |
//! Resolver::resolve_waiting              always an answer
//!    |-- search     complete_search      the same list; a name may need an upstream's answer
//!    |-- forwarding forward_query        upstreams (forward)
//!    |-- expensive  queue_expensive      answers that take much work, one at a time
//! ```
//!
//! The engine answers a query from one immutable [`View`], without I/O. If it cannot, it returns
//! the reason: for example, the query must be forwarded. The crate knows no Kubernetes types.

mod answer;
pub mod ask;
pub mod backend;
mod cause;
mod client_rates;
mod client_shares;
mod client_warnings;
mod domain_map;
pub mod engine;
mod expensive_queue;
pub mod external;
pub mod external_rules;
pub mod forward;
mod inline_tasks;
pub mod metrics;
pub mod own_names;
pub mod record;
pub mod resolve;
pub mod search;
mod serial;
pub mod server;
pub mod tap;
pub mod tcp;
pub mod transfer;
pub mod udp;

pub use ask::ask;
pub use backend::published::PublishedView;
pub use backend::zones::{Authority, FurtherZone, Zones};
pub use backend::{
    Backend, Entry, EntryVisit, Lookup, Pointer, Records, StubDomain, StubDomains, View, Zone,
};
pub use client_rates::ClientRate;
pub use external_rules::ExternalRules;
pub use own_names::OwnNames;
pub use record::{Host, ServiceRecord};
pub use search::Search;
pub use serial::ZoneSerials;
