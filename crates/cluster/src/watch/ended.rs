//! Meaning of the end of a watch.

use std::time::Duration;

use super::failure::Failure;

/// A watch that ends sooner than this is a failure, lest it be opened again and again.
const BRIEF: Duration = Duration::from_secs(1);

/// End of a watch whose response was complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// When it was to end, after events or bookmarks.
    AsAgreed,
    /// Before its time: the API server is being stopped, and may come back with another history.
    Early,
    /// In silence: a watch from a version of another history looks like this.
    Mute,
}

impl Watched {
    /// Judges a watch that has `lasted` so long, which was `asked` for another time, and was `mute` or not.
    pub(super) fn judge(lasted: Duration, asked: Duration, mute: bool) -> Result<Self, Failure> {
        match mute {
            _ if lasted < BRIEF => Err(Failure::Brief(lasted)),
            true => Ok(Self::Mute),
            // API servers cut the time in whole seconds.
            false if lasted + Duration::from_secs(2) < asked => Ok(Self::Early),
            false => Ok(Self::AsAgreed),
        }
    }
}
