//! The snapshot file at the start: read on a thread of its own, so that nothing waits for a volume that hangs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use cluster::persist::{self, Saved, SnapshotError};

/// The longest time for which the first lists wait for the file: listed and restored objects must not mix. A hundred
/// thousand Services take about a second.
const HOLD: Duration = Duration::from_secs(2);

/// The content of the snapshot file; `None` if there is no file.
pub(super) type Loaded = Result<Option<Saved>, SnapshotError>;

/// The snapshot file while it is being read.
#[derive(Debug)]
pub struct Loading {
    directory: PathBuf,
    reply: oneshot::Receiver<Loaded>,
    begun: Instant,
    /// Whether the hang has been logged.
    hangs: bool,
}

impl Loading {
    /// Begins to read the file in `directory`, for the cluster domain `domain`.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn begin(directory: PathBuf, domain: &str) -> std::io::Result<Self> {
        let (answer, reply) = oneshot::channel();
        let (from, domain) = (directory.clone(), domain.to_owned());
        // Nothing waits for this thread, not even the end of the process.
        std::thread::Builder::new().name("snapshot".to_owned()).spawn(move || {
            let _ = answer.send(persist::load(&from, &domain));
        })?;
        Ok(Self { directory, reply, begun: Instant::now(), hangs: false })
    }

    /// Directory of the file.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the first lists still wait for the file.
    pub(super) fn holds(&self) -> bool {
        self.begun.elapsed() < HOLD
    }

    /// Logs a file that takes too long, once.
    pub(super) fn notice_hanging(&mut self) {
        if !self.holds() && !std::mem::replace(&mut self.hangs, true) {
            let (directory, waited) = (self.directory.display(), HOLD);
            tracing::error!(%directory, ?waited, "snapshot file not read in time, no longer waiting for it");
        }
    }
}

/// The content, once it is read; never returns if nothing is being read. Cancel safe.
pub(super) async fn loaded(loading: &mut Option<Loading>) -> Loaded {
    match loading {
        // The thread answers before it ends.
        Some(loading) => (&mut loading.reply).await.unwrap_or(Ok(None)),
        None => std::future::pending().await,
    }
}

/// The content, if it is read within `patience`; `None` at once if nothing is being read.
pub(super) async fn within(loading: &mut Option<Loading>, patience: Duration) -> Option<Loaded> {
    loading.as_ref()?;
    tokio::time::timeout(patience, loaded(loading)).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Until `within` returns, sockets are bound and clients get no answer.
    #[tokio::test(start_paused = true)]
    async fn a_start_without_a_file_waits_for_none() {
        let begun = Instant::now();
        assert!(within(&mut None, HOLD).await.is_none());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
