//! The macro benchmark: the real `kubedns` binary on a generated cluster, measured from outside.
//!
//! The embedded API server in this process ([`api`]) serves the cluster ([`cluster`]). kubedns and the servers it is
//! compared with are separate processes ([`kubedns`], [`peers`]); their CPU time and memory come from the operating
//! system, and dnsperf is the client ([`load`]). Each [`scenario`] answers one question; [`report`] shows and stores
//! the results. A real API server is measured as well if one is given ([`real`]).
//!
//! Absolute times depend on the machine and its load. The results that count are the ratios to a plain UDP echo
//! server ([`echo`]), which is measured in the same rounds as the other servers.

pub mod api;
pub mod cluster;
pub mod distribution;
pub mod echo;
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
