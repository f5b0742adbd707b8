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
    let kinds: Vec<&Kind> = Resource::all()
        .map(Resource::kind)
        .filter(|kind| kind.group == group && kind.version == version)
        .collect();
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
    if kind.group.is_empty() {
        format!("api/{}", kind.version)
    } else {
        format!("apis/{}/{}", kind.group, kind.version)
    }
}

fn object_path(kind: &Kind) -> String {
    let namespace = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    format!("/{}{namespace}/{}/{{name}}", path(kind), kind.plural)
}

fn schema_name(kind: &Kind) -> String {
    let group = if kind.group.is_empty() { "core" } else { "discovery" };
    format!("io.k8s.api.{group}.{}.{}", kind.version, kind.kind)
}

fn group_version_kind(kind: &Kind) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
}

fn patch(kind: &Kind) -> Value {
    let parameter = |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "string" } });
    json!({
        "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
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
