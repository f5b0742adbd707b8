//! Tables for `kubectl get` of Services and their endpoints. Other kinds have no table: `kubectl`
//! shows their names and ages.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::{Endpoints, Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::kinds::Resource;
use crate::object::Object;

const NONE: &str = "<none>";

/// The columns between the name and the age.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns {
    names: &'static [&'static str],
    cells: Cells,
}

/// A function that returns the cells of an object.
type Cells = fn(&Value) -> Vec<String>;

/// The columns of a resource; `None` if the resource has no table.
pub(crate) fn columns(resource: Resource) -> Option<Columns> {
    let (names, cells): (&'static [&'static str], Cells) = match resource {
        Resource::Services => (&["Type", "Cluster-IP", "External-IP", "Port(s)"], service),
        Resource::Endpoints => (&["Endpoints"], endpoints),
        Resource::EndpointSlices => (&["AddressType", "Ports", "Endpoints"], slice),
        Resource::ConfigMaps
        | Resource::Namespaces
        | Resource::Nodes
        | Resource::Pods
        | Resource::ServiceAccounts
        | Resource::ServiceImports => {
            return None;
        }
    };
    Some(Columns { names, cells })
}

/// The table of these objects; `meta` is the metadata of the list.
pub(crate) fn table(columns: Columns, meta: &Value, objects: &[Arc<Object>]) -> Value {
    let names = std::iter::once(&"Name")
        .chain(columns.names)
        .chain(&["Age"]);
    let definition = |name: &&str| {
        let format = if *name == "Name" { "name" } else { "" };
        json!({ "name": name, "type": "string", "format": format, "description": name, "priority": 0 })
    };
    let rows = objects.iter().map(|object| row(columns, object));
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
        "columnDefinitions": names.map(definition).collect::<Vec<_>>(), "rows": rows.collect::<Vec<_>>(),
    })
}

fn row(columns: Columns, object: &Object) -> Value {
    let value = object.value();
    let meta = value.get("metadata").cloned().unwrap_or_default();
    let created = meta
        .get("creationTimestamp")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut cells = vec![object.name().to_owned()];
    cells.extend((columns.cells)(&value));
    cells.push(age(created, Utc::now()));
    json!({
        "cells": cells,
        "object": { "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta },
    })
}

/// The age in one unit, such as `40h`.
fn age(timestamp: &str, now: DateTime<Utc>) -> String {
    let Ok(then) = DateTime::parse_from_rfc3339(timestamp) else {
        return "<unknown>".to_owned();
    };
    match now.signed_duration_since(then).num_seconds() {
        seconds @ ..120 => format!("{}s", seconds.max(0)),
        seconds @ 120..10_800 => format!("{}m", seconds / 60),
        seconds @ 10_800..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

fn service(value: &Value) -> Vec<String> {
    let service = Service::deserialize(value).unwrap_or_default();
    let spec = service.spec.unwrap_or_default();
    let external = match spec.external_name {
        Some(name) => vec![name],
        None => spec.external_ips.unwrap_or_default(),
    };
    let port = |port: &ServicePort| {
        format!(
            "{}/{}",
            port.port,
            port.protocol.as_deref().unwrap_or("TCP")
        )
    };
    vec![
        spec.type_.unwrap_or_default(),
        spec.cluster_ip.unwrap_or_else(|| NONE.to_owned()),
        joined(&external),
        joined(&spec.ports.iter().flatten().map(port).collect::<Vec<_>>()),
    ]
}

fn endpoints(value: &Value) -> Vec<String> {
    let endpoints = Endpoints::deserialize(value).unwrap_or_default();
    let mut all = Vec::new();
    for subset in endpoints.subsets.unwrap_or_default() {
        let ports = subset.ports.unwrap_or_default();
        for address in subset.addresses.unwrap_or_default() {
            let ip = if address.ip.contains(':') {
                format!("[{}]", address.ip)
            } else {
                address.ip
            };
            if ports.is_empty() {
                all.push(ip);
            } else {
                all.extend(ports.iter().map(|port| format!("{ip}:{}", port.port)));
            }
        }
    }
    vec![joined(&all)]
}

fn slice(value: &Value) -> Vec<String> {
    let slice = EndpointSlice::deserialize(value).unwrap_or_default();
    let ports = slice.ports.unwrap_or_default();
    let ports: Vec<String> = ports
        .iter()
        .map(|port| {
            port.port
                .map_or_else(|| "*".to_owned(), |port| port.to_string())
        })
        .collect();
    let addresses: Vec<String> = slice
        .endpoints
        .into_iter()
        .flat_map(|endpoint| endpoint.addresses)
        .collect();
    vec![slice.address_type, joined(&ports), joined(&addresses)]
}

/// The first three elements, and the number of further elements.
fn joined(all: &[String]) -> String {
    match all {
        [] => NONE.to_owned(),
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first},{second},{third} + {} more...", rest.len())
        }
        few => few.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cells of an object `x`, separated by bars.
    fn cells(resource: Resource, mut value: Value) -> String {
        value["metadata"] = json!({ "name": "x", "namespace": "n" });
        let object = Arc::new(Object::new(resource, value, 1).unwrap());
        let table = table(columns(resource).unwrap(), &json!({}), &[object]);
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        let columns = table["columnDefinitions"].as_array().unwrap();
        assert_eq!(cells.len(), columns.len());
        let cells: Vec<&str> = cells.iter().map(|cell| cell.as_str().unwrap()).collect();
        cells.join(" | ")
    }

    /// `apiVersion` and `kind` of an object, its fields, and its cells.
    const ROWS: &str = r#"
        v1 Service => {"spec": {"type": "ClusterIP", "clusterIP": "10.96.0.7", "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}} => x | ClusterIP | 10.96.0.7 | <none> | 80/TCP,53/UDP | <unknown>
        v1 Service => {"spec": {"type": "ExternalName", "externalName": "www.outside.test"}} => x | ExternalName | <none> | www.outside.test | <none> | <unknown>
        v1 Endpoints => {"subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "ports": [{"port": 80}]}]} => x | 10.0.0.1:80,[fd00::1]:80 | <unknown>
        discovery.k8s.io/v1 EndpointSlice => {"addressType": "IPv4", "endpoints": [{"addresses": ["1", "2", "3", "4", "5"]}], "ports": [{}]} => x | IPv4 | * | 1,2,3 + 2 more... | <unknown>
        v1 Service => {"spec": 5} => x |  | <none> | <none> | <none> | <unknown>
    "#;

    #[test]
    fn table_row_has_expected_cells() {
        for row in ROWS.trim().lines() {
            let cells_of_row: Vec<&str> = row.trim().split(" => ").collect();
            let [kind, value, expected] = cells_of_row[..] else {
                panic!("{row}")
            };
            let (version, kind) = kind.split_once(' ').unwrap();
            let resource = Resource::from_object(version, kind).unwrap();
            let value = serde_json::from_str(value).unwrap();
            assert_eq!(cells(resource, value), expected);
        }
    }

    #[test]
    fn ages_have_one_unit() {
        let now = DateTime::parse_from_rfc3339("2026-11-20T20:53:44Z")
            .unwrap()
            .to_utc();
        for (seconds, expected) in [
            (5, "5s"),
            (119, "119s"),
            (660, "11m"),
            (40 * 3600, "40h"),
            (100 * 86400, "100d"),
        ] {
            let then = now - chrono::TimeDelta::seconds(seconds);
            assert_eq!(age(&then.to_rfc3339(), now), expected);
        }
    }
}
