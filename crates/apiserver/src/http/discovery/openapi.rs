//! `OpenAPI` v3, as little as `kubectl` needs: it looks whether a kind's PATCH takes `fieldValidation`, and then leaves
//! validation to the server. Schemas say no more than that an object is an object.

use serde_json::{Map, Value, json};

use crate::kinds::{Kind, Resource};

/// `/openapi/v3`: where the document of each group and version is.
pub(super) fn index() -> Value {
    let mut paths = Map::new();
    for resource in Resource::all() {
        let path = path(resource.kind());
        let url = format!("/openapi/v3/{path}");
        paths.insert(path, json!({ "serverRelativeURL": url }));
    }
    json!({ "paths": paths })
}

/// The document of a group and version.
pub(super) fn group(group: &str, version: &str) -> Option<Value> {
    let kinds: Vec<&Kind> = super::kinds(group, version).collect();
    if kinds.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for kind in kinds {
        paths.insert(object_path(kind), json!({ "patch": patch(kind) }));
        schemas.insert(schema_name(kind), schema(kind));
    }
    Some(json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": super::GIT_VERSION },
        "paths": paths, "components": { "schemas": schemas },
    }))
}

fn path(kind: &Kind) -> String {
    let root = if kind.group.is_empty() { "api" } else { "apis" };
    format!("{root}/{}", kind.api_version())
}

fn object_path(kind: &Kind) -> String {
    let namespace = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    format!("/{}{namespace}/{}/{{name}}", path(kind), kind.plural)
}

fn schema_name(kind: &Kind) -> String {
    let group = if kind.group.is_empty() { "core" } else { "discovery" };
    format!("io.k8s.api.{group}.v1.{}", kind.name)
}

fn group_version_kind(kind: &Kind) -> Value {
    json!({ "group": kind.group, "version": "v1", "kind": kind.name })
}

fn patch(kind: &Kind) -> Value {
    let parameter = json!({ "name": "fieldValidation", "in": "query", "schema": { "type": "string" } });
    json!({
        "parameters": [parameter],
        "responses": { "200": { "description": "OK" } },
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": group_version_kind(kind),
    })
}

fn schema(kind: &Kind) -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-group-version-kind": [group_version_kind(kind)],
    })
}
