//! Compares two sets of YAML documents.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::render::label;

/// The paths at which two sets of documents differ, such as
/// `Deployment/kube-dns.spec.template.spec.containers[kubedns].image`.
pub fn paths(ours: &[Value], theirs: &[Value]) -> BTreeSet<String> {
    let (ours, theirs) = (flat(ours), flat(theirs));
    let all = ours.keys().chain(theirs.keys());
    all.filter(|path| ours.get(*path) != theirs.get(*path))
        .cloned()
        .collect()
}

fn flat(documents: &[Value]) -> BTreeMap<String, Value> {
    let mut leaves = BTreeMap::new();
    for document in documents {
        walk(document, label(document), &mut leaves);
    }
    leaves
}

fn walk(value: &Value, path: String, leaves: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                walk(value, format!("{path}.{key}"), leaves);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (at, value) in list.iter().enumerate() {
                let name = value.get("name").and_then(Value::as_str);
                let key = name.map_or_else(|| at.to_string(), str::to_owned);
                walk(value, format!("{path}[{key}]"), leaves);
            }
        }
        _ => {
            leaves.insert(path, value.clone());
        }
    }
}
