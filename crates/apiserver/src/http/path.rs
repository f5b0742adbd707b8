//! Parsing of URL paths.

use crate::kinds::Resource;
use crate::registry::ObjectRef;

/// The non-empty parts of a path.
pub(super) fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

/// Parses the path of an object or a collection; `None` for other paths. [`ObjectRef`] says what an
/// empty namespace or name means.
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
