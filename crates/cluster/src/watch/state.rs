//! What others may know of a feed.

use tokio::time::Instant;

/// How a feed is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedState {
    /// A list has been sent on in full since the start, and was not forgotten.
    pub listed: bool,
    /// What it is doing now.
    pub phase: Phase,
    /// Since when.
    pub since: Instant,
}

/// What a feed is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is not watching: it has just begun, or the API server does not answer as it should.
    Away,
    /// The watch is open.
    Following,
    /// We may not read this.
    Refused,
}
