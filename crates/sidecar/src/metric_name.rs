//! Names of metrics.

/// A metric's name under a namespace, which may be empty.
pub(crate) fn metric_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}_{name}")
    }
}
