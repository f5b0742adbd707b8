//! Support for the cross-crate tests.
