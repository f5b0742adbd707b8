//! Watches of the API server: objects of each kind are listed and then watched, forever.
//!
//! Invariants, whatever the API server does:
//! - An interrupted watch is resumed at its last resource version. An interrupted list is resumed
//!   at the page that failed, as long as the API server may still know the continue token.
//! - A new list replaces a watch in three cases only: the API server no longer knows the resource
//!   version; the API server's database was wiped or restored; the watch fails several times in a
//!   way that an unreadable event may cause (see `position`). No object is removed before that list
//!   is complete.
//! - While reading is refused, the objects stay. As an exception, a feed removes objects that
//!   kubedns does not need (see `CollectionFeed::dispensable_while`). It lists them again once
//!   reading is permitted.
//! - A silent watch is reopened, because its connection may be dead.
//! - A malformed object is treated as absent and never affects other objects.
//! - Failed lists and watches are retried forever, with growing pauses.
//!
//! [`CollectionFeed`] follows one collection, and [`ScopedFeed`] follows a kind in some namespaces.
//! [`endpoints`] chooses between Endpoints and `EndpointSlice`s. This module does not interpret the
//! objects.
//!
//! ```text
//! feed --> request --> response --> encoding     what is requested, and how it is read
//!   |
//!   +---> position                               where the next list or watch begins
//!   +---> failure --> failure_log                how long to wait, and what to log
//!           +-----> turns                        how long to wait if many instances list
//! ```

mod encoding;
pub mod endpoints;
mod failure;
mod failure_log;
mod feed;
mod metrics;
pub mod nodes;
mod position;
mod request;
mod response;
mod scoped;
mod turns;

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

pub use failure::RequestFailure;
pub(crate) use failure_log::ApiOutage;
pub use feed::{CollectionFeed, ReceiverGone};
pub use metrics::{FeedMetrics, WatchMetrics};
pub use request::{
    Collection, Namespaces, Scope, check_list, get_document, list_first_page, list_objects,
};
pub use scoped::ScopedFeed;
pub use turns::{ListTurns, ListTurnsFinder};

/// An event and the time when it reached this process.
#[derive(Debug)]
pub struct ReceivedEvent<E> {
    /// The event.
    pub event: E,
    /// The time when the whole event had been received.
    pub at: std::time::Instant,
}

/// State of a feed, which other tasks observe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedState {
    /// Whether the feed has passed on a complete list, and has not removed the listed objects
    /// since.
    pub listed: bool,
    /// The current phase.
    pub phase: FeedPhase,
    /// The start of the current phase.
    pub since: Instant,
}

impl FeedState {
    /// The state of a feed that has just started.
    fn started() -> Self {
        Self {
            listed: false,
            phase: FeedPhase::Away,
            since: Instant::now(),
        }
    }
}

/// Phase of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedPhase {
    /// No watch is open. Either the feed has just started, or its last failure concerns every
    /// collection: there are no credentials, or the API server is unreachable, rejects the
    /// credentials, is overloaded or requests a pause.
    Away,
    /// No watch is open. The last failure has another cause, and is not a refusal.
    Failing,
    /// The watch was opened, and no request has failed since then.
    Following,
    /// Reading the collection is refused.
    Refused,
}

/// The timing of a [`CollectionFeed`].
#[derive(Debug, Clone)]
pub struct WatchTiming {
    /// Requested duration of a watch. Each watch takes a random value from this range, so that
    /// replicas do not act at the same time.
    pub watch: RangeInclusive<Duration>,
    /// The longest silence of a watch before the watch is reopened. API servers send a bookmark
    /// each minute if any object of the kind, selected or not, has changed since the last bookmark.
    pub silence: Duration,
    /// Time that a watch may last beyond its requested duration.
    pub overrun: Duration,
    /// Timeout of the head of a response, and of each wait for more data of a list.
    pub response: Duration,
    /// The first pause between failed attempts, and the longest pause if neither `max_pause` nor
    /// `max_pause_refused` applies.
    pub backoff: RangeInclusive<Duration>,
    /// The longest pause while the API server is unreachable or requests a pause, while there are
    /// no credentials, and before a refusal is treated as lasting. The pause is short, so that a
    /// recovery is noticed within seconds. A longer pause that the API server requests has
    /// precedence, up to a minute.
    pub max_pause: Duration,
    /// The longest pause while a refusal is treated as lasting, if the collection is optional and
    /// its objects need not be kept up to date.
    pub max_pause_refused: Duration,
    /// Time after which a refusal is treated as lasting. A starting API server briefly refuses
    /// everything.
    pub refusal_lasts: Duration,
    /// Gives the pause before a list that all instances may need at the same time.
    pub turns: ListTurns,
}

impl Default for WatchTiming {
    fn default() -> Self {
        Self {
            watch: Duration::from_mins(4)..=Duration::from_secs(290),
            silence: Duration::from_secs(100),
            overrun: Duration::from_secs(10),
            response: Duration::from_secs(30),
            backoff: Duration::from_millis(250)..=Duration::from_secs(20),
            max_pause: Duration::from_secs(4),
            max_pause_refused: Duration::from_mins(5),
            refusal_lasts: Duration::from_mins(1),
            turns: ListTurns::default(),
        }
    }
}
