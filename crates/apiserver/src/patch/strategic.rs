//! Strategic merge patch, which `kubectl apply`, `edit` and `patch` send. Unlike in a JSON merge
//! patch, a list with a merge key is merged element by element. `$patch` deletes elements, and
//! `$setElementOrder` sorts elements.

use serde_json::{Map, Value};

use crate::status::Status;

/// The beginning of the directive that sorts a list; the name of the list follows.
const ORDER_DIRECTIVE: &str = "$setElementOrder/";

/// The lists with a merge key, each with that key. All other lists are replaced as a whole. The
/// merge key of a Service port is only the port number, as in kube-apiserver.
const MERGE_KEYS: [(&str, &str); 4] = [
    ("spec.ports", "port"),
    ("metadata.ownerReferences", "uid"),
    ("status.addresses", "type"),
    ("status.conditions", "type"),
];

/// Merges `patch` into `target`, the field at the path `at`.
pub(super) fn merge(at: &str, target: &mut Value, patch: Value) -> Result<(), Status> {
    match (patch, merge_key(at)) {
        (Value::Object(patch), _) => {
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            target
                .as_object_mut()
                .map_or(Ok(()), |target| merge_map(at, target, patch))
        }
        (Value::Array(patch), Some(key)) => merge_list(at, key, target, patch),
        (_, _) if at.is_empty() => Err(Status::bad_request(
            "error decoding patch: it is not an object",
        )),
        (plain, _) => {
            *target = plain;
            Ok(())
        }
    }
}

/// Merges the fields of a map; null removes a field. Directives apply to the merged lists.
fn merge_map(
    at: &str,
    target: &mut Map<String, Value>,
    patch: Map<String, Value>,
) -> Result<(), Status> {
    let (directives, fields): (Vec<_>, Vec<_>) = patch
        .into_iter()
        .partition(|(name, _)| name.starts_with('$'));

    for (field, value) in fields {
        if value.is_null() {
            target.remove(&field);
        } else {
            let at = join_path(at, &field);
            merge(&at, target.entry(field).or_insert(Value::Null), value)?;
        }
    }

    for (directive, order) in directives {
        let Some(field) = directive.strip_prefix(ORDER_DIRECTIVE) else {
            return Err(Status::bad_request(format!(
                "the directive {directive} is not supported by this server"
            )));
        };
        if let (Some(Value::Array(list)), Value::Array(order), Some(key)) = (
            target.get_mut(field),
            order,
            merge_key(&join_path(at, field)),
        ) {
            sort_by_order(list, &order, key);
        }
    }
    Ok(())
}

/// Merges the elements of a list that has the merge key `key`.
fn merge_list(at: &str, key: &str, target: &mut Value, patch: Vec<Value>) -> Result<(), Status> {
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Value::Array(list) = target else {
        return Ok(());
    };

    for mut element in patch {
        let Some(id) = element.get(key).cloned() else {
            let message = format!("map: {element} does not contain declared merge key: {key}");
            return Err(Status::bad_request(message));
        };
        let directive = element
            .as_object_mut()
            .and_then(|element| element.remove("$patch"));

        match directive {
            Some(directive) if directive == "delete" => {
                list.retain(|other| other.get(key) != Some(&id));
            }
            Some(other) => {
                return Err(Status::bad_request(format!(
                    "the $patch directive {other} of an element of {at} is not supported by this server, expected \"delete\""
                )));
            }
            None => {
                let position = list.iter().position(|other| other.get(key) == Some(&id));
                merge_element(at, list, position, element)?;
            }
        }
    }
    Ok(())
}

/// Merges `element` into the element at `position`; without a position, adds `element` to the list.
fn merge_element(
    at: &str,
    list: &mut Vec<Value>,
    position: Option<usize>,
    element: Value,
) -> Result<(), Status> {
    if let Some(old) = position.and_then(|position| list.get_mut(position)) {
        return merge(at, old, element);
    }

    // A new element may have null fields, which mean deletion. Merging the element into an empty
    // value drops these fields.
    let mut added = Value::Null;
    merge(at, &mut added, element)?;
    list.push(added);
    Ok(())
}

/// Sorts the elements by `order`. Elements that are not in `order` stay after their predecessor.
fn sort_by_order(list: &mut [Value], order: &[Value], key: &str) {
    let mut ranked: Vec<(usize, Value)> = Vec::with_capacity(list.len());
    let mut rank = 0;
    for value in list.iter() {
        let mut order = order.iter();
        if let Some(position) = order.position(|other| other.get(key) == value.get(key)) {
            rank = position;
        }
        ranked.push((rank, value.clone()));
    }

    ranked.sort_by_key(|(rank, _)| *rank);
    for (place, (_, value)) in list.iter_mut().zip(ranked) {
        *place = value;
    }
}

fn merge_key(at: &str) -> Option<&'static str> {
    MERGE_KEYS
        .iter()
        .find(|(list, _)| *list == at)
        .map(|(_, key)| *key)
}

fn join_path(within: &str, field: &str) -> String {
    if within.is_empty() {
        field.to_owned()
    } else {
        format!("{within}.{field}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testkit::table;

    use super::*;

    /// In each row, a patch of the `spec` of a Service with the ports 80 and 53, and the ports of
    /// the patched Service.
    const MERGED_PORTS: &str = r#"
        {"ports": [{"port": 80, "name": "web"}]}                     | [{"port": 80, "name": "web"}, {"port": 53, "name": "dns"}]
        {"ports": [{"port": 80, "$patch": "delete"}, {"port": 81}]}  | [{"port": 53, "name": "dns"}, {"port": 81}]
        {"$setElementOrder/ports": [{"port": 53}, {"port": 80}]}     | [{"port": 53, "name": "dns"}, {"port": 80, "name": "http"}]
        {"ports": [{"port": 80, "name": null}]}                      | [{"port": 80}, {"port": 53, "name": "dns"}]
        {"ports": [{"port": 81, "name": null}]}                      | [{"port": 80, "name": "http"}, {"port": 53, "name": "dns"}, {"port": 81}]
    "#;

    #[test]
    fn service_ports_are_merged_by_number() {
        let service = json!({ "spec": { "ports": [{ "port": 80, "name": "http" }, { "port": 53, "name": "dns" }] } });
        for row in table::rows(MERGED_PORTS) {
            let [spec, ports] = row.map(|cell| serde_json::from_str::<Value>(cell).unwrap());
            let mut patched = service.clone();
            merge("", &mut patched, json!({ "spec": spec })).unwrap();
            assert_eq!(patched["spec"]["ports"], ports);
        }
    }

    #[test]
    fn maps_merge_and_lists_without_merge_key_are_replaced() {
        let mut target = json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "spec": { "externalIPs": ["1", "2"] } });
        let patch = json!({ "metadata": { "labels": { "a": null, "c": "3" } }, "spec": { "externalIPs": ["3"] } });
        merge("", &mut target, patch).unwrap();
        assert_eq!(
            target,
            json!({ "metadata": { "labels": { "b": "2", "c": "3" } }, "spec": { "externalIPs": ["3"] } })
        );
    }

    #[test]
    fn unmergeable_patch_is_rejected() {
        let cases = [
            json!([]),
            json!({ "$patch": "other" }),
            json!({ "spec": { "ports": [{ "name": "x" }] } }),
        ];
        for patch in cases {
            assert_eq!(merge("", &mut json!({}), patch).unwrap_err().code(), 400);
        }
    }
}
