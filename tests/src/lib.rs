//! Support for the cross-crate tests.

pub mod chaos;
pub mod conformance;
pub mod docs;
pub mod e2e;
pub mod lab;
pub mod manifests;
pub mod pod;
pub mod soak;
pub mod steady;
pub mod supply;
