//! Creating and updating.

use std::sync::Arc;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{ObjectRef, current};
use crate::kinds::Resource;
use crate::object::{Object, text};
use crate::schema::Unknown;
use crate::status::Status;
use crate::store::State;
use crate::{meta, validate};

pub(super) fn create(
    state: &mut State,
    ranges: &[IpNet],
    at: &ObjectRef,
    mut value: Value,
    unknown: Unknown,
) -> Result<Arc<Object>, Status> {
    let kind = at.kind();
    meta::prepare_create(kind, &at.namespace, &mut value)?;
    if kind.namespaced && state.get(Resource::Namespaces, &at.namespace).is_none() {
        return Err(Status::not_found(Resource::Namespaces.kind(), &at.namespace));
    }
    let name = meta::metadata(&mut value).map(|meta| text(meta, "name").to_owned())?;
    let at = ObjectRef { name, ..at.clone() };
    if state.get(at.resource, &at.key()).is_some() {
        return Err(Status::already_exists(kind, &at.name));
    }
    let value = validate::complete(at.resource, value, None, unknown, (ranges, state.ledger()))?;
    store(state, &at, value)
}

pub(super) fn update(
    state: &mut State,
    ranges: &[IpNet],
    at: &ObjectRef,
    unknown: Unknown,
    change: impl FnOnce(Value) -> Result<Value, Status>,
) -> Result<Arc<Object>, Status> {
    let old = current(state, at)?;
    let before = old.value();
    let mut value = change(before.clone())?;
    meta::prepare_update(at.kind(), &at.namespace, &at.name, &mut value, &before)?;
    // A writer that says nothing about the status leaves it as it is.
    if let (Some(map), Some(status)) = (value.as_object_mut(), before.get("status")) {
        map.entry("status").or_insert_with(|| status.clone());
    }
    let value = validate::complete(at.resource, value, Some(&before), unknown, (ranges, state.ledger()))?;
    if value == before {
        return Ok(old);
    }
    store(state, at, value)
}

/// Makes the namespace of `at` if it is missing.
pub(super) fn ensure_namespace(state: &mut State, ranges: &[IpNet], at: &ObjectRef) -> Result<(), Status> {
    if !at.kind().namespaced || state.get(Resource::Namespaces, &at.namespace).is_some() {
        return Ok(());
    }
    let namespace = ObjectRef::new(Resource::Namespaces, "", &at.namespace);
    let value = json!({ "metadata": { "name": at.namespace } });
    create(state, ranges, &namespace, value, Unknown::Drop).map(drop)
}

fn store(state: &mut State, at: &ObjectRef, value: Value) -> Result<Arc<Object>, Status> {
    state.set(at.resource, value).map_err(|error| Status::bad_request(error.to_string()))?;
    current(state, at)
}
