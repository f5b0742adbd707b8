//! The whole kube-dns pod on loopback: an embedded API server, the three real binaries and a real
//! dnsmasq, connected as in the cluster.
//!
//! [`run`] starts the pod. This crate is for laptops and tests, and never runs in a cluster.

pub mod config_map;
pub mod console;
pub mod guide;
pub mod options;
pub mod pod;
pub mod ports;
pub mod programs;
pub mod status;
pub mod stop;
pub mod trace;
pub mod upstream;

mod cluster;
mod container;
mod embedded;
mod readiness;
mod run;

pub use run::run;
