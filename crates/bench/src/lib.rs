//! The macro benchmark: the real `kubedns` binary on a generated cluster, measured from outside.
//!
//! The cluster ([`cluster`]) is served by the embedded API server in this process ([`api`]). kubedns and the servers it
//! is compared with are processes of their own ([`kubedns`], [`peers`]), their CPU time and memory are read from the
//! operating system, and dnsperf asks ([`load`]). Each [`scenario`] answers one question; [`report`] shows
//! and keeps what was found. A real API server is measured as well where one is given ([`real`]).
//!
//! Absolute times depend on the machine and on what else it does; what counts are the ratios to the bare UDP echo that
//! is measured in turn with the others.

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
