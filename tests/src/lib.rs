//! Support for the cross-crate tests.

pub mod conformance;
pub mod docs;
pub mod e2e;
pub mod lab;
pub mod manifests;
pub mod pod;
pub mod supply;
