//! What a URL path names.

use crate::kinds::Resource;

/// What a request is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Objects.
    Resource(ResourcePath),
    /// A document about the API itself.
    Discovery(Document),
    /// `/healthz`, `/livez`, `/readyz`.
    Health,
    /// Nothing here.
    Unknown,
}

/// Objects of a resource, or one of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResourcePath {
    pub(super) resource: Resource,
    /// Empty for all namespaces, and for resources without.
    pub(super) namespace: String,
    /// Empty for all objects.
    pub(super) name: String,
}

/// A document about the API itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Document {
    Version,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/api/v1`, `/apis/GROUP/VERSION`
    Resources {
        group: String,
        version: String,
    },
    /// `/openapi/v3`
    OpenApi,
    /// `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/VERSION`
    OpenApiGroup {
        group: String,
        version: String,
    },
}

/// Reads a path.
pub(super) fn target(path: &str) -> Target {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        ["version"] => Target::Discovery(Document::Version),
        ["healthz" | "livez" | "readyz", ..] => Target::Health,
        ["api"] => Target::Discovery(Document::CoreVersions),
        ["apis"] => Target::Discovery(Document::Groups),
        ["openapi", "v3"] => Target::Discovery(Document::OpenApi),
        ["openapi", "v3", "api", version] => {
            Target::Discovery(Document::OpenApiGroup { group: String::new(), version: (*version).to_owned() })
        }
        ["openapi", "v3", "apis", group, version] => Target::Discovery(Document::OpenApiGroup {
            group: (*group).to_owned(),
            version: (*version).to_owned(),
        }),
        ["api", version, rest @ ..] => in_group("", version, rest),
        ["apis", group, version, rest @ ..] => in_group(group, version, rest),
        _ => Target::Unknown,
    }
}

fn in_group(group: &str, version: &str, rest: &[&str]) -> Target {
    let (namespace, rest) = match rest {
        [] => {
            return Target::Discovery(Document::Resources {
                group: group.to_owned(),
                version: version.to_owned(),
            });
        }
        // The namespace itself, not objects inside it.
        ["namespaces"] | ["namespaces", _] => ("", rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name) = match rest {
        [plural] => (*plural, ""),
        [plural, name] => (*plural, *name),
        _ => return Target::Unknown,
    };
    let Some(resource) = Resource::from_path(group, version, plural) else { return Target::Unknown };
    let misplaced = !namespace.is_empty() && !resource.kind().namespaced;
    let nowhere = namespace.is_empty() && resource.kind().namespaced && !name.is_empty();
    if misplaced || nowhere {
        return Target::Unknown;
    }
    Target::Resource(ResourcePath { resource, namespace: namespace.to_owned(), name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(resource: Resource, namespace: &str, name: &str) -> Target {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Target::Resource(ResourcePath { resource, namespace, name })
    }

    #[test]
    fn paths() {
        let cases = [
            ("/api/v1/services", objects(Resource::Services, "", "")),
            ("/api/v1/namespaces/a/services", objects(Resource::Services, "a", "")),
            ("/api/v1/namespaces/a/services/b", objects(Resource::Services, "a", "b")),
            ("/api/v1/namespaces/a/services/b/status", Target::Unknown),
            ("/api/v1/namespaces", objects(Resource::Namespaces, "", "")),
            ("/api/v1/namespaces/a", objects(Resource::Namespaces, "", "a")),
            ("/api/v1/nodes/n", objects(Resource::Nodes, "", "n")),
            ("/api/v1/namespaces/a/nodes", Target::Unknown),
            ("/api/v1/services/b", Target::Unknown),
            ("/api/v1/endpointslices", Target::Unknown),
            (
                "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/b",
                objects(Resource::EndpointSlices, "a", "b"),
            ),
            ("/apis/apps/v1/deployments", Target::Unknown),
            ("/readyz/ping", Target::Health),
            ("/api", Target::Discovery(Document::CoreVersions)),
            ("/nothing", Target::Unknown),
        ];
        for (path, expected) in cases {
            assert_eq!(target(path), expected, "{path}");
        }
    }
}
