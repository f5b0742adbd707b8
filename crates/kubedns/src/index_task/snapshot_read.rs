//! Reads the snapshot file at the start. A separate thread reads, because a volume can hang.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use cluster::persist::{self, SavedSnapshot, SnapshotError};

/// The longest time for which the first lists wait for the file. They wait because listed and
/// restored objects must not mix. A file with a hundred thousand Services is read in about a
/// second.
const EVENTS_DELAY: Duration = Duration::from_secs(2);

/// The content of the snapshot file; `None` if the file does not exist.
pub(super) type SnapshotContent = Result<Option<SavedSnapshot>, SnapshotError>;

/// A read of the snapshot file.
#[derive(Debug)]
pub struct SnapshotRead {
    directory: PathBuf,
    reply: oneshot::Receiver<SnapshotContent>,
    begun: Instant,
    /// Whether the slow read has been logged.
    hangs: bool,
}

impl SnapshotRead {
    /// Starts to read the file in `directory`. `domain` is the cluster domain, followed by the
    /// flags that change the content of the file. A file with another `domain` is rejected.
    ///
    /// # Errors
    ///
    /// When the thread cannot start.
    pub fn begin(directory: PathBuf, domain: &str) -> std::io::Result<Self> {
        let (sender, reply) = oneshot::channel();
        let from = directory.clone();
        let domain = domain.to_owned();

        // No task joins this thread. So a read that hangs does not delay the shutdown.
        std::thread::Builder::new()
            .name("snapshot".to_owned())
            .spawn(move || {
                let _ = sender.send(persist::load_snapshot(&from, &domain));
            })?;

        Ok(Self {
            directory,
            reply,
            begun: Instant::now(),
            hangs: false,
        })
    }

    /// Directory of the file.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the first lists still have to wait for the file.
    pub(super) fn delays_events(&self) -> bool {
        self.begun.elapsed() < EVENTS_DELAY
    }

    /// Logs a read that takes too long, once.
    pub(super) fn report_hanging(&mut self) {
        if self.delays_events() || self.hangs {
            return;
        }
        self.hangs = true;
        tracing::error!(
            directory = %self.directory.display(),
            waited = ?EVENTS_DELAY,
            "the snapshot file was not read in time, so kubedns no longer waits for it"
        );
    }
}

/// Returns the content once it is read. If no read is in progress, never returns. Cancel safe.
pub(super) async fn content(read: &mut Option<SnapshotRead>) -> SnapshotContent {
    match read {
        // The thread always sends a reply before it ends.
        Some(read) => (&mut read.reply).await.unwrap_or(Ok(None)),
        None => std::future::pending().await,
    }
}

/// Returns the content if it is read within `timeout`. If no read is in progress, returns `None` at
/// once.
pub(super) async fn content_within(
    timeout: Duration,
    read: &mut Option<SnapshotRead>,
) -> Option<SnapshotContent> {
    read.as_ref()?;
    tokio::time::timeout(timeout, content(read)).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// kubedns answers no queries while `content_within` waits. So `content_within` must return at
    /// once if no read is in progress.
    #[tokio::test(start_paused = true)]
    async fn start_without_read_does_not_wait() {
        let begun = Instant::now();
        assert!(content_within(EVENTS_DELAY, &mut None).await.is_none());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
