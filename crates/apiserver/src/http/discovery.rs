//! Discovery documents: the parts that `kubectl` reads.

mod openapi;

use serde_json::{Value, json};

use crate::kinds::{Kind, Resource};

/// The document at a path.
pub(super) fn document(parts: &[&str]) -> Option<Value> {
    match *parts {
        ["version"] => Some(json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.0" })),
        ["api"] => Some(json!({ "kind": "APIVersions", "versions": ["v1"] })),
        ["apis"] => Some(groups()),
        ["api", "v1"] => resources(""),
        ["apis", group, "v1"] => resources(group),
        ["openapi", "v3"] => Some(openapi::index()),
        ["openapi", "v3", "api", "v1"] => openapi::group(""),
        ["openapi", "v3", "apis", group, "v1"] => openapi::group(group),
        _ => None,
    }
}

/// The API groups at `/apis`. As on a real server, the core group is missing. The group of
/// `ServiceImport` is also missing, so `kubectl get serviceimports` fails.
fn groups() -> Value {
    let version = json!({ "groupVersion": "discovery.k8s.io/v1", "version": "v1" });
    let group =
        json!({ "name": "discovery.k8s.io", "versions": [version], "preferredVersion": version });
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] })
}

/// The resources of a group.
fn resources(group: &str) -> Option<Value> {
    const VERBS: [&str; 7] = [
        "create", "delete", "get", "list", "patch", "update", "watch",
    ];
    let kinds: Vec<&Kind> = kinds(group).collect();
    let api_version = kinds.first()?.api_version();
    let resource = |kind: &&Kind| {
        let short_names: Vec<&str> = kind.short_name.into_iter().collect();
        json!({
            "name": kind.plural, "singularName": kind.name.to_lowercase(), "namespaced": kind.namespaced,
            "kind": kind.name, "verbs": VERBS, "shortNames": short_names,
        })
    };
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version,
        "resources": kinds.iter().map(resource).collect::<Vec<_>>(),
    }))
}

fn kinds(group: &str) -> impl Iterator<Item = &'static Kind> {
    Resource::all()
        .map(Resource::kind)
        .filter(move |kind| kind.group == group)
}
