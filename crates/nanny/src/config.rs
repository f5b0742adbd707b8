//! Configuration: what is asked for, and which servers that means.
//!
//! dnsmasq's own arguments, the `ConfigMap`, resolv.conf and the addresses of stub servers given by name become
//! [`routes`]. Nothing here knows how these reach dnsmasq.

pub mod arguments;
pub mod loops;
pub mod routes;
