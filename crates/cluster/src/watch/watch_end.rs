//! Assessment of the end of a watch. `history` explains histories of the API server.

use std::time::Duration;

use super::failure::Failure;

/// Shortest duration of a watch. A shorter watch counts as a failure, so that reopening it is delayed.
const BRIEF: Duration = Duration::from_secs(1);

/// The end of a watch with a complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchEnd {
    /// It ended after the requested time, with events or bookmarks.
    OnTime,
    /// It ended early: the API server is shutting down, and may return with another history.
    Early,
    /// It was silent, as is a watch from a version of another history.
    Silent,
}

impl WatchEnd {
    /// Assesses a watch: `lasted` is its duration, `asked` the requested duration; `silent` if it had no event.
    pub(super) fn assess(lasted: Duration, asked: Duration, silent: bool) -> Result<Self, Failure> {
        match silent {
            _ if lasted < BRIEF => Err(Failure::Brief(lasted)),
            true => Ok(Self::Silent),
            // API servers round the duration down to whole seconds.
            false if lasted + Duration::from_secs(2) < asked => Ok(Self::Early),
            false => Ok(Self::OnTime),
        }
    }
}
