use serde_json::json;

use super::super::report::Outcome;
use super::*;

#[test]
fn services_tell_what_to_ask_for() {
    let list = json!({"items": [
        {"metadata": {"namespace": "default", "name": "kubernetes"}, "spec": {"clusterIP": "10.96.0.1"}},
        {"metadata": {"namespace": "apps", "name": "db"}, "spec": {"clusterIP": "None"}},
        {"metadata": {"namespace": "apps", "name": "elsewhere"}, "spec": {}},
    ]});
    let cluster = Cluster::of(&list);
    assert_eq!(cluster.kubernetes, Some([10, 96, 0, 1].into()));
    assert_eq!(cluster.headless, [("apps".to_owned(), "db".to_owned())]);
}

#[test]
fn a_config_map_is_judged_and_compared_with_the_one_in_force() {
    let options = <Options as clap::Parser>::parse_from(["check"]);
    let data =
        |key: &str, value: &str| RawData::from([(key.to_owned(), value.as_bytes().to_vec())]);
    let good = data("upstreamNameservers", "[\"192.0.2.1\"]");
    let version = dnsconfig::parse(&good).unwrap().version().to_string();
    let status = |version: &str| -> Status {
        let known = json!({"configuration": {"version": version}});
        serde_json::from_value(json!({"nanny": {"known": known}})).unwrap()
    };
    let (same, other) = (status(&version), status("00ff"));
    for (data, status, outcome, text) in [
        (good.clone(), None, Outcome::Passed, "map is good"),
        (good.clone(), Some(&same), Outcome::Passed, "map is good"),
        (
            good,
            Some(&other),
            Outcome::Warning,
            "map is good, but not in force",
        ),
        (
            data("upstreamNameserver", "[]"),
            None,
            Outcome::Warning,
            "map: unknown key \"upstreamNameserver\"",
        ),
        (data("stubDomains", "["), None, Outcome::Failed, "map: "),
    ] {
        let checks = judge("map", data, &options, status);
        let [check] = checks.as_slice() else {
            panic!("{checks:?}")
        };
        assert!(
            check.outcome == outcome && check.text.starts_with(text),
            "{check:?}"
        );
    }
}

#[test]
fn a_config_map_is_missing_where_the_defaults_are_in_force() {
    let defaults = Config::default().version().to_string();
    for (in_force, outcome) in [
        (Some(&*defaults), Outcome::Passed),
        (Some("00ff"), Outcome::Warning),
        (None, Outcome::Skipped),
    ] {
        assert_eq!(missing("map", in_force).outcome, outcome, "{in_force:?}");
    }
}
