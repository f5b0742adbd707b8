//! A watch on a file or directory: kernel notifications, and periodic polling for changes without notification
//! (network file systems, bind mounts, failed watches).
//!
//! The watch only signals a possible change. The caller reads the path and compares the content.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, warn};

/// An edit often causes several events. A change is signalled when no further event has followed for this time.
const QUIET: Duration = Duration::from_millis(20);
/// Maximum delay between the first event and the signal.
const LONGEST_DELAY: Duration = Duration::from_millis(200);
/// The shortest polling period.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);

/// Watches one path, which need not exist.
#[derive(Debug)]
pub struct PathWatch {
    path: PathBuf,
    wake: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    /// The watched path and its parent directory, by device and inode.
    watched: [Option<(u64, u64)>; 2],
    period: Duration,
    next_look: Instant,
}

impl PathWatch {
    /// A watch on `path` that signals at least once per `period`. A period below 100 ms is raised to 100 ms.
    pub fn new(path: &Path, period: Duration) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let wake = Arc::new(Notify::new());
        let watcher = notify::recommended_watcher(waker(path.clone(), Arc::clone(&wake)))
            .inspect_err(|error| {
                warn!(path = %path.display(), %error, ?period, "file notifications unavailable, polling periodically");
            })
            .ok();
        let period = period.max(SHORTEST_PERIOD);
        Self { path, wake, watcher, watched: [None, None], period, next_look: Instant::now() + period }
    }

    /// Waits until the path may have changed. Returns at once if the path or its parent directory is another file than
    /// at the previous call. The first call returns at once if the path or its parent directory exists.
    ///
    /// Cancel safe: dropping the future misses no change.
    pub async fn changed(&mut self) {
        if self.arm() {
            return;
        }
        tokio::select! {
            () = self.wake.notified() => {
                // The notification is consumed. If the future is dropped during `settle`, the next call must return
                // at once.
                self.next_look = Instant::now();
                self.settle().await;
            }
            () = tokio::time::sleep_until(self.next_look) => {}
        }
        self.next_look = Instant::now() + self.period;
    }

    /// Waits until no event has arrived for [`QUIET`], at most [`LONGEST_DELAY`].
    async fn settle(&self) {
        let deadline = Instant::now() + LONGEST_DELAY;
        while Instant::now() < deadline {
            if tokio::time::timeout(QUIET, self.wake.notified()).await.is_err() {
                return;
            }
        }
    }

    /// Watches the path and its parent directory. Returns true if either is another file than at the previous call.
    fn arm(&mut self) -> bool {
        let targets = [self.path.clone(), parent(&self.path)];
        let mut fresh = false;
        for (target, watched) in targets.iter().zip(&mut self.watched) {
            let identity = identity(target);
            if identity == *watched {
                continue;
            }
            fresh = true;
            *watched = identity;
            let Some(watcher) = &mut self.watcher else { continue };
            // `unwatch` fails if the kernel removed the watch together with the file.
            let _ = watcher.unwatch(target);
            if identity.is_some()
                && let Err(error) = watcher.watch(target, RecursiveMode::NonRecursive)
            {
                debug!(path = %target.display(), %error, "path is not watched, polling periodically");
            }
        }
        fresh
    }
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// The event handler: signals every event of the path, and of files in a watched directory, except reads.
fn waker(path: PathBuf, wake: Arc<Notify>) -> impl Fn(notify::Result<Event>) + Send + 'static {
    move |event| {
        let relevant = match &event {
            Ok(event) => event.need_rescan() || (is_change(event.kind) && concerns(event, &path)),
            Err(_) => true,
        };
        if relevant {
            wake.notify_one();
        }
    }
}

fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

fn concerns(event: &Event, path: &Path) -> bool {
    event.paths.iter().any(|changed| changed.starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_edit_is_not_missed_by_one_who_drops_every_call_early() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut watch = PathWatch::new(file.path(), Duration::from_hours(1));
        watch.changed().await;
        std::fs::write(file.path(), "new").unwrap();
        let briefly = QUIET / 4;
        let seen = async { while tokio::time::timeout(briefly, watch.changed()).await.is_err() {} };
        let seen = tokio::time::timeout(Duration::from_secs(30), seen).await;
        assert!(seen.is_ok(), "the edit was not seen");
    }
}
