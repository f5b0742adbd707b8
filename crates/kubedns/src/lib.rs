//! Kubernetes to records to snapshot to DNS: the kubedns binary.

pub mod config;
pub mod connect;
mod descriptors;
pub mod drops;
pub mod explain;
pub mod few;
pub mod index;
pub mod loops;
pub mod metrics;
pub mod objects;
pub mod options;
pub mod persist;
pub mod records;
mod run;
pub mod snapshot;
pub mod status;
pub mod sync;
pub mod watch;

pub use run::run;
