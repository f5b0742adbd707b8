//! State of a feed, for others.

use tokio::time::Instant;

/// State of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedState {
    /// A list has been sent on in full since the start, and was not forgotten.
    pub listed: bool,
    /// Its current phase.
    pub phase: Phase,
    /// Since when.
    pub since: Instant,
}

/// Phase of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is not watching: it has just begun, or the API server does not answer as it should.
    Away,
    /// The watch is open.
    Following,
    /// We may not read this.
    Refused,
}
