//! Tables: what `kubectl get` shows.

mod columns;

use serde_json::{Map, Value, json};

use crate::list::Page;
use crate::object::Object;

/// A page of a list as a table.
pub(crate) fn list(page: &Page) -> Value {
    let mut meta = json!({ "resourceVersion": page.version.to_string() });
    if let Some(token) = &page.continue_token {
        meta["continue"] = json!(token);
    }
    if let Some(remaining) = page.remaining {
        meta["remainingItemCount"] = json!(remaining);
    }
    let rows: Vec<Value> = page.objects().iter().map(|object| row(object)).collect();
    table(&meta, page.resource, &rows)
}

/// One object as a table.
pub(crate) fn single(object: &Object) -> Value {
    table(&json!({ "resourceVersion": object.version().to_string() }), object.resource(), &[row(object)])
}

fn table(meta: &Value, resource: crate::Resource, rows: &[Value]) -> Value {
    let columns: Vec<Value> = columns::of(resource)
        .iter()
        .map(|column| {
            json!({
                "name": column.name,
                "type": column.kind,
                "format": if column.name == "Name" { "name" } else { "" },
                "description": column.name,
                "priority": u8::from(column.wide),
            })
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": meta, "columnDefinitions": columns, "rows": rows,
    })
}

fn row(object: &Object) -> Value {
    let value = object.value();
    let empty = Map::new();
    let map = value.as_object().unwrap_or(&empty);
    let cells: Vec<Value> = columns::of(object.resource()).iter().map(|column| (column.cell)(map)).collect();
    let meta = map.get("metadata").cloned().unwrap_or_default();
    json!({
        "cells": cells,
        "object": { "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta },
    })
}

#[cfg(test)]
mod tests;
