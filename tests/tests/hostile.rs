//! Attacks from the network: floods, and requests that try to change something or to read secrets.
//! See docs/resilience.md and SECURITY.md.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has to end there"
)]
#![allow(
    clippy::print_stdout,
    reason = "the test runner shows the printed text if the test fails, and with --no-capture"
)]

#[path = "hostile/absent.rs"]
mod absent;
#[path = "hostile/exposure.rs"]
mod exposure;
#[path = "hostile/floods.rs"]
mod floods;
#[path = "hostile/half_open.rs"]
mod half_open;
