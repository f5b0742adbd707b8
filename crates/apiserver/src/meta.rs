//! Metadata that the server sets, removes or validates: `name`, `namespace`, `uid`,
//! `resourceVersion`, `creationTimestamp`, `deletionTimestamp`.

use chrono::{SecondsFormat, Utc};
use rand::RngExt as _;
use serde_json::{Map, Value, json};

use crate::kinds::{Kind, Resource};
use crate::names;
use crate::object::text;
use crate::status::{self, Status};

/// Validates and completes the metadata of a new object in `namespace`.
pub(crate) fn prepare_create(
    resource: Resource,
    namespace: &str,
    value: &mut Value,
) -> Result<(), Status> {
    let kind = resource.kind();
    check_type(kind, value)?;
    let meta = metadata(value)?;
    set_namespace(kind, namespace, meta)?;

    let name = text(meta, "name");
    if name.is_empty() {
        let cause = status::required("metadata.name", "name is required");
        return Err(Status::invalid(kind, "", vec![cause]));
    }
    if let Err(why) = names::check(resource, name) {
        let cause = status::invalid("metadata.name", &json!(name), why);
        return Err(Status::invalid(kind, name, vec![cause]));
    }
    if !text(meta, "resourceVersion").is_empty() {
        return Err(Status::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }

    meta.insert("uid".to_owned(), json!(random_uid()));
    meta.insert(
        "creationTimestamp".to_owned(),
        json!(Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true)),
    );
    meta.remove("deletionTimestamp");
    remove_empty_fields(meta);
    Ok(())
}

/// Validates and completes the metadata of an object that replaces `before`. Fields that a client
/// must not change keep the values of `before`.
pub(crate) fn prepare_update(
    kind: &Kind,
    namespace: &str,
    name: &str,
    value: &mut Value,
    before: &Value,
) -> Result<(), Status> {
    check_type(kind, value)?;
    let meta = metadata(value)?;
    set_namespace(kind, namespace, meta)?;

    match text(meta, "name") {
        "" => drop(meta.insert("name".to_owned(), json!(name))),
        given if given != name => {
            return Err(Status::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        _ => {}
    }

    let empty = Map::new();
    let old = before
        .get("metadata")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let version = text(meta, "resourceVersion");
    if !version.is_empty() && version != "0" && version != text(old, "resourceVersion") {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        return Err(Status::conflict(kind, name, why));
    }

    for kept in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "resourceVersion",
    ] {
        match old.get(kept) {
            Some(value) => meta.insert(kept.to_owned(), value.clone()),
            None => meta.remove(kept),
        };
    }
    remove_empty_fields(meta);
    Ok(())
}

/// The `metadata` of `value`, added if missing.
pub(crate) fn metadata(value: &mut Value) -> Result<&mut Map<String, Value>, Status> {
    let unreadable =
        || Status::bad_request("the object provided is unrecognized: metadata is not an object");
    let map = value.as_object_mut().ok_or_else(unreadable)?;
    map.entry("metadata")
        .or_insert_with(|| json!({}))
        .as_object_mut()
        .ok_or_else(unreadable)
}

/// A random (version 4) UUID.
fn random_uid() -> String {
    let mut bytes: [u8; 16] = rand::rng().random();
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    [0..8, 8..12, 12..16, 16..20, 20..32]
        .map(|part| hex.get(part).unwrap_or_default())
        .join("-")
}

/// Rejects an object whose `kind` or `apiVersion` does not match the URL.
fn check_type(kind: &Kind, value: &Value) -> Result<(), Status> {
    let Some(map) = value.as_object() else {
        return Err(Status::bad_request(
            "the object provided is unrecognized: it is not a JSON object",
        ));
    };

    // Clients may omit `kind`, `apiVersion` or both, because the URL implies them.
    let given = |field, default| match text(map, field) {
        "" => default,
        given => given,
    };
    let (expected_name, expected_version) = (kind.name, kind.api_version());
    let name = given("kind", expected_name);
    let version = given("apiVersion", expected_version);
    if name != expected_name || version != expected_version {
        let message = format!(
            "{name} in version \"{version}\" cannot be handled as a {expected_name}: expected {expected_name} in version \"{expected_version}\""
        );
        return Err(Status::bad_request(message));
    }
    Ok(())
}

/// Sets the namespace of the object to the namespace in the URL. Rejects an object that has a
/// different namespace. Removes the namespace of an object of a cluster-scoped kind.
fn set_namespace(
    kind: &Kind,
    namespace: &str,
    meta: &mut Map<String, Value>,
) -> Result<(), Status> {
    if !kind.namespaced {
        meta.remove("namespace");
        return Ok(());
    }

    let given = text(meta, "namespace");
    if !given.is_empty() && given != namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta.insert("namespace".to_owned(), json!(namespace));
    Ok(())
}

/// Removes nulls, empty objects and empty lists, which a real server never sends.
fn remove_empty_fields(meta: &mut Map<String, Value>) {
    meta.retain(|_, value| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In each row, an object that cannot be created as a Service of the namespace `apps`, the
    /// status code, and a part of the message.
    const MISMATCHES: &str = r#"
        {}                                                   | 422 | name is required
        {"kind": "Node", "metadata": {"name": "a"}}          | 400 | cannot be handled as a Service
        {"apiVersion": "v2", "metadata": {"name": "a"}}      | 400 | in version "v2" cannot be
        {"metadata": {"name": "a", "namespace": "b"}}        | 400 | namespace of the provided object
        {"metadata": {"name": "a", "resourceVersion": "7"}}  | 400 | resourceVersion should not be set
        {"metadata": 5}                                      | 400 | metadata is not an object
        "text"                                               | 400 | not a JSON object
    "#;

    #[test]
    fn invalid_new_object_is_rejected() {
        for [value, code, message] in testkit::table::rows(MISMATCHES) {
            let mut value = serde_json::from_str(value).unwrap();
            let error = prepare_create(Resource::Services, "apps", &mut value).unwrap_err();
            assert_eq!(error.code().to_string(), code, "{error}");
            assert!(error.to_string().contains(message), "{error}");
        }
    }

    #[test]
    fn update_keeps_server_fields_and_rejects_old_version() {
        let before = json!({ "metadata": { "name": "a", "uid": "u", "resourceVersion": "7", "creationTimestamp": "t" } });
        let mut after =
            json!({ "metadata": { "uid": "u", "resourceVersion": "7", "labels": { "x": "y" } } });
        prepare_update(Resource::Services.kind(), "apps", "a", &mut after, &before).unwrap();
        assert_eq!(after["metadata"]["creationTimestamp"], "t");
        assert_eq!(after["metadata"]["name"], "a");
        let mut stale = json!({ "metadata": { "resourceVersion": "6" } });
        let error = prepare_update(Resource::Services.kind(), "apps", "a", &mut stale, &before)
            .unwrap_err();
        assert_eq!(error.code(), 409);
    }
}
