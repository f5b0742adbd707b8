//! What clients may do to objects: create, update, delete, with the defaults, checks and allocations of kube-apiserver, on
//! top of the plain [`Store`].

mod bootstrap;
mod delete;
mod write;

use std::sync::Arc;

use ipnet::IpNet;
use serde_json::Value;

use crate::kinds::{Kind, Resource};
use crate::object::{Object, key};
use crate::schema::Unknown;
use crate::status::Status;
use crate::store::{State, Store};

/// An object as named in a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectRef {
    pub(crate) resource: Resource,
    /// Empty for resources without namespaces.
    pub(crate) namespace: String,
    /// Empty for an object about to be created.
    pub(crate) name: String,
}

/// The objects and the rules for writing them.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    pub(crate) store: Store,
    ranges: Arc<[IpNet]>,
}

impl Registry {
    pub(crate) fn new(store: Store, ranges: &[IpNet]) -> Self {
        Self { store, ranges: ranges.into() }
    }

    /// One object, or 404.
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
        self.store.write(|state| write::create(state, &self.ranges, at, value, unknown))
    }

    /// Replaces an object by what `change` makes of it.
    pub(crate) fn update(
        &self,
        at: &ObjectRef,
        unknown: Unknown,
        change: impl FnOnce(Value) -> Result<Value, Status>,
    ) -> Result<Arc<Object>, Status> {
        self.store.write(|state| write::update(state, &self.ranges, at, unknown, change))
    }

    /// Creates an object or replaces the one there is; makes its namespace if it is missing. For manifests.
    pub(crate) fn apply(&self, at: &ObjectRef, value: Value) -> Result<Arc<Object>, Status> {
        self.store.write(|state| {
            write::ensure_namespace(state, &self.ranges, at)?;
            if state.get(at.resource, &at.key()).is_some() {
                write::update(state, &self.ranges, at, Unknown::Reject, |_| Ok(value))
            } else {
                write::create(state, &self.ranges, at, value, Unknown::Reject)
            }
        })
    }

    /// Deletes an object; a namespace with all that is inside.
    pub(crate) fn delete(&self, at: &ObjectRef) -> Result<Arc<Object>, Status> {
        self.store.write(|state| delete::delete(state, at))
    }

    /// Makes what every cluster has from the start.
    pub(crate) fn bootstrap(&self) {
        bootstrap::fill(self);
    }
}

impl ObjectRef {
    pub(crate) fn new(resource: Resource, namespace: &str, name: &str) -> Self {
        let namespace = if resource.kind().namespaced { namespace } else { "" };
        Self { resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn kind(&self) -> &'static Kind {
        self.resource.kind()
    }

    pub(crate) fn key(&self) -> String {
        key(self.resource, &self.namespace, &self.name)
    }
}

/// The object as it is now.
fn current(state: &State, at: &ObjectRef) -> Result<Arc<Object>, Status> {
    let object = state.get(at.resource, &at.key()).cloned();
    object.ok_or_else(|| Status::not_found(at.kind(), &at.name))
}

#[cfg(test)]
mod tests;
