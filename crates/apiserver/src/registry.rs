//! What clients may do to objects: create, update, patch, delete, with the defaults, checks and allocations of a real
//! server, on top of the plain [`Store`].

mod bootstrap;
mod delete;
mod write;

use std::sync::Arc;

use ipnet::IpNet;
use serde_json::Value;

pub(crate) use self::delete::Deletion;
use crate::kinds::{Kind, Resource};
use crate::object::{Object, key};
use crate::schema::{self, Unknown};
use crate::status::Status;
use crate::store::{State, Store};

/// Where an object is, as named in a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) resource: Resource,
    /// Empty for resources without namespaces.
    pub(crate) namespace: String,
    /// Empty while the server has yet to make a name.
    pub(crate) name: String,
}

/// Which part of an object a write is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but the status.
    Main,
    /// The status alone.
    Status,
    /// Everything: what manifests say.
    All,
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
    pub(crate) fn get(&self, place: &Place) -> Result<Arc<Object>, Status> {
        self.store
            .get(place.resource, &place.namespace, &place.name)
            .ok_or_else(|| Status::not_found(place.kind(), &place.name))
    }

    /// Creates an object. With `dry_run` nothing is stored.
    pub(crate) fn create(&self, place: &Place, value: Value, dry_run: bool) -> Result<Arc<Object>, Status> {
        self.store.write(|state| write::create(state, &self.ranges, place, value, Part::Main, dry_run))
    }

    /// Replaces an object by what `change` makes of it.
    pub(crate) fn update(
        &self,
        place: &Place,
        part: Part,
        dry_run: bool,
        change: impl FnOnce(Value) -> Result<Value, Status>,
    ) -> Result<Arc<Object>, Status> {
        self.store.write(|state| write::update(state, &self.ranges, place, part, dry_run, change))
    }

    /// Creates an object or replaces the one there is; makes its namespace if it is missing. For manifests.
    pub(crate) fn apply(&self, place: &Place, mut value: Value) -> Result<Arc<Object>, Status> {
        schema::check(place.kind(), &mut value, Unknown::Refuse)?;
        self.store.write(|state| {
            write::ensure_namespace(state, &self.ranges, place)?;
            if state.get(place.resource, &place.key()).is_some() {
                write::update(state, &self.ranges, place, Part::All, false, |_| Ok(value))
            } else {
                write::create(state, &self.ranges, place, value, Part::All, false)
            }
        })
    }

    /// Deletes an object; a namespace with all that is inside.
    pub(crate) fn delete(&self, place: &Place, deletion: &Deletion) -> Result<Arc<Object>, Status> {
        self.store.write(|state| delete::delete(state, place, deletion))
    }

    /// Deletes those objects of a resource that `select` picks, and returns them.
    pub(crate) fn delete_all(
        &self,
        resource: Resource,
        dry_run: bool,
        select: impl Fn(&Object) -> bool,
    ) -> Result<Vec<Arc<Object>>, Status> {
        self.store.write(|state| delete::delete_all(state, resource, dry_run, select))
    }

    /// Makes what every cluster has from the start.
    pub(crate) fn bootstrap(&self) {
        bootstrap::fill(self);
    }
}

impl Place {
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
fn current(state: &State, place: &Place) -> Result<Arc<Object>, Status> {
    state
        .get(place.resource, &place.key())
        .cloned()
        .ok_or_else(|| Status::not_found(place.kind(), &place.name))
}

#[cfg(test)]
mod tests;
