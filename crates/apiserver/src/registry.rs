//! Reads and writes of single objects on top of the [`Store`], with defaults, validation and
//! allocation of cluster IPs as in kube-apiserver.

mod bootstrap;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::{Kind, Resource};
use crate::meta;
use crate::object::{Object, key, text};
use crate::schema::{self, Unknown, Write};
use crate::status::Status;
use crate::store::{State, Store};

/// A reference to an object, or to a collection: the objects of a resource in one namespace or in
/// all namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectRef {
    pub(crate) resource: Resource,
    /// Empty for cluster-scoped resources, and for a collection in all namespaces.
    pub(crate) namespace: String,
    /// Empty for a collection. May be empty for a new object.
    pub(crate) name: String,
}

/// The store, with methods that apply the rules of kube-apiserver to writes.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    pub(crate) store: Store,
}

impl Registry {
    /// An object, or 404.
    pub(crate) fn get(&self, at: &ObjectRef) -> Result<Arc<Object>, Status> {
        let object = self.store.get(at.resource, &at.namespace, &at.name);
        object.ok_or_else(|| Status::not_found(at.kind(), &at.name))
    }

    /// Creates an object.
    pub(crate) fn create(
        &self,
        at: &ObjectRef,
        value: Value,
        unknown: Unknown,
    ) -> Result<Arc<Object>, Status> {
        self.store
            .write(|state| create_object(state, at, value, unknown))
    }

    /// Replaces an object with the result of `change`.
    pub(crate) fn update(
        &self,
        at: &ObjectRef,
        unknown: Unknown,
        change: impl FnOnce(Value) -> Result<Value, Status>,
    ) -> Result<Arc<Object>, Status> {
        self.store
            .write(|state| update_object(state, at, unknown, change))
    }

    /// Creates or replaces the object of a manifest. A missing namespace is created, too.
    pub(crate) fn apply(&self, at: &ObjectRef, value: Value) -> Result<Arc<Object>, Status> {
        self.store.write(|state| {
            if at.kind().namespaced && state.get(Resource::Namespaces, &at.namespace).is_none() {
                let namespace = ObjectRef::new(Resource::Namespaces, "", "");
                create_object(
                    state,
                    &namespace,
                    json!({ "metadata": { "name": at.namespace } }),
                    Unknown::Drop,
                )?;
            }
            if state.get(at.resource, &at.key()).is_some() {
                update_object(state, at, Unknown::Reject, |_| Ok(value))
            } else {
                create_object(state, at, value, Unknown::Reject)
            }
        })
    }

    /// Deletes an object. Deleting a Namespace also deletes all objects in that namespace.
    pub(crate) fn delete(&self, at: &ObjectRef) -> Result<Arc<Object>, Status> {
        self.store.write(|state| {
            let object = current_object(state, at)?;
            let inside: Vec<Resource> = match at.resource {
                Resource::Namespaces => Resource::all()
                    .filter(|resource| resource.kind().namespaced)
                    .collect(),
                _ => Vec::new(),
            };
            for resource in inside {
                let objects = state.list(resource).objects;
                for object in objects
                    .iter()
                    .filter(|object| object.namespace() == at.name)
                {
                    remove_object(state, object)?;
                }
            }
            remove_object(state, &object)?;
            Ok(object)
        })
    }

    /// Creates the initial objects of a new cluster.
    pub(crate) fn bootstrap(&self) {
        bootstrap::fill(self);
    }
}

impl ObjectRef {
    pub(crate) fn new(resource: Resource, namespace: &str, name: &str) -> Self {
        let namespace = if resource.kind().namespaced {
            namespace
        } else {
            ""
        };
        Self {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn kind(&self) -> &'static Kind {
        self.resource.kind()
    }

    pub(crate) fn key(&self) -> String {
        key(self.resource, &self.namespace, &self.name)
    }
}

fn create_object(
    state: &mut State,
    at: &ObjectRef,
    mut value: Value,
    unknown: Unknown,
) -> Result<Arc<Object>, Status> {
    let kind = at.kind();
    meta::prepare_create(at.resource, &at.namespace, &mut value)?;
    if kind.namespaced && state.get(Resource::Namespaces, &at.namespace).is_none() {
        return Err(Status::not_found(
            Resource::Namespaces.kind(),
            &at.namespace,
        ));
    }
    let name = meta::metadata(&mut value).map(|meta| text(meta, "name").to_owned())?;
    let at = ObjectRef { name, ..at.clone() };
    if state.get(at.resource, &at.key()).is_some() {
        return Err(Status::already_exists(kind, &at.name));
    }
    store_object(state, &at, value, None, unknown)
}

fn update_object(
    state: &mut State,
    at: &ObjectRef,
    unknown: Unknown,
    change: impl FnOnce(Value) -> Result<Value, Status>,
) -> Result<Arc<Object>, Status> {
    let before = current_object(state, at)?.value();
    let mut value = change(before.clone())?;
    meta::prepare_update(at.kind(), &at.namespace, &at.name, &mut value, &before)?;
    // A write without a status keeps the status of the stored object.
    if let (Some(map), Some(status)) = (value.as_object_mut(), before.get("status")) {
        map.entry("status").or_insert_with(|| status.clone());
    }
    store_object(state, at, value, Some(&before), unknown)
}

/// Completes and stores an object. An unchanged object gets no new version.
fn store_object(
    state: &mut State,
    at: &ObjectRef,
    value: Value,
    before: Option<&Value>,
    unknown: Unknown,
) -> Result<Arc<Object>, Status> {
    let services = state.list(Resource::Services).objects;
    let write = Write {
        resource: at.resource,
        name: &at.name,
        value,
        before,
        unknown,
    };
    let value = schema::complete(&write, &services)?;
    if before != Some(&value) {
        state
            .set(at.resource, value)
            .map_err(|error| Status::bad_request(error.to_string()))?;
    }
    current_object(state, at)
}

fn remove_object(state: &mut State, object: &Object) -> Result<(), Status> {
    let removed = state.remove(object.resource(), object.value());
    removed
        .map(drop)
        .map_err(|error| Status::bad_request(error.to_string()))
}

/// The current object, or 404.
fn current_object(state: &State, at: &ObjectRef) -> Result<Arc<Object>, Status> {
    let object = state.get(at.resource, &at.key()).cloned();
    object.ok_or_else(|| Status::not_found(at.kind(), &at.name))
}

#[cfg(test)]
mod tests;
