//! Lists of resources, one group at a time or all at once.

use serde_json::{Value, json};

use crate::http::reply::Answer;
use crate::kinds::{Kind, Resource};

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The resources of a group and version.
pub(super) fn list(group: &str, version: &str) -> Option<Value> {
    let kinds = kinds(group);
    let api_version = kinds.first().filter(|kind| kind.version == version)?.api_version();
    let mut resources = Vec::new();
    for kind in kinds {
        let mut entry = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": VERBS,
        });
        if !kind.short_names.is_empty() {
            entry["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            entry["categories"] = json!(kind.categories);
        }
        resources.push(entry);
        if kind.has_status {
            resources.push(json!({
                "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": kind.kind, "verbs": STATUS_VERBS,
            }));
        }
    }
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources,
    }))
}

/// All resources of the core group (`root` empty) or of the others, in one document.
pub(super) fn aggregated(root: &str) -> Answer {
    let mut groups: Vec<&str> =
        Resource::all().map(|r| r.kind().group).filter(|group| group.is_empty() == root.is_empty()).collect();
    groups.dedup();
    let items: Vec<Value> = groups.into_iter().map(aggregated_group).collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    Answer::value(200, &document)
        .of_type("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
}

fn aggregated_group(group: &str) -> Value {
    let resources: Vec<Value> = kinds(group).into_iter().map(aggregated_resource).collect();
    let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
    json!({
        "metadata": metadata,
        "versions": [{ "version": "v1", "resources": resources, "freshness": "Current" }],
    })
}

fn aggregated_resource(kind: &Kind) -> Value {
    let response_kind = json!({ "group": kind.group, "version": kind.version, "kind": kind.kind });
    let mut entry = json!({
        "resource": kind.plural, "singularResource": kind.singular, "responseKind": response_kind,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }, "verbs": VERBS,
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    if kind.has_status {
        entry["subresources"] =
            json!([{ "subresource": "status", "responseKind": response_kind, "verbs": STATUS_VERBS }]);
    }
    entry
}

fn kinds(group: &str) -> Vec<&'static Kind> {
    Resource::all().map(Resource::kind).filter(|kind| kind.group == group).collect()
}
