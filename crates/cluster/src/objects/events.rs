//! Changes of objects, and the events that carry them to the index.
//!
//! A feed lists and watches a collection of objects, and an [`EventConverter`] turns the objects
//! into events. So the code of the feed need not know the types of the objects.

use std::convert::Infallible;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::parse::{Encoded, FromApi, MalformedObject, Parsed};
use super::{
    EndpointSlice, Endpoints, ImportedSlice, Namespace, Node, ObjectKey, Pod, Service,
    ServiceImport,
};

/// A change of the objects of one kind. A list is `RelistStarted`, then `Apply` for each object,
/// then `RelistDone`. At `RelistDone`, known objects that the list did not contain are deleted. An
/// interrupted list is followed by another `RelistStarted`.
///
/// If each namespace is listed on its own, `RelistDoneIn` follows the objects of a namespace.
/// `RelistDone` follows when all namespaces are complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// A list begins.
    RelistStarted,
    /// The object was listed, created or changed.
    Apply(T),
    /// The list is complete for this namespace. Known objects of the namespace that the list did
    /// not contain are deleted.
    RelistDoneIn(SmolStr),
    /// The list is complete.
    RelistDone,
    /// The object was deleted, or a change made it invalid ([`MalformedObject`]).
    Deleted(ObjectKey),
}

impl<T> Change<T> {
    /// Converts the object with `convert`, if the change contains an object.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Change<U> {
        match self {
            Self::RelistStarted => Change::RelistStarted,
            Self::Apply(object) => Change::Apply(convert(object)),
            Self::RelistDoneIn(namespace) => Change::RelistDoneIn(namespace),
            Self::RelistDone => Change::RelistDone,
            Self::Deleted(key) => Change::Deleted(key),
        }
    }
}

/// The kind of objects that endpoints of Services are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EndpointsSource {
    /// Endpoints objects.
    Endpoints,
    /// `EndpointSlice` objects.
    EndpointSlices,
}

/// An event that a feed sends to the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A change of Services.
    Service(Change<Service>),
    /// A change of Endpoints.
    Endpoints(Change<Endpoints>),
    /// A change of slices.
    EndpointSlice(Change<EndpointSlice>),
    /// A change of Nodes; only while federations are configured.
    Node(Change<Node>),
    /// A change of the Node that this process runs on; only with `--prefer-zone=auto` or `hints`.
    /// The zone of this Node is the preferred zone.
    OwnNode(Change<Node>),
    /// A change of the namespaces that `--namespace-selector` matches.
    Namespace(Change<Namespace>),
    /// A change of Pods; only with `--pods=verified` or `node`.
    Pod(Change<Pod>),
    /// A change of `ServiceImport`s; only while the cluster set's zone is served.
    ServiceImport(Change<ServiceImport>),
    /// A change of the slices of `ServiceImport`s.
    ImportedSlice(Change<ImportedSlice>),
    /// The endpoints of this source are used from now on. The event follows the first `RelistDone`
    /// of the source, possibly after further changes of both sources. Before the first such event,
    /// the endpoints are unknown, unless a snapshot file has them.
    ///
    /// While Endpoints are used, changes of slices may be sent as well. If the API server refuses
    /// slices during this time, an empty list removes all slices.
    ///
    /// While slices are used and can be read, no changes of Endpoints are sent. When changes of
    /// Endpoints are sent again, they begin with a list.
    EndpointsFrom(EndpointsSource),
    /// Slices are used but can no longer be read. The index switches to Endpoints, unless the
    /// Endpoints of a Service lack addresses of its slices. This check leaves out Services whose
    /// records do not depend on their endpoints.
    EndpointsInsteadOfSlices,
}

/// Converts the changes of one kind of objects to events.
pub(crate) trait EventConverter<E>: Send + Sync {
    /// Reads an object and returns an event that contains it in [`Change::Apply`].
    fn convert_object(&self, object: &Encoded) -> Result<KeyedEvent<E>, MalformedObject>;

    /// The event of a change without an object.
    fn convert_without_object(&self, change: Change<Infallible>) -> E;
}

/// The event of an object, with the object's key.
pub(crate) struct KeyedEvent<E> {
    pub(crate) key: ObjectKey,
    pub(crate) parsed: Parsed<E>,
}

/// Converts changes of objects of type `T`.
pub(crate) struct ChangeWrapper<T, E>(pub(crate) fn(Change<T>) -> E);

impl<T: FromApi, E> EventConverter<E> for ChangeWrapper<T, E> {
    fn convert_object(&self, object: &Encoded) -> Result<KeyedEvent<E>, MalformedObject> {
        let parsed = T::read(object)?;
        let key = parsed.object.key().clone();

        Ok(KeyedEvent {
            key,
            parsed: parsed.map(|object| (self.0)(Change::Apply(object))),
        })
    }

    fn convert_without_object(&self, change: Change<Infallible>) -> E {
        (self.0)(change.map(|never| match never {}))
    }
}
