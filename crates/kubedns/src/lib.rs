//! kubedns: makes records from Kubernetes objects, publishes the records as snapshots, and serves
//! them over DNS.

mod command_line;
pub mod config;
mod descriptors;
pub mod etcd;
mod forget;
pub mod index_task;
pub mod loops;
pub mod metrics;
pub mod options;
mod run;
pub mod status;
mod tap;
pub mod udp_queues;
mod upstream_state;

pub use command_line::command_line;
pub use run::run;
