//! Zones from etcd, in the message format of SkyDNS: watched over etcd's JSON gateway, served from memory.
//!
//! * [`feed`]: lists and watches the keys of a zone, through [`client`] and [`gateway`].
//! * [`key`], [`message`]: keys to labels, values to messages.
//! * [`tree`]: all messages of a zone, and the lookup of a name.
//! * [`records`]: the tree as the records of a zone.
//!
//! The crate knows nothing of Kubernetes, of flags, or of the publication of records.

pub mod client;
pub mod feed;
pub mod gateway;
pub mod key;
pub mod message;
pub mod metrics;
pub mod records;
pub mod tree;

pub use client::{Access, Login, TlsFiles};
pub use feed::{Feed, Sink};
pub use key::Subtree;
pub use message::Message;
pub use metrics::Metrics;
pub use tree::Tree;
