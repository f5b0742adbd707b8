//! End-to-end tests of the nanny with a real dnsmasq.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the relaxation of these lints for tests does not reach the helpers of tests"
)]

mod dnsmasq {
    pub(crate) mod forward;
    mod load;
    pub(crate) mod rig;

    mod edits;
    mod faults;
    mod names;
    mod places;
    mod privileges;
    mod queries;
    mod starts;
}
