//! The inputs that the fuzzers have collected, replayed: every property still holds for all of them.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests: without its inputs a test ends with the reason"
)]

use std::path::{Path, PathBuf};

/// The inputs of a property, in the order of their names.
fn inputs(property: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(property);
    let entries =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut inputs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    inputs
}

fn replay(property: &str) {
    let check = properties::ALL.iter().find(|(name, _)| *name == property).map(|(_, check)| check);
    let check = check.unwrap_or_else(|| panic!("no property {property}"));
    let inputs = inputs(property);
    assert!(!inputs.is_empty(), "no inputs for {property}");
    for path in inputs {
        let octets = std::fs::read(&path).unwrap();
        let held = std::panic::catch_unwind(|| check(&octets));
        // The panic has said what is wrong; this says with which input.
        assert!(held.is_ok(), "{property} does not hold for {}", path.display());
    }
}

/// A test for each property, of the same name.
macro_rules! tests {
    ($($property:ident)*) => {
        $(#[test]
        fn $property() {
            replay(stringify!($property));
        })*

        const TESTED: &[&str] = &[$(stringify!($property)),*];
    };
}

tests! { query reply config_map probe flags snapshot_file watch feed }

/// Each property has a fuzzer, inputs and a test above.
#[test]
fn nothing_is_left_out() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let names = |directory: &str| {
        let entries = std::fs::read_dir(root.join(directory)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    let mut properties = properties::ALL.map(|(name, _)| name.to_owned());
    properties.sort();
    assert_eq!(names("fuzz_targets"), properties);
    assert_eq!(names("corpus"), properties);
    for name in &properties {
        assert!(TESTED.contains(&name.as_str()), "no test for {name}");
    }
}
