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

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
