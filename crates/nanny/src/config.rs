//! The configuration of dnsmasq: its settings, and the servers derived from them.
//!
//! dnsmasq's own arguments, the `ConfigMap`, resolv.conf and the addresses of stub servers given by
//! name become [`routes`]. [`crate::dnsmasq`] delivers the routes.

pub mod arguments;
pub mod loops;
pub mod routes;
