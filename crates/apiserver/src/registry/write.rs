//! Creating and updating.

use std::sync::Arc;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{Part, Place, current};
use crate::kinds::Resource;
use crate::object::{Object, text};
use crate::service::{self, Refusal};
use crate::status::Status;
use crate::store::State;
use crate::{defaults, meta, validate};

pub(super) fn create(
    state: &mut State,
    ranges: &[IpNet],
    place: &Place,
    mut value: Value,
    part: Part,
    dry_run: bool,
) -> Result<Arc<Object>, Status> {
    let kind = place.kind();
    meta::prepare_create(kind, &place.namespace, &mut value)?;
    if kind.namespaced && state.get(Resource::Namespaces, &place.namespace).is_none() {
        return Err(Status::not_found(Resource::Namespaces.kind(), &place.namespace));
    }
    let name = meta::metadata(&mut value).map(|meta| text(meta, "name").to_owned())?;
    let place = Place { name, ..place.clone() };
    if state.get(place.resource, &place.key()).is_some() {
        return Err(Status::already_exists(kind, &place.name));
    }
    if part == Part::Main && place.resource == Resource::Services {
        remove(&mut value, "status");
    }
    complete(state, ranges, &place, &mut value, None)?;
    store(state, &place, value, dry_run)
}

pub(super) fn update(
    state: &mut State,
    ranges: &[IpNet],
    place: &Place,
    part: Part,
    dry_run: bool,
    change: impl FnOnce(Value) -> Result<Value, Status>,
) -> Result<Arc<Object>, Status> {
    let kind = place.kind();
    let old = current(state, place)?;
    let before = old.value();
    let mut value = change(before.clone())?;
    meta::prepare_update(kind, &place.namespace, &place.name, &mut value, &before)?;
    keep_part(place.resource, part, &mut value, &before);
    complete(state, ranges, place, &mut value, Some(&before))?;
    meta::count_generation(kind, &mut value, &before)?;
    set_type(place, &mut value);
    if value == before {
        return Ok(old);
    }
    store(state, place, value, dry_run)
}

/// Makes the namespace of `place` if it is missing.
pub(super) fn ensure_namespace(state: &mut State, ranges: &[IpNet], place: &Place) -> Result<(), Status> {
    if !place.kind().namespaced || state.get(Resource::Namespaces, &place.namespace).is_some() {
        return Ok(());
    }
    let namespace = Place::new(Resource::Namespaces, "", &place.namespace);
    let value = json!({ "metadata": { "name": place.namespace } });
    create(state, ranges, &namespace, value, Part::All, false).map(drop)
}

/// Puts back the part of `before` that the write is not about.
fn keep_part(resource: Resource, part: Part, value: &mut Value, before: &Value) {
    if !resource.kind().has_status {
        return;
    }
    match part {
        Part::Main => put(value, "status", before.get("status").cloned()),
        Part::Status => {
            let status = value.get("status").cloned();
            let version = value["metadata"].get("resourceVersion").cloned();
            *value = before.clone();
            put(value, "status", status);
            if let (Some(version), Some(meta)) = (version, value["metadata"].as_object_mut()) {
                meta.insert("resourceVersion".to_owned(), version);
            }
        }
        Part::All if value.get("status").is_none() => put(value, "status", before.get("status").cloned()),
        Part::All => {}
    }
}

fn complete(
    state: &mut State,
    ranges: &[IpNet],
    place: &Place,
    value: &mut Value,
    before: Option<&Value>,
) -> Result<(), Status> {
    let kind = place.kind();
    defaults::fill(place.resource, value);
    let errors = validate::object(kind, value, before);
    if !errors.is_empty() {
        return Err(Status::invalid(kind, &place.name, &errors));
    }
    if place.resource != Resource::Services {
        return Ok(());
    }
    service::complete(value, before, ranges, state.ledger()).map_err(|refusal| match refusal {
        Refusal::Fields(errors) => Status::invalid(kind, &place.name, &errors),
        Refusal::Exhausted(why) => {
            Status::failure(500, Some("InternalError"), format!("Internal error occurred: {why}"))
        }
    })
}

fn store(state: &mut State, place: &Place, value: Value, dry_run: bool) -> Result<Arc<Object>, Status> {
    let unreadable = |error: crate::object::ObjectError| Status::bad_request(error.to_string());
    if dry_run {
        let version = state.next_version() - 1;
        return Object::new(place.resource, value, version).map(Arc::new).map_err(unreadable);
    }
    state.set(place.resource, value).map_err(unreadable)?;
    current(state, place)
}

fn set_type(place: &Place, value: &mut Value) {
    put(value, "kind", Some(json!(place.kind().kind)));
    put(value, "apiVersion", Some(json!(place.kind().api_version())));
}

fn put(value: &mut Value, field: &str, new: Option<Value>) {
    let Some(map) = value.as_object_mut() else { return };
    match new {
        Some(new) => map.insert(field.to_owned(), new),
        None => map.remove(field),
    };
}

fn remove(value: &mut Value, field: &str) {
    put(value, field, None);
}
