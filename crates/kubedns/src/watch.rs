//! Watching the API server: each kind of objects is listed in pages and then watched, for ever.
//!
//! What holds whatever the API server does: a watch that breaks is resumed where it ended; only when that cannot be
//! trusted (the version is too old, the history is another one, the server was away) everything is listed again, and
//! nothing counts as gone before such a list is complete. Silence has a limit, since a dead connection is silent too.
//! One malformed object is left out and never stops the others. Failures are retried for ever, with growing pauses.
//!
//! [`Feed`] follows one collection; [`endpoints`] chooses between Endpoints and `EndpointSlice`s. What the objects mean
//! is not known here.

mod backoff;
mod collection;
mod complaints;
pub mod endpoints;
mod exchange;
mod failure;
mod feed;
mod history;
mod lines;
mod malformed;
pub mod nodes;
mod pace;
mod page;

use std::time::Instant;

pub use collection::Collection;
pub use failure::Failure;
pub use feed::{Closed, Feed, FeedState, Phase};
pub use pace::Pace;

/// An event and when it reached this process.
#[derive(Debug)]
pub struct Received<E> {
    /// What happened.
    pub event: E,
    /// When the bytes that tell it had arrived.
    pub at: Instant,
}
