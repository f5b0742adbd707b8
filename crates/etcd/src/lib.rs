//! Zones from etcd, in the message format of SkyDNS. The keys of a zone are watched over etcd's
//! JSON gateway and kept in memory.
//!
//! * [`feed`]: lists and watches the keys of a zone, through [`client`] and [`gateway`].
//! * [`key`], [`message`]: parse keys into labels, and values into messages.
//! * [`tree`]: all messages of a zone, and the lookup of a name.
//! * [`records`]: provides the messages to the DNS server as the records of a zone.
//! * [`snapshot`]: publishes the zones to a DNS server without a Kubernetes cluster.
//! * [`metrics`]: the metrics of the zones.
//!
//! This crate uses no Kubernetes API, parses no flags, and answers no queries.

pub mod client;
pub mod feed;
pub mod gateway;
pub mod key;
pub mod message;
pub mod metrics;
pub mod records;
pub mod snapshot;
pub mod tree;

pub use client::{EtcdAccess, EtcdLogin, EtcdTlsFiles};
pub use feed::{EtcdFeed, EtcdSink};
pub use key::ZoneKeys;
pub use message::SkydnsMessage;
pub use metrics::EtcdMetrics;
pub use snapshot::{EtcdBackend, EtcdSnapshot};
pub use tree::MessageTree;
