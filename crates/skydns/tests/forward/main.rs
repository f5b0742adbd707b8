//! Tests of the forwarder with test upstreams on loopback.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests may panic, as the tests themselves do"
)]

mod aliases;
mod bounds;
mod cache;
mod clock;
mod faults;
#[path = "../support/fixed.rs"]
#[allow(dead_code, reason = "only other tests use some of these helpers")]
mod fixed;
mod idle;
mod one_key;
mod order;
mod passing;
mod refusals;
mod server;
mod stale;
mod streams;
mod support;
mod tls;
mod trust;
