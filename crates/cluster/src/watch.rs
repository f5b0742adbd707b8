//! Watching the API server: each kind of objects is listed and then watched, for ever.
//!
//! Invariants, whatever the API server does: a watch that breaks, however often, is resumed where it ended, and a list
//! at its last page; only where the API server no longer knows our version, or its history is another one, everything is
//! listed again, and nothing counts as gone before such a list is complete. A silent watch is opened anew, since a dead
//! connection is silent too. One malformed object is left out and never stops the others. Failures are retried for
//! ever, with growing pauses.
//!
//! [`Feed`] follows one collection, [`ScopedFeed`] a kind in some namespaces; [`endpoints`] chooses between Endpoints and `EndpointSlice`s. What the objects mean
//! is not known here.

mod collection;
mod complaints;
mod encoding;
mod ended;
pub mod endpoints;
mod events;
mod exchange;
mod failure;
mod feed;
mod history;
mod list;
mod malformed;
mod metrics;
pub mod nodes;
mod pace;
mod pauses;
mod pieces;
mod position;
mod scoped;
mod state;
mod status;

use std::time::Instant;

pub use collection::Collection;
pub use exchange::get;
pub use failure::Failure;
pub use feed::{Closed, Feed};
pub use metrics::{FeedMetrics, WatchMetrics};
pub use pace::Pace;
pub use scoped::ScopedFeed;
pub use state::{FeedState, Phase};

/// An event and when it reached this process.
#[derive(Debug)]
pub struct Received<E> {
    /// The event.
    pub event: E,
    /// When the bytes that tell it had arrived.
    pub at: Instant,
}
