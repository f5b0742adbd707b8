//! Documents about the API itself, as far as `kubectl` reads them.

mod openapi;
mod resources;

use serde_json::{Value, json};

use super::Request;
use super::negotiate::{Format, format};
use super::path::Document;
use super::reply::Answer;
use crate::kinds::Resource;

/// The version of Kubernetes this server plays.
const MINOR: &str = "36";
const GIT_VERSION: &str = "v1.36.0";

/// Serves a document, or 404.
pub(super) fn serve(document: &Document, request: &Request) -> Answer {
    let aggregated = format(&request.headers) == Ok(Format::AggregatedDiscovery);
    let value = match document {
        Document::Version => Some(version()),
        Document::Paths => Some(paths()),
        Document::CoreVersions if aggregated => return resources::aggregated(""),
        Document::Groups if aggregated => return resources::aggregated("apis"),
        Document::CoreVersions => Some(core_versions(request)),
        Document::Groups => Some(groups()),
        Document::Group(name) => group_names().contains(&name.as_str()).then(|| group(name)),
        Document::Resources { group, version } => resources::list(group, version),
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

fn paths() -> Value {
    json!({ "paths": [
        "/api", "/api/v1", "/apis", "/apis/discovery.k8s.io", "/apis/discovery.k8s.io/v1",
        "/healthz", "/livez", "/openapi/v3", "/readyz", "/version",
    ] })
}

fn core_versions(request: &Request) -> Value {
    let host = request.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1");
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": host }],
    })
}

fn groups() -> Value {
    let groups: Vec<Value> = group_names().into_iter().map(group_entry).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

fn group(name: &str) -> Value {
    let mut value = group_entry(name);
    value["kind"] = json!("APIGroup");
    value["apiVersion"] = json!("v1");
    value
}

fn group_entry(name: &str) -> Value {
    let version = json!({ "groupVersion": format!("{name}/v1"), "version": "v1" });
    json!({ "name": name, "versions": [version], "preferredVersion": version })
}

/// Groups besides the core one.
fn group_names() -> Vec<&'static str> {
    let mut names: Vec<&str> =
        Resource::all().map(|r| r.kind().group).filter(|group| !group.is_empty()).collect();
    names.dedup();
    names
}
