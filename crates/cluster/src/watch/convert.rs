//! Conversion of API objects to the events of a feed.
//!
//! A feed works with any kind of objects through this trait. So the program contains the code of a
//! feed once for each event type, not once for each kind. Eleven copies, one for each kind, made up
//! a twentieth of the program.

use std::convert::Infallible;

use crate::objects::{Change, Encoded, FromApi, MalformedObject, ObjectKey, Parsed};

/// Converts the changes of one kind of objects to events.
pub(super) trait Convert<E>: Send + Sync {
    /// Reads an object. Returns the object's key, and the event for [`Change::Apply`].
    fn apply(&self, object: &Encoded) -> Result<(ObjectKey, Parsed<E>), MalformedObject>;

    /// The event of a change without an object.
    fn other(&self, change: Change<Infallible>) -> E;
}

/// Converts changes of `T`s.
pub(super) struct Wrap<T, E>(pub(super) fn(Change<T>) -> E);

impl<T: FromApi, E> Convert<E> for Wrap<T, E> {
    fn apply(&self, object: &Encoded) -> Result<(ObjectKey, Parsed<E>), MalformedObject> {
        let parsed = T::read(object)?;
        let key = parsed.object.key().clone();
        Ok((key, parsed.map(|object| (self.0)(Change::Apply(object)))))
    }

    fn other(&self, change: Change<Infallible>) -> E {
        (self.0)(change.map(|never| match never {}))
    }
}
