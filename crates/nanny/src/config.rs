//! Configuration: the settings, and the servers that follow from them.
//!
//! dnsmasq's own arguments, the `ConfigMap`, resolv.conf and the addresses of stub servers given by name become
//! [`routes`]. Delivering routes to dnsmasq is not done here.

pub mod arguments;
pub mod loops;
pub mod routes;
