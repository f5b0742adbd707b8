//! Documents about the API itself, as far as `kubectl` reads them.

mod openapi;

use serde_json::{Value, json};

use super::Request;
use super::path::Document;
use super::reply::Answer;
use crate::kinds::{Kind, Resource};

/// The version of Kubernetes this server plays.
const MINOR: &str = "36";
const GIT_VERSION: &str = "v1.36.0";

/// Serves a document, or 404.
pub(super) fn serve(document: &Document, request: &Request) -> Answer {
    let value = match document {
        Document::Version => Some(version()),
        Document::CoreVersions => Some(core_versions(request)),
        Document::Groups => Some(groups()),
        Document::Resources { group, version } => resources(group, version),
        Document::OpenApi => Some(openapi::index()),
        Document::OpenApiGroup { group, version } => openapi::group(group, version),
    };
    value.map_or_else(Answer::nothing, |value| Answer::value(200, &value))
}

fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR, "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": concat!("linux/", "amd64"),
    })
}

fn core_versions(request: &Request) -> Value {
    let host = request.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1");
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": host }],
    })
}

/// The groups besides the core one.
fn groups() -> Value {
    let version = json!({ "groupVersion": "discovery.k8s.io/v1", "version": "v1" });
    let group = json!({ "name": "discovery.k8s.io", "versions": [version], "preferredVersion": version });
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] })
}

/// The resources of a group and version.
fn resources(group: &str, version: &str) -> Option<Value> {
    const VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];
    let kinds: Vec<&Kind> = kinds(group, version).collect();
    let api_version = kinds.first()?.api_version();
    let resources: Vec<Value> = kinds
        .iter()
        .map(|kind| {
            let short_names: Vec<&str> = kind.short_name.into_iter().collect();
            json!({
                "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
                "kind": kind.name, "verbs": VERBS, "shortNames": short_names,
            })
        })
        .collect();
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources,
    }))
}

fn kinds(group: &str, version: &str) -> impl Iterator<Item = &'static Kind> {
    Resource::all().map(Resource::kind).filter(move |kind| kind.group == group && version == "v1")
}
