//! Kubernetes to records: the API server is watched, objects are kept in an index, and records are made of them.
//!
//! ```text
//! connect -> watch --Event--> index (the one writer) --records--> snapshot::Published
//!                               |
//!                               +--> persist: the snapshot file
//! ```
//!
//! DNS messages, the configuration and explanations are not known here.

pub mod clusterset;
pub mod connect;
pub mod few;
pub mod index;
mod listing;
pub mod objects;
pub mod persist;
pub mod records;
pub mod scope;
pub mod snapshot;
pub mod watch;
