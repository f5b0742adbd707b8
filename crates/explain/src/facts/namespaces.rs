//! Namespaces with names similar to a missing one.

use cluster::snapshot::Snapshot;
use daemon::edit_distance::edit_distance;

/// Maximum number of namespaces that are compared.
const MAX_COMPARED: usize = 50_000;
/// Maximum number of namespaces that are suggested.
const MAX_SUGGESTED: usize = 3;

/// Namespaces that have Services, and whose names are similar to `wanted`, the most similar first.
/// Empty if `wanted` is empty, or is itself a namespace with Services.
pub(crate) fn similar_namespaces(snapshot: &Snapshot, wanted: &str) -> Vec<String> {
    if wanted.is_empty() || snapshot.has_namespace(wanted) {
        return Vec::new();
    }

    let mut similar: Vec<(usize, String)> = snapshot
        .namespaces()
        .take(MAX_COMPARED)
        .filter_map(|name| Some((edit_distance(wanted, name)?, name.to_string())))
        .collect();
    similar.sort();
    similar.truncate(MAX_SUGGESTED);
    similar.into_iter().map(|(_, name)| name).collect()
}
