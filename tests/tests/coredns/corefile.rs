//! Checks the options of the plugin `kubernetes` that `kube-dns check config --corefile` writes for
//! the flags of a scenario. They must be the options with which the answers of `CoreDNS` were
//! recorded.

use std::ffi::OsString;
use std::path::Path;

use crate::scenario::Scenario;

/// The zones of a scenario that names no zones.
const ZONES: &str = "cluster.local in-addr.arpa ip6.arpa";

#[test]
fn corefile_has_options_of_recordings() {
    let empty = tempfile::tempdir().expect("a temporary directory must be made");
    let mut compared = 0;
    for scenario in Scenario::all() {
        // These cases come from CoreDNS' own tests. Their options may differ from the flags.
        if scenario.name.starts_with("cases-") {
            continue;
        }
        let mut expected = scenario.plugin_options.clone();
        // A recording whose options have no `ttl` was made with a TTL of 30. No recording was made
        // with `fallthrough`. The command adds `fallthrough`, because kubedns forwards unknown
        // reverse names.
        if !expected.iter().any(|option| option.starts_with("ttl ")) {
            expected.push("ttl 30".to_owned());
        }
        expected.push("fallthrough in-addr.arpa ip6.arpa".to_owned());
        expected.sort();

        let zones = scenario.zones.as_deref().unwrap_or(ZONES);
        let mut written = kubernetes_options(&corefile(&scenario.flags, empty.path()), zones);
        written.sort();
        assert_eq!(written, expected, "{}", scenario.name);
        compared += 1;
    }
    assert!(compared > 5, "only {compared} recordings were compared");
}

/// The text that the command writes for these flags and the `ConfigMap` in a directory.
pub(crate) fn corefile(flags: &[String], config_map: &Path) -> String {
    let words = [
        OsString::from("config"),
        "--corefile".into(),
        format!("--kubedns-args={}", flags.join(" ")).into(),
        config_map.into(),
    ];
    let exit = check::command(words);
    assert_eq!(exit.stderr, "");
    exit.stdout
}

/// The options of the plugin `kubernetes`, one line each.
fn kubernetes_options(corefile: &str, zones: &str) -> Vec<String> {
    let head = format!("kubernetes {zones} {{");
    let lines = corefile.lines().map(str::trim);
    let options = lines.skip_while(|line| *line != head).skip(1);
    options
        .take_while(|line| *line != "}")
        .map(str::to_owned)
        .collect()
}
