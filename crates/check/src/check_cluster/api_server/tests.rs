use serde_json::json;

use super::super::report::CheckOutcome;
use super::*;

#[test]
fn headless_services_are_told_by_cluster_ip() {
    let list = json!({"items": [
        {"metadata": {"namespace": "default", "name": "kubernetes"}, "spec": {"clusterIP": "10.96.0.1"}},
        {"metadata": {"namespace": "apps", "name": "db"}, "spec": {"clusterIP": "None"}},
        {"metadata": {"namespace": "apps", "name": "elsewhere"}, "spec": {}},
    ]});
    let list: List<Service> = serde_json::from_value(list).unwrap();
    let known = KnownServices::among(list.items);
    assert_eq!(known.kubernetes, Some([10, 96, 0, 1].into()));

    let db = HeadlessService {
        namespace: "apps".to_owned(),
        name: "db".to_owned(),
    };
    assert_eq!(known.headless, [db]);
}

#[test]
fn config_map_is_compared_with_version_in_force() {
    let options = <Options as clap::Parser>::parse_from(["check"]);
    let data =
        |key: &str, value: &str| RawData::from([(key.to_owned(), value.as_bytes().to_vec())]);
    let good = data("upstreamNameservers", "[\"192.0.2.1\"]");
    let version = dnsconfig::parse(&good).unwrap().version().to_string();
    let misspelt = data("upstreamNameserver", "[]");
    let unknown = "map: unknown key \"upstreamNameserver\"";
    let stale = "map is good, but not in force";
    let in_force = Some(version.as_str());
    for (data, in_force, outcome, text) in [
        (good.clone(), None, CheckOutcome::Passed, "map is good"),
        (good.clone(), in_force, CheckOutcome::Passed, "map is good"),
        (good, Some("00ff"), CheckOutcome::Warning, stale),
        (misspelt.clone(), None, CheckOutcome::Warning, unknown),
        (
            data("stubDomains", "["),
            None,
            CheckOutcome::Failed,
            "map: ",
        ),
    ] {
        let checks = check_config("map", data, &options, in_force);
        let [check] = checks.as_slice() else {
            panic!("{checks:?}")
        };
        assert!(
            check.outcome == outcome && check.text.starts_with(text),
            "{check:?}"
        );
    }

    let checks = check_config("map", misspelt, &options, Some("00ff"));
    let texts: Vec<&str> = checks.iter().map(|check| check.text.as_str()).collect();
    assert!(
        texts[0].starts_with(unknown) && texts[1].starts_with("map is not in force"),
        "{texts:?}"
    );
}

#[test]
fn missing_config_map_needs_defaults_in_force() {
    let defaults = Config::default().version().to_string();
    for (in_force, outcome) in [
        (Some(&*defaults), CheckOutcome::Passed),
        (Some("00ff"), CheckOutcome::Warning),
        (None, CheckOutcome::Skipped),
    ] {
        let check = check_defaults("map", in_force);
        assert_eq!(check.outcome, outcome, "{in_force:?}");
    }
}
