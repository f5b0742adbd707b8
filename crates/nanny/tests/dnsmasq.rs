//! End-to-end tests of the nanny with a real dnsmasq.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy.toml allows these only in test functions, not in their helpers"
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
