//! Names of metrics.

/// The name of a metric: `namespace`, an underscore and `name`. If `namespace` is empty, the name
/// of the metric is only `name`.
pub(crate) fn metric_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}_{name}")
    }
}
