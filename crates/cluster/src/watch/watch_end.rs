//! Assessment of the end of a watch. The module `history` explains the histories of the API
//! server's database.

use std::time::Duration;

use super::failure::Failure;

/// Shortest duration of a watch. A shorter watch counts as a failure, so that the next watch is
/// delayed.
const BRIEF: Duration = Duration::from_secs(1);

/// The end of a watch without a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchEnd {
    /// The watch ended after the requested time, with events or bookmarks.
    OnTime,
    /// The watch ended early. The API server is shutting down, and may return with a wiped or
    /// restored database.
    Early,
    /// The watch had no event. A watch from a version of a wiped or restored database is silent,
    /// too.
    Silent,
}

impl WatchEnd {
    /// Assesses a watch: `lasted` is the actual duration, `asked` the requested duration. `silent`
    /// means that there was no event.
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
