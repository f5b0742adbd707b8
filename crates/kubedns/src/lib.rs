//! Kubernetes to records to snapshot to DNS: the kubedns binary.

pub mod config;
pub mod connect;
pub mod index;
pub mod metrics;
pub mod objects;
pub mod options;
pub mod records;
pub mod snapshot;
pub mod status;
pub mod watch;
