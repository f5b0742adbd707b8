//! Turns Kubernetes objects into DNS records: watches the API server, keeps the objects in an
//! index, and builds records from them.
//!
//! ```text
//! connect -> watch --Event--> index (the only writer) --records--> snapshot::Published
//!                               |
//!                               +--> persist: the snapshot file
//! ```
//!
//! Other crates handle DNS messages, the content of the ConfigMap, and the command `explain`.

pub mod clusterset;
pub mod connect;
pub mod domains;
pub mod index;
pub mod namespaces;
pub mod objects;
pub mod one_or_many;
pub mod persist;
pub mod records;
mod relist;
pub mod snapshot;
pub mod watch;
