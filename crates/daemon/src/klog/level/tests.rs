//! Events that `-v` and `--vmodule` allow.

use super::*;

#[test]
fn verbosity_is_decimal_number() {
    assert_eq!("2".parse::<Verbosity>().unwrap(), Verbosity(2));
    assert_eq!("-1".parse::<Verbosity>().unwrap(), Verbosity(-1));
    let error = "x".parse::<Verbosity>().unwrap_err().to_string();
    assert_eq!(error, "strconv.ParseInt: parsing \"x\": invalid syntax");
}

#[test]
fn vmodule_pattern_sets_level_of_file() {
    let modules: VmoduleLevels = "watch=6,eng*=4,?dp.rs=5".parse().unwrap();
    let cases = [
        ("watch.rs", Some(6)),
        ("engine.rs", Some(4)),
        ("eng.rs", Some(4)),
        ("udp.rs", Some(5)),
        ("dp.rs", None),
        ("watcher.rs", None),
        ("unknown", None),
    ];
    for (file, level) in cases {
        assert_eq!(modules.level_of_file(file), level, "{file}");
    }
    let levels = "".parse::<VmoduleLevels>().unwrap();
    assert_eq!(levels, VmoduleLevels::default());
    for wrong in ["watch", "=3", "watch=", "watch=x"] {
        assert!(wrong.parse::<VmoduleLevels>().is_err(), "{wrong}");
    }
}

#[test]
fn verbosity_selects_levels() {
    let from = |ours, level| least_verbosity(ours, level);
    assert_eq!(from(true, tracing::Level::INFO), i32::MIN);
    assert_eq!(from(true, tracing::Level::DEBUG), 4);
    assert_eq!(from(true, tracing::Level::TRACE), 6);
    assert_eq!(from(false, tracing::Level::WARN), i32::MIN);
    assert_eq!(from(false, tracing::Level::INFO), 5);
    assert!(is_ours("skydns::engine") && is_ours("sidecar") && !is_ours("hickory_server::server"));
}

/// A crate of the project that is missing from [`OURS`] would log only errors and warnings by
/// default.
#[test]
fn ours_has_each_project_crate_that_logs() {
    let crates = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
    for name in crates.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        let logs = !["bench", "manuals", "properties"].contains(&name.as_str());
        assert_eq!(OURS.contains(&name.as_str()), logs, "{name}");
    }
}
