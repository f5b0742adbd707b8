//! The observable state of a feed.

use tokio::time::Instant;

/// State of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedState {
    /// Whether a complete list has been sent, and its objects were not removed since.
    pub listed: bool,
    /// The current phase.
    pub phase: Phase,
    /// The start of the current phase.
    pub since: Instant,
}

/// Phase of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No watch is open: the feed has just started, or requests fail.
    Away,
    /// The watch is open.
    Following,
    /// Reading the collection is refused.
    Refused,
}
