//! A watch on a file or directory. It uses notifications of the kernel. It also polls periodically,
//! because some changes cause no notification, for example on network file systems and bind mounts,
//! or after the watch has failed.
//!
//! The watch only signals a possible change. The caller reads the path and compares the content.
//! The path is examined on a thread of its own, because it may be on a dead mount.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::blocking_read::BlockingRead;

/// An edit often causes several events. A change is signalled when no further event has followed
/// for this time.
const QUIET: Duration = Duration::from_millis(20);
/// Maximum delay between the first event and the signal.
const LONGEST_DELAY: Duration = Duration::from_millis(200);
/// The shortest polling period.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);

/// The link that the kubelet replaces when a mounted `ConfigMap` or Secret changes. Each file of
/// the mount is a symbolic link whose target begins with this link, such as `..data/stubDomains`.
pub const DATA_LINK: &str = "..data";

/// Watches one path, which need not exist.
#[derive(Debug)]
pub struct PathWatch {
    targets: Arc<Targets>,
    examining: BlockingRead<()>,
    period: Duration,
    next_look: Instant,
}

/// The watched path and its parent directory.
#[derive(Debug)]
struct Targets {
    path: PathBuf,
    notifications: Mutex<Notifications>,
    /// Whether a target has been created, replaced or removed since the last signal.
    is_fresh: AtomicBool,
    wake: Arc<Notify>,
}

#[derive(Debug)]
struct Notifications {
    watcher: Option<RecommendedWatcher>,
    /// The identities of the path and of its parent directory at the last examination.
    watched: [Option<FileIdentity>; 2],
}

/// The identity of a file: its device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl PathWatch {
    /// A watch on `path` that signals at least once per `period`. A period below 100 ms is raised
    /// to 100 ms.
    pub fn new(path: &Path, period: Duration) -> Self {
        // Events have absolute paths, which are compared with this path.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let wake = Arc::new(Notify::new());
        let handler = event_handler(path.clone(), Arc::clone(&wake));
        let watcher = notify::recommended_watcher(handler)
            .inspect_err(|error| {
                let path = path.display();
                warn!(%path, %error, ?period, "file notifications are unavailable, so the path is polled periodically");
            })
            .ok();

        let notifications = Mutex::new(Notifications {
            watcher,
            watched: [None, None],
        });
        let targets = Arc::new(Targets {
            path,
            notifications,
            is_fresh: AtomicBool::new(false),
            wake,
        });
        let period = period.max(SHORTEST_PERIOD);
        Self {
            targets,
            examining: BlockingRead::default(),
            period,
            next_look: Instant::now() + period,
        }
    }

    /// Waits until the path may have changed. Returns at once if the path or its parent directory
    /// has been created, replaced or removed since the previous call. The first call returns at
    /// once if the path or its parent directory exists.
    ///
    /// Cancel safe: dropping the future misses no change.
    pub async fn changed(&mut self) {
        let targets = Arc::clone(&self.targets);
        // An examination that hangs continues on its thread, and can wake a later call.
        let _ = self.examining.run(move || targets.examine()).await;
        if self.targets.is_fresh.swap(false, Ordering::SeqCst) {
            // Returning here signals all events so far, so a pending notification is discarded.
            let _ = self.targets.wake.notified().now_or_never();
            return;
        }

        tokio::select! {
            () = self.targets.wake.notified() => {
                // The notification is consumed. If the future is dropped during this wait, the next
                // call must return at once.
                self.next_look = Instant::now();
                self.wait_for_last_event().await;
            }
            () = tokio::time::sleep_until(self.next_look) => {}
        }

        self.targets.is_fresh.store(false, Ordering::SeqCst);
        self.next_look = Instant::now() + self.period;
    }

    /// Waits until no event has arrived for [`QUIET`], at most [`LONGEST_DELAY`].
    async fn wait_for_last_event(&self) {
        // A file that is written all the time must not postpone the signal for ever.
        let deadline = Instant::now() + LONGEST_DELAY;
        while Instant::now() < deadline {
            let next_event = self.targets.wake.notified();
            if tokio::time::timeout(QUIET, next_event).await.is_err() {
                return;
            }
        }
    }
}

impl Targets {
    /// Watches the path and its parent directory, and notes if one of them has been created,
    /// replaced or removed. May block.
    fn examine(&self) {
        let mut notifications = self
            .notifications
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Notifications { watcher, watched } = &mut *notifications;

        let targets = [self.path.clone(), parent_of(&self.path)];
        for (target, watched) in targets.iter().zip(watched) {
            let identity = file_identity(target);
            // The kernel watches an inode, not a path. So the watch is renewed only if the path has
            // a new inode.
            if identity == *watched {
                continue;
            }
            self.is_fresh.store(true, Ordering::SeqCst);
            self.wake.notify_one();
            *watched = identity;

            let Some(watcher) = watcher else { continue };
            // `unwatch` fails if the kernel removed the watch together with the file.
            let _ = watcher.unwatch(target);
            if identity.is_some()
                && let Err(error) = watcher.watch(target, RecursiveMode::NonRecursive)
            {
                debug!(path = %target.display(), %error, "the path cannot be watched, so it is polled periodically");
            }
        }
    }
}

fn parent_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

fn file_identity(path: &Path) -> Option<FileIdentity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
    })
}

/// The event handler. It signals changes of the path, of files below the path, and of the link
/// [`DATA_LINK`] in the parent directory. It ignores reads. It also signals lost events and errors
/// of the watch.
fn event_handler(
    path: PathBuf,
    wake: Arc<Notify>,
) -> impl Fn(notify::Result<Event>) + Send + 'static {
    move |event| {
        let is_relevant = match &event {
            Ok(event) => {
                event.need_rescan() || (is_change(event.kind) && concerns_path(event, &path))
            }
            // After an error of the watch a change may have been missed.
            Err(_) => true,
        };
        if is_relevant {
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

/// Whether the event is about the path, or about the link through which a file of a mounted
/// `ConfigMap` is reached.
fn concerns_path(event: &Event, path: &Path) -> bool {
    // When the kubelet updates the mount, it replaces this link, not the file itself.
    let link = parent_of(path).join(DATA_LINK);
    event
        .paths
        .iter()
        .any(|changed| changed.starts_with(path) || *changed == link)
}

#[cfg(test)]
mod tests {
    use testkit::config_map::replace;

    use super::*;

    #[tokio::test]
    async fn dropped_calls_miss_no_edit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut watch = PathWatch::new(file.path(), Duration::from_hours(1));
        watch.changed().await;
        std::fs::write(file.path(), "new").unwrap();
        let briefly = QUIET / 4;
        let seen = async {
            while tokio::time::timeout(briefly, watch.changed())
                .await
                .is_err()
            {}
        };
        let seen = tokio::time::timeout(Duration::from_secs(30), seen).await;
        assert!(seen.is_ok(), "the edit was not seen");
    }

    #[tokio::test]
    async fn single_file_of_mount_is_followed() {
        let mount = tempfile::tempdir().unwrap();
        replace(mount.path(), &[("resolv.conf", "nameserver 192.0.2.1")]).unwrap();
        let path = mount.path().join("resolv.conf");
        let mut watch = PathWatch::new(&path, Duration::from_hours(1));
        for update in 1..4 {
            let quiet = async {
                while tokio::time::timeout(4 * QUIET, watch.changed())
                    .await
                    .is_ok()
                {}
            };
            quiet.await;
            // The watch is already waiting, so only an event of the link can show the update.
            let update_mount = async {
                tokio::time::sleep(QUIET).await;
                replace(mount.path(), &[("resolv.conf", "nameserver 192.0.2.2")]).unwrap();
            };
            let change = tokio::time::timeout(Duration::from_secs(30), watch.changed());
            let (seen, ()) = tokio::join!(change, update_mount);
            assert!(seen.is_ok(), "update {update} was not seen");
        }
    }

    /// A held lock simulates a mount that hangs.
    #[tokio::test]
    async fn hung_examination_does_not_block_runtime() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut watch = PathWatch::new(file.path(), Duration::from_hours(1));
        let targets = Arc::clone(&watch.targets);
        let (locked, is_locked) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let mount = std::thread::spawn(move || {
            let _hung = targets.notifications.lock().unwrap();
            locked.send(()).unwrap();
            released.recv().unwrap();
        });
        is_locked.recv().unwrap();

        // The runtime of this test has one thread, which the examination must not block.
        let waited = tokio::time::timeout(Duration::from_millis(50), watch.changed()).await;
        assert!(
            waited.is_err(),
            "the call returned although the examination hangs"
        );
        release.send(()).unwrap();
        mount.join().unwrap();
        let seen = tokio::time::timeout(Duration::from_secs(30), watch.changed()).await;
        assert!(seen.is_ok(), "the path was not seen after the hang");
    }
}
