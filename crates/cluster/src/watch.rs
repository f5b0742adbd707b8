//! Watches of the API server: each kind of objects is listed and then watched, forever.
//!
//! Invariants, whatever the API server does:
//! - An interrupted watch is resumed at its last resource version, an interrupted list at its last
//!   page.
//! - All objects are listed again only if the API server no longer knows the resource version, or
//!   if the API server's database was wiped or restored (see `history`). No object is removed
//!   before that list is complete.
//! - A silent watch is reopened, because its connection may be dead.
//! - A malformed object is ignored and never affects other objects.
//! - Failures are retried forever, with growing pauses.
//!
//! [`Feed`] follows one collection, and [`ScopedFeed`] follows a kind in some namespaces.
//! [`endpoints`] chooses between Endpoints and `EndpointSlice`s. This module does not interpret the
//! objects.

mod collection;
mod convert;
mod encoding;
pub mod endpoints;
mod events;
mod exchange;
mod failure;
mod failure_log;
mod feed;
mod history;
mod list;
mod malformed;
mod metrics;
pub mod nodes;
mod pauses;
mod pieces;
mod position;
mod scoped;
mod state;
mod status;
mod timing;
mod watch_end;

use std::time::Instant;

pub use collection::Collection;
pub use exchange::{get, list};
pub use failure::Failure;
pub(crate) use failure_log::Outage;
pub use feed::{Closed, Feed};
pub use metrics::{FeedMetrics, WatchMetrics};
pub use scoped::ScopedFeed;
pub use state::{FeedState, Phase};
pub use timing::WatchTiming;

/// An event and the time when it reached this process.
#[derive(Debug)]
pub struct Received<E> {
    /// The event.
    pub event: E,
    /// The time when the whole event had been received.
    pub at: Instant,
}
