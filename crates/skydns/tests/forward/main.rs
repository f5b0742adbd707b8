//! The forwarder against scripted upstreams on loopback.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of tests end them with a panic, as the tests themselves do"
)]

mod bounds;
mod faults;
mod order;
mod passing;
mod support;
mod trust;
