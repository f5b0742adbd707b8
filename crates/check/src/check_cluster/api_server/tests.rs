use cluster::objects::FromApi as _;
use serde_json::json;
use testkit::table;

use super::super::report::CheckOutcome;
use super::*;

#[test]
fn kubernetes_and_headless_services_are_found() {
    let services = [
        json!({"metadata": {"namespace": "default", "name": "kubernetes"}, "spec": {"clusterIP": "10.96.0.1"}}),
        json!({"metadata": {"namespace": "apps", "name": "db"}, "spec": {"clusterIP": "None"}}),
        json!({"metadata": {"namespace": "apps", "name": "elsewhere"}, "spec": {}}),
    ];
    let services = services.map(|service| {
        let json = service.to_string();
        Service::from_api(&json).unwrap().object
    });
    let mut known = KnownServices::default();
    known.add(services.to_vec());
    assert_eq!(known.kubernetes, Some([10, 96, 0, 1].into()));
    assert_eq!(known.headless, [ObjectKey::new("apps", "db")]);
}

#[test]
fn config_map_is_checked_and_compared_with_version_in_force() {
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

/// Like the original kube-dns, kubedns uses only `data` if it reads the `ConfigMap` from the API
/// server.
#[test]
fn binary_data_is_ignored_unless_mounted() {
    for (is_mounted, keys) in [(true, &["hosts", "stubDomains"][..]), (false, &["hosts"])] {
        let map = json!({"data": {"hosts": ""}, "binaryData": {"stubDomains": "e30="}});
        let data = data_of(serde_json::from_value(map).unwrap(), is_mounted);
        assert!(data.keys().eq(keys), "{data:?}");
    }
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

/// Each row has a kind that cannot be listed, whether its watch is open, whether kubedns is synced,
/// and the outcome and the text of the check.
const FORBIDDEN_KINDS: &str = "
    services   | no  | yes | failed  | services cannot be listed
    services   | yes | yes | failed  | services can no longer be listed: after a restart, kubedns would not find them
    nodes      | no  | yes | warning | nodes cannot be listed; without them, federated names may get SERVFAIL
    nodes      | no  | no  | warning | nodes cannot be listed; without them, federated names may get SERVFAIL
    nodes      | yes | yes | warning | nodes can no longer be listed: after a restart, kubedns would not find them; without them, federated names may get SERVFAIL
    pods       | no  | yes | warning | pods cannot be listed; without them, --autopath and `kube-dns top` do not recognise clients if kubedns has --pods=node, and kubedns is not ready after a restart if it has --pods=verified
    pods       | no  | no  | failed  | pods cannot be listed
    pods       | yes | yes | failed  | pods can no longer be listed: after a restart, kubedns would not find them
    namespaces | no  | yes | failed  | namespaces cannot be listed
    configmaps | no  | yes | failed  | configmaps cannot be listed
";

#[test]
fn forbidden_kind_fails_if_needed() {
    for [label, open, synced, outcome, line] in table::rows(FORBIDDEN_KINDS) {
        let mut kinds = NEEDED_KINDS.into_iter().chain(OPTIONAL_KINDS);
        let list = ListedKind {
            kind: kinds.find(|kind| kind.label() == label).unwrap(),
            error: Some(RequestFailure::Refused("forbidden".to_owned())),
        };
        let kubedns = KubednsReport {
            synced: Some(synced == "yes"),
            watches: [(label.to_owned(), open == "yes")].into(),
            ..KubednsReport::default()
        };

        let check = check_permission(&list, &[], Some(&kubedns), Caller::Pod);
        let found = serde_json::to_value(check.outcome).unwrap();
        assert_eq!((found.as_str(), &*check.text), (Some(outcome), line));
        assert_eq!(
            check.runbook.ends_with("#not-synced"),
            outcome == "failed",
            "{check:?}"
        );
    }
}

/// `--namespaces` limits the collections of all namespaced kinds except `ConfigMap`: kubedns
/// watches a single `ConfigMap`.
#[test]
fn collections_follow_flags() {
    let path = |collection: &Collection| format!("{collection:?}");
    let paths = |flags: &[&str], kind| {
        let flags = std::iter::once(&"check").chain(flags);
        let options = <Options as clap::Parser>::parse_from(flags);
        let collections = collections(&options, kind);
        collections.iter().map(path).collect::<Vec<_>>()
    };
    let only = ["--namespaces=apps,shop"];
    for kind in [Kind::Service, Kind::Pod, Kind::ServiceImport] {
        assert_eq!(paths(&only, kind).len(), 2, "{kind}");
        assert_eq!(paths(&[], kind).len(), 1, "{kind}");
    }
    for kind in [Kind::Node, Kind::Namespace] {
        assert_eq!(paths(&only, kind), [path(&Collection::all(kind))]);
    }

    let one = Collection::one(Kind::ConfigMap, "dns", "other");
    let named = ["--config-map-namespace=dns", "--config-map=other"];
    assert_eq!(paths(&named, Kind::ConfigMap), [path(&one)]);
}
