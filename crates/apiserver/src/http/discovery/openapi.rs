//! `OpenAPI` v3: the parts that `kubectl` reads. If a kind's PATCH accepts `fieldValidation`,
//! `kubectl` leaves validation to the server.

use serde_json::{Map, Value, json};

use crate::kinds::{Kind, Resource};

/// `/openapi/v3`: the URL of the document of each group.
pub(super) fn index() -> Value {
    let entry = |resource: Resource| {
        let path = path(resource.kind());
        let url = json!({ "serverRelativeURL": format!("/openapi/v3/{path}") });
        (path, url)
    };
    json!({ "paths": Resource::all().map(entry).collect::<Map<_, _>>() })
}

/// The document of a group.
pub(super) fn group(group: &str) -> Option<Value> {
    let kinds: Vec<&Kind> = super::kinds(group).collect();
    if kinds.is_empty() {
        return None;
    }
    let paths: Map<String, Value> = kinds
        .iter()
        .map(|kind| (object_path(kind), patch(kind)))
        .collect();
    Some(
        json!({ "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": "v1" }, "paths": paths }),
    )
}

fn path(kind: &Kind) -> String {
    let root = if kind.group.is_empty() { "api" } else { "apis" };
    format!("{root}/{}", kind.api_version())
}

fn object_path(kind: &Kind) -> String {
    let namespace = if kind.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    format!("/{}{namespace}/{}/{{name}}", path(kind), kind.plural)
}

fn patch(kind: &Kind) -> Value {
    let parameter =
        json!({ "name": "fieldValidation", "in": "query", "schema": { "type": "string" } });
    json!({ "patch": {
        "parameters": [parameter],
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": { "group": kind.group, "version": "v1", "kind": kind.name },
    } })
}
