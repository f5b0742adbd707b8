//! End-to-end tests of the `sidecar` binary, with scripted DNS servers and a real dnsmasq.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test whose set-up fails has to end there, with the reason"
)]

mod browser;
mod dnsmasq;
mod exechealthz;
mod exposition;
mod flood;
mod healthcheck;
mod running;
mod start;
mod status;
