//! Checks each property with the inputs that the fuzzers have collected. Some properties are also
//! checked with random inputs.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test panics with the reason if its inputs cannot be read"
)]

use std::path::{Path, PathBuf};

/// The files with the inputs of a property, sorted by name.
fn inputs(property: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(property);
    let entries = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut inputs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    inputs
}

fn check_of(property: &str) -> properties::Property {
    let check = properties::ALL
        .iter()
        .find(|(name, _)| *name == property)
        .map(|(_, check)| *check);
    check.unwrap_or_else(|| panic!("no property {property}"))
}

fn replay(property: &str) {
    let check = check_of(property);
    let inputs = inputs(property);
    assert!(!inputs.is_empty(), "no inputs for {property}");
    for path in inputs {
        let octets = std::fs::read(&path).unwrap();
        let held = std::panic::catch_unwind(|| check(&octets));
        // The panic message of the property gives the cause, and this message names the input.
        assert!(
            held.is_ok(),
            "{property} does not hold for {}",
            path.display()
        );
    }
}

/// Checks collected messages with random damage: up to three octets are changed, up to three are
/// removed from the end, and up to three are added to the end.
#[test]
fn properties_hold_for_damaged_messages() {
    let mut random = fastrand::Rng::new();
    for property in ["query", "reply"] {
        let (check, inputs) = (check_of(property), inputs(property));
        for _ in 0..4000 {
            let mut octets = std::fs::read(random.choice(&inputs).unwrap()).unwrap();
            for _ in 0..random.usize(..4) {
                let at = random.usize(..octets.len().max(1));
                octets
                    .get_mut(at)
                    .into_iter()
                    .for_each(|octet| *octet = random.u8(..));
            }
            octets.truncate(octets.len().saturating_sub(random.usize(..4)));
            octets.extend((0..random.usize(..4)).map(|_| random.u8(..)));
            let held = std::panic::catch_unwind(|| check(&octets));
            assert!(held.is_ok(), "{property} does not hold for {octets:02x?}");
        }
    }
}

/// Checks random names with random search lists.
#[test]
fn search_holds_for_random_names() {
    let mut random = fastrand::Rng::new();
    for _ in 0..4000 {
        let mut octets: Vec<u8> = (0..13).map(|_| random.u8(..)).collect();
        let labels = (0..random.usize(1..6)).map(|_| {
            *random
                .choice(&["a", "WEB", "net", "svc", "apps", "example"])
                .unwrap()
        });
        octets.extend(labels.collect::<Vec<_>>().join(".").bytes());
        let held = std::panic::catch_unwind(|| properties::search(&octets));
        assert!(held.is_ok(), "search does not hold for {octets:02x?}");
    }
}

/// Makes a test for each property, with the name of the property.
macro_rules! tests {
    ($($property:ident)*) => {
        $(#[test]
        fn $property() {
            replay(stringify!($property));
        })*

        const TESTED: &[&str] = &[$(stringify!($property)),*];
    };
}

tests! { query search reply frames config_map probe flags snapshot_file watch feed etcd_zone transfer }

/// Checks that each property has a fuzzer, inputs, a dictionary, and a test above.
#[test]
fn every_property_has_fuzzer_inputs_dictionary_and_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let names = |directory: &str| {
        let entries = std::fs::read_dir(root.join(directory)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .unwrap()
                    .path()
                    .file_stem()
                    .unwrap()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    };
    let mut properties = properties::ALL.map(|(name, _)| name.to_owned());
    properties.sort();
    assert_eq!(names("fuzz_targets"), properties);
    assert_eq!(names("corpus"), properties);
    assert_eq!(names("dictionaries"), properties);
    for name in &properties {
        assert!(TESTED.contains(&name.as_str()), "no test for {name}");
    }
}
