//! The observable state of a feed.

use tokio::time::Instant;

/// State of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedState {
    /// Whether a whole list has been sent and not forgotten.
    pub listed: bool,
    /// Its current phase.
    pub phase: Phase,
    /// The start of this phase.
    pub since: Instant,
}

/// Phase of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is not watching: it has just started, or requests fail.
    Away,
    /// The watch is open.
    Following,
    /// Reading the collection is refused.
    Refused,
}
