//! Reads the snapshot file at the start. A separate thread reads, because a volume can hang.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use cluster::persist::{self, Saved, SnapshotError};

/// The longest time for which the first lists wait for the file, because listed and restored
/// objects must not mix. A hundred thousand Services take about a second.
const HOLD: Duration = Duration::from_secs(2);

/// The content of the snapshot file; `None` if the file does not exist.
pub(super) type Loaded = Result<Option<Saved>, SnapshotError>;

/// A read of the snapshot file.
#[derive(Debug)]
pub struct Loading {
    directory: PathBuf,
    reply: oneshot::Receiver<Loaded>,
    begun: Instant,
    /// Whether the slow read has been logged.
    hangs: bool,
}

impl Loading {
    /// Starts to read the file in `directory`. `domain` is the identity that the file must have:
    /// the cluster domain and some flags.
    ///
    /// # Errors
    ///
    /// When the thread cannot start.
    pub fn begin(directory: PathBuf, domain: &str) -> std::io::Result<Self> {
        let (answer, reply) = oneshot::channel();
        let (from, domain) = (directory.clone(), domain.to_owned());
        // No task waits for this thread, not even at shutdown.
        std::thread::Builder::new()
            .name("snapshot".to_owned())
            .spawn(move || {
                let _ = answer.send(persist::load(&from, &domain));
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
    pub(super) fn holds(&self) -> bool {
        self.begun.elapsed() < HOLD
    }

    /// Logs a read that takes too long, once.
    pub(super) fn notice_hanging(&mut self) {
        if !self.holds() && !std::mem::replace(&mut self.hangs, true) {
            let (directory, waited) = (self.directory.display(), HOLD);
            tracing::error!(%directory, ?waited, "snapshot file not read in time, no longer waiting for it");
        }
    }
}

/// Returns the content once it is read. If no read is in progress, never returns. Cancel safe.
pub(super) async fn loaded(loading: &mut Option<Loading>) -> Loaded {
    match loading {
        // The thread always sends a reply before it ends.
        Some(loading) => (&mut loading.reply).await.unwrap_or(Ok(None)),
        None => std::future::pending().await,
    }
}

/// Returns the content if it is read within `patience`. If no read is in progress, returns `None`
/// at once.
pub(super) async fn within(loading: &mut Option<Loading>, patience: Duration) -> Option<Loaded> {
    loading.as_ref()?;
    tokio::time::timeout(patience, loaded(loading)).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sockets are already bound during `within`, so clients get no response until it returns.
    #[tokio::test(start_paused = true)]
    async fn a_start_without_a_file_waits_for_none() {
        let begun = Instant::now();
        assert!(within(&mut None, HOLD).await.is_none());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
