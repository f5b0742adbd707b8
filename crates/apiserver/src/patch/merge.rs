//! JSON merge patch, RFC 7386.

use serde_json::{Map, Value};

/// Merges `patch` into `target`: null deletes, objects merge, everything else replaces.
pub(super) fn apply(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return };
    for (field, value) in patch {
        if value.is_null() {
            map.remove(&field);
        } else {
            apply(map.entry(field).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn examples_of_the_rfc() {
        let cases = [
            (json!({ "a": "b" }), json!({ "a": "c" }), json!({ "a": "c" })),
            (json!({ "a": "b", "b": "c" }), json!({ "a": null }), json!({ "b": "c" })),
            (json!({ "a": ["b"] }), json!({ "a": "c" }), json!({ "a": "c" })),
            (
                json!({ "a": { "b": "c" } }),
                json!({ "a": { "b": "d", "c": null } }),
                json!({ "a": { "b": "d" } }),
            ),
            (json!({ "a": "foo" }), json!("bar"), json!("bar")),
            (json!([1, 2]), json!({ "a": "b", "c": null }), json!({ "a": "b" })),
            (json!({}), json!({ "a": { "bb": { "ccc": null } } }), json!({ "a": { "bb": {} } })),
        ];
        for (mut target, patch, expected) in cases {
            apply(&mut target, patch);
            assert_eq!(target, expected);
        }
    }
}
