//! Deleting an object, or a namespace with all that is inside.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{ObjectRef, current};
use crate::kinds::Resource;
use crate::meta;
use crate::object::Object;
use crate::status::Status;
use crate::store::State;

pub(super) fn delete(state: &mut State, at: &ObjectRef) -> Result<Arc<Object>, Status> {
    let object = current(state, at)?;
    if at.resource == Resource::Namespaces {
        return delete_namespace(state, at, object.value());
    }
    remove(state, at.resource, object.value())?;
    Ok(object)
}

/// A namespace goes as with kube-apiserver: it is marked, its objects go, then it goes itself.
fn delete_namespace(state: &mut State, at: &ObjectRef, mut value: Value) -> Result<Arc<Object>, Status> {
    if matches!(at.name.as_str(), "default" | "kube-system" | "kube-public") {
        let message = format!("namespaces \"{}\" is forbidden: this namespace may not be deleted", at.name);
        return Err(Status::failure(403, Some("Forbidden"), message).about(at.kind(), &at.name));
    }
    meta::metadata(&mut value)?.insert("deletionTimestamp".to_owned(), json!(meta::now()));
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("phase".to_owned(), json!("Terminating"));
    }
    state.set(at.resource, value.clone()).map_err(|error| Status::bad_request(error.to_string()))?;
    let marked = current(state, at)?;
    for resource in Resource::all().filter(|resource| resource.kind().namespaced) {
        let objects = state.list(resource).objects;
        for object in objects.iter().filter(|object| object.namespace() == at.name) {
            remove(state, resource, object.value())?;
        }
    }
    remove(state, at.resource, value)?;
    Ok(marked)
}

fn remove(state: &mut State, resource: Resource, last: Value) -> Result<(), Status> {
    state.remove(resource, last).map(drop).map_err(|error| Status::bad_request(error.to_string()))
}
