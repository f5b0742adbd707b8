//! The macro benchmark: the real `kubedns` binary, measured as a separate process on a generated
//! cluster.
//!
//! The embedded API server in this process ([`api`]) serves the cluster ([`cluster`]). kubedns
//! ([`kubedns`]) and the servers for comparison ([`peers`]) are separate processes. Their CPU time
//! and memory come from the operating system, and dnsperf is the client ([`load`]). A [`scenario`]
//! makes the measurements of one situation; [`report`] shows and stores the results. If
//! `BENCH_KUBECONFIG` names a real API server ([`real`]), the load that kubedns puts on that server
//! is measured, too.
//!
//! Absolute times depend on the machine and its load. So the scenario `cost` compares the CPU time
//! of each server with that of a plain UDP echo server ([`echo`]) in the same round.

pub mod api;
pub mod cluster;
pub mod distribution;
pub mod echo;
mod forwarders;
pub mod hickory;
pub mod kubedns;
pub mod load;
pub mod options;
pub mod peers;
pub mod probe;
pub mod questions;
pub mod real;
mod relay;
pub mod report;
mod run;
pub mod scenario;
pub mod setup;
mod zone;

pub use run::run;
