//! JSON patch, RFC 6902.

use serde::Deserialize;
use serde_json::Value;

use crate::status::Status;

/// Operations in one patch at most, as on a real server.
const MOST: usize = 10_000;

/// One operation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(crate) enum Operation {
    /// Adds a field, or an element before the one at an index (`-`: at the end).
    Add { path: String, value: Value },
    /// Removes a field or element.
    Remove { path: String },
    /// Replaces a field or element that is there.
    Replace { path: String, value: Value },
    /// Moves a field or element.
    Move { from: String, path: String },
    /// Copies a field or element.
    Copy { from: String, path: String },
    /// Refuses the patch unless the value is there.
    Test { path: String, value: Value },
}

/// Applies all operations; the patch is refused whole if one fails.
pub(super) fn apply(target: &mut Value, operations: Vec<Operation>) -> Result<(), Status> {
    if operations.len() > MOST {
        let message =
            format!("The allowed maximum operations in a JSON patch is {MOST}, got {}", operations.len());
        return Err(Status::failure(413, Some("RequestEntityTooLarge"), message));
    }
    for operation in operations {
        step(target, operation)?;
    }
    Ok(())
}

fn step(target: &mut Value, operation: Operation) -> Result<(), Status> {
    match operation {
        Operation::Add { path, value } => add(target, &path, value),
        Operation::Remove { path } => remove(target, &path).map(drop),
        Operation::Replace { path, value } => {
            let place = target.pointer_mut(&path).ok_or_else(|| missing("replace", &path))?;
            *place = value;
            Ok(())
        }
        Operation::Move { from, path } => {
            let value = remove(target, &from)?;
            add(target, &path, value)
        }
        Operation::Copy { from, path } => {
            let value = target.pointer(&from).cloned().ok_or_else(|| missing("copy", &from))?;
            add(target, &path, value)
        }
        Operation::Test { path, value } => {
            if target.pointer(&path) == Some(&value) {
                return Ok(());
            }
            Err(refused(&format!("testing value {path} failed: test failed")))
        }
    }
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), Status> {
    let Some((parent, last)) = path.rsplit_once('/') else {
        *target = value;
        return Ok(());
    };
    match target.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.insert(unescape(last), value);
            Ok(())
        }
        Some(Value::Array(elements)) => {
            let index = if last == "-" { Some(elements.len()) } else { last.parse().ok() };
            let index = index.filter(|index| *index <= elements.len()).ok_or_else(|| missing("add", path))?;
            elements.insert(index, value);
            Ok(())
        }
        _ => Err(missing("add", path)),
    }
}

fn remove(target: &mut Value, path: &str) -> Result<Value, Status> {
    let (parent, last) = path.rsplit_once('/').ok_or_else(|| missing("remove", path))?;
    let removed = match target.pointer_mut(parent) {
        Some(Value::Object(map)) => map.remove(&unescape(last)),
        Some(Value::Array(elements)) => last
            .parse()
            .ok()
            .filter(|index: &usize| *index < elements.len())
            .map(|index| elements.remove(index)),
        _ => None,
    };
    removed.ok_or_else(|| missing("remove", path))
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn missing(operation: &str, path: &str) -> Status {
    refused(&format!("{operation} operation does not apply: doc is missing path: {path}: missing value"))
}

fn refused(why: &str) -> Status {
    Status::failure(
        422,
        Some("Invalid"),
        format!("the server rejected our request due to an error in our request: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(patch: Value) -> Result<Value, u16> {
        let mut target = json!({ "a": { "b": [1, 2] }, "c/d": 1 });
        let operations = serde_json::from_value(patch).unwrap();
        apply(&mut target, operations).map(|()| target).map_err(|status| status.code())
    }

    #[test]
    fn operations() {
        let cases = [
            (
                json!([{ "op": "add", "path": "/a/b/1", "value": 9 }]),
                Ok(json!({ "a": { "b": [1, 9, 2] }, "c/d": 1 })),
            ),
            (
                json!([{ "op": "add", "path": "/a/b/-", "value": 9 }]),
                Ok(json!({ "a": { "b": [1, 2, 9] }, "c/d": 1 })),
            ),
            (json!([{ "op": "remove", "path": "/c~1d" }]), Ok(json!({ "a": { "b": [1, 2] } }))),
            (json!([{ "op": "replace", "path": "/a", "value": 1 }]), Ok(json!({ "a": 1, "c/d": 1 }))),
            (
                json!([{ "op": "move", "from": "/a/b", "path": "/x" }]),
                Ok(json!({ "a": {}, "x": [1, 2], "c/d": 1 })),
            ),
            (
                json!([{ "op": "copy", "from": "/c~1d", "path": "/a/b/0" }]),
                Ok(json!({ "a": { "b": [1, 1, 2] }, "c/d": 1 })),
            ),
            (json!([{ "op": "test", "path": "/c~1d", "value": 2 }]), Err(422)),
            (json!([{ "op": "remove", "path": "/x" }]), Err(422)),
            (json!([{ "op": "remove", "path": "" }]), Err(422)),
            (json!([{ "op": "add", "path": "/a/b/7", "value": 9 }]), Err(422)),
            (json!([{ "op": "replace", "path": "/x/y", "value": 9 }]), Err(422)),
        ];
        for (patch, expected) in cases {
            assert_eq!(patched(patch.clone()), expected, "{patch}");
        }
    }
}
