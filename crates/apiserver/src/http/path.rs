//! Parsing of URL paths.

use crate::kinds::Resource;
use crate::registry::ObjectRef;

/// The non-empty parts of a path.
pub(super) fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

/// The objects that a path names. An empty name means all objects, and an empty namespace means all
/// namespaces.
pub(super) fn objects(parts: &[&str]) -> Option<ObjectRef> {
    let (group, version, rest) = match *parts {
        ["api", version, ref rest @ ..] => ("", version, rest),
        ["apis", group, version, ref rest @ ..] => (group, version, rest),
        _ => return None,
    };
    let (namespace, plural, name) = match *rest {
        [plural] => ("", plural, ""),
        [plural, name] => ("", plural, name),
        ["namespaces", namespace, plural] => (namespace, plural, ""),
        ["namespaces", namespace, plural, name] => (namespace, plural, name),
        _ => return None,
    };
    let resource = Resource::from_path(group, version, plural)?;
    let misplaced = !namespace.is_empty() && !resource.kind().namespaced;
    let unplaced = namespace.is_empty() && resource.kind().namespaced && !name.is_empty();
    (!misplaced && !unplaced).then(|| ObjectRef::new(resource, namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let cases = [
            ("/api/v1/services", Some((Resource::Services, "", ""))),
            (
                "/api/v1/namespaces/a/services",
                Some((Resource::Services, "a", "")),
            ),
            (
                "/api/v1/namespaces/a/services/b",
                Some((Resource::Services, "a", "b")),
            ),
            ("/api/v1/namespaces/a/services/b/status", None),
            ("/api/v1/namespaces", Some((Resource::Namespaces, "", ""))),
            (
                "/api/v1/namespaces/a",
                Some((Resource::Namespaces, "", "a")),
            ),
            ("/api/v1/nodes/n", Some((Resource::Nodes, "", "n"))),
            ("/api/v1/namespaces/a/nodes", None),
            ("/api/v1/services/b", None),
            ("/api/v1/endpointslices", None),
            (
                "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/b",
                Some((Resource::EndpointSlices, "a", "b")),
            ),
            ("/apis/apps/v1/deployments", None),
            ("/api", None),
        ];
        for (path, expected) in cases {
            let expected = expected
                .map(|(resource, namespace, name)| ObjectRef::new(resource, namespace, name));
            assert_eq!(objects(&parts(path)), expected, "{path}");
        }
    }
}
