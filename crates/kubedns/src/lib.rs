//! Kubernetes to records to snapshot to DNS: the kubedns binary.

pub mod connect;
pub mod metrics;
pub mod objects;
pub mod options;
pub mod watch;
pub mod index;
pub mod records;
pub mod snapshot;
