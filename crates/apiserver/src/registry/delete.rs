//! Deleting one object, many, or a namespace with all that is inside.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Place, current};
use crate::kinds::Resource;
use crate::meta;
use crate::object::{Object, text};
use crate::status::Status;
use crate::store::State;

/// Options of a deletion.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Deletion {
    pub(crate) dry_run: bool,
    /// Only if the object has this uid.
    pub(crate) uid: String,
    /// Only if the object has this version.
    pub(crate) resource_version: String,
}

impl Deletion {
    /// Reads the body of a DELETE request, which may be empty.
    pub(crate) fn from_body(body: &Value, dry_run: bool) -> Self {
        let preconditions = body.get("preconditions").and_then(Value::as_object);
        let dry_run =
            dry_run || body.get("dryRun").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        let of = |field| preconditions.map(|map| text(map, field).to_owned()).unwrap_or_default();
        Self { dry_run, uid: of("uid"), resource_version: of("resourceVersion") }
    }
}

pub(super) fn delete(state: &mut State, place: &Place, deletion: &Deletion) -> Result<Arc<Object>, Status> {
    let object = current(state, place)?;
    let value = object.value();
    if let Some(old) = value.get("metadata").and_then(Value::as_object) {
        let (uid, version) = (&deletion.uid, &deletion.resource_version);
        meta::check_preconditions(place.kind(), &place.name, uid, version, old)?;
    }
    if place.resource == Resource::Namespaces {
        return delete_namespace(state, place, value, deletion.dry_run);
    }
    if !deletion.dry_run {
        remove(state, place.resource, value)?;
    }
    Ok(object)
}

pub(super) fn delete_all(
    state: &mut State,
    resource: Resource,
    dry_run: bool,
    select: impl Fn(&Object) -> bool,
) -> Result<Vec<Arc<Object>>, Status> {
    let objects = state.list(resource).objects;
    let chosen: Vec<Arc<Object>> = objects.iter().filter(|object| select(object)).cloned().collect();
    if !dry_run {
        for object in &chosen {
            remove(state, resource, object.value())?;
        }
    }
    Ok(chosen)
}

/// A namespace goes in the order of a real server: it is marked, its objects go, then it goes itself.
fn delete_namespace(
    state: &mut State,
    place: &Place,
    mut value: Value,
    dry_run: bool,
) -> Result<Arc<Object>, Status> {
    if matches!(place.name.as_str(), "default" | "kube-system" | "kube-public") {
        let message =
            format!("namespaces \"{}\" is forbidden: this namespace may not be deleted", place.name);
        return Err(Status::failure(403, Some("Forbidden"), message).about(place.kind(), &place.name));
    }
    meta::metadata(&mut value)?.insert("deletionTimestamp".to_owned(), json!(meta::now()));
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("phase".to_owned(), json!("Terminating"));
    }
    if dry_run {
        return current(state, place);
    }
    state.set(place.resource, value.clone()).map_err(|error| Status::bad_request(error.to_string()))?;
    let marked = current(state, place)?;
    for resource in Resource::all().filter(|resource| resource.kind().namespaced) {
        delete_all(state, resource, false, |object| object.namespace() == place.name)?;
    }
    remove(state, place.resource, value)?;
    Ok(marked)
}

fn remove(state: &mut State, resource: Resource, last: Value) -> Result<(), Status> {
    state.remove(resource, last).map(drop).map_err(|error| Status::bad_request(error.to_string()))
}
