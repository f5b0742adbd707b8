//! The whole kube-dns pod on loopback: kubedns, a real dnsmasq under the nanny, and the sidecar,
//! connected as in the cluster. With `--alone`, the pod has no dnsmasq and no nanny. The API server
//! is embedded, or that of a real cluster.
//!
//! [`run()`] starts the pod. This crate is for laptops and tests, and never runs in a cluster.

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
