//! The directory of the servers file and the status file: the directory of `-stateDir`, or the
//! nanny's own directory, which the nanny creates and later removes.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use parking_lot::Mutex;

/// Parents of the nanny's own directory, in the order in which they are tried. Container runtimes
/// usually mount a writable `/dev/shm`, even if the root file system is read-only.
const PLACES: [&str; 3] = ["/run", "/tmp", "/dev/shm"];

/// Prefix of the name of the nanny's own directory; the process ID follows.
const PREFIX: &str = "dnsmasq-nanny-";
/// The lock file in the nanny's own directory. The lock is held while the nanny lives, and works
/// across PID namespaces.
const LOCK: &str = ".lock";

/// The file written to test whether a directory is usable.
const PROBE: &str = ".probe";
/// The space that a directory needs, in octets: enough for a servers file with a few hundred stub
/// domains and for the status file, and for the new version of each file while it is replaced.
const ROOM: usize = 64 << 10;

/// Maximum number of directory entries that are searched for leftovers.
const MAX_ENTRIES: usize = 10_000;

/// A writable directory.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    /// The lock of the nanny's own directory; `None` for the directory of `-stateDir`.
    own_lock: Option<Mutex<File>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StateDirError {
    #[error("cannot use the state directory {path:?}: {reason}")]
    Given { path: PathBuf, reason: io::Error },
    #[error("none of {} is writable and has space; set -stateDir to a writable directory with free space", PLACES.join(", "))]
    Nowhere,
}

impl StateDir {
    /// Opens `given`. Without `given`, removes the directories of killed nannies from [`PLACES`],
    /// and creates a directory in the first writable place with enough space.
    ///
    /// If `given` lacks space, a directory in [`PLACES`] is used instead. Other faults of `given`
    /// are errors.
    pub(crate) fn open(given: Option<&Path>) -> Result<Self, StateDirError> {
        let Some(path) = given else {
            return Self::create_own();
        };

        match prepare_directory(path) {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                own_lock: None,
            }),
            Err(reason) if is_lack_of_space(&reason) => {
                tracing::warn!(?path, %reason, "the state directory has no space, using another one");
                Self::create_own()
            }
            Err(reason) => Err(StateDirError::Given {
                path: path.to_owned(),
                reason,
            }),
        }
    }

    fn create_own() -> Result<Self, StateDirError> {
        for place in PLACES {
            remove_leftovers(Path::new(place));
        }

        let name = format!("{PREFIX}{}", std::process::id());
        for place in PLACES {
            let path = Path::new(place).join(&name);
            if let Ok(lock) = create_locked(&path) {
                return Ok(Self {
                    path,
                    own_lock: Some(Mutex::new(lock)),
                });
            }
        }
        Err(StateDirError::Nowhere)
    }

    pub(crate) fn file_path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file so that readers see either the old or the new content. All users may read the
    /// file, because dnsmasq may run as another user. A directory that was removed is created
    /// again.
    pub(crate) fn write_file(&self, name: &str, content: &[u8]) -> io::Result<()> {
        match replace_file(&self.path, name, content) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.recreate()?;
                tracing::warn!(path = ?self.path, "the state directory was removed, and the nanny created it again");
                replace_file(&self.path, name, content)
            }
            outcome => outcome,
        }
    }

    /// Creates a removed directory again. If it is the nanny's own directory, also takes a new
    /// lock, because the lock file was removed with the directory.
    fn recreate(&self) -> io::Result<()> {
        match &self.own_lock {
            Some(lock) => *lock.lock() = create_locked(&self.path)?,
            None => prepare_directory(&self.path)?,
        }
        Ok(())
    }

    /// Removes the nanny's own directory. The directory of `-stateDir` is kept.
    pub(crate) fn remove(self) {
        if self.own_lock.is_some() {
            // A directory that cannot be removed only takes space.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Creates and locks the nanny's own directory. A directory left by an earlier process with the
/// same ID is reused.
fn create_locked(path: &Path) -> io::Result<File> {
    prepare_directory(path)?;
    check_owner(path)?;

    let lock = File::create(path.join(LOCK))?;
    lock.try_lock()?;
    Ok(lock)
}

/// Removes the directories of killed nannies. A directory is removed if the nanny's user owns it,
/// the process ID in the directory's name belongs to no process, and the lock file is unlocked. The
/// ID alone proves nothing, because containers may share the parent directory without seeing each
/// other's processes. The lock alone proves nothing, because a starting nanny creates the file
/// before it takes the lock.
fn remove_leftovers(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else {
        return;
    };

    // A shared /tmp may have many entries of other programs.
    for entry in entries.flatten().take(MAX_ENTRIES) {
        let path = entry.path();
        if !is_leftover(&path) {
            continue;
        }
        match fs::remove_dir_all(&path) {
            Ok(()) => tracing::info!(?path, "removed the directory of an earlier nanny"),
            Err(error) => {
                tracing::debug!(?path, %error, "cannot remove the directory of an earlier nanny");
            }
        }
    }
}

fn is_leftover(path: &Path) -> bool {
    let Some(pid) = pid_of_directory(path).filter(|pid| *pid > 0) else {
        return false;
    };
    // kill(2) without a signal only checks whether the process exists.
    let gone = kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH);
    gone && check_owner(path).is_ok() && is_unlocked(path)
}

/// The process ID in the name of a nanny's own directory.
fn pid_of_directory(path: &Path) -> Option<i32> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// Returns whether the directory has a lock file that is unlocked. A directory without a lock file
/// is foreign, or is just being created.
fn is_unlocked(path: &Path) -> bool {
    File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

/// Creates the directory if it is missing, and checks that it is writable and has space.
fn prepare_directory(path: &Path) -> io::Result<()> {
    if let Err(error) = DirBuilder::new().recursive(true).mode(0o755).create(path) {
        // If the path is not a directory, the write below reports that.
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
    }

    // Only a write shows that the directory is writable and has space.
    let probed = replace_file(path, PROBE, &vec![0; ROOM]);
    let _ = fs::remove_file(path.join(PROBE));
    probed
}

fn is_lack_of_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Checks that the path is a directory, not a link, and that the nanny's user owns it. In a place
/// such as /tmp, another user may have created the directory.
fn check_owner(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() && metadata.uid() == nix::unistd::geteuid().as_raw() {
        return Ok(());
    }

    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the path is not a directory that the nanny's user owns",
    ))
}

fn replace_file(directory: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    daemon::files::replace_file(&directory.join(name), |file| {
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.write_all(content)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_directory_is_created_and_kept() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let dir = StateDir::open(Some(&path)).unwrap();
        dir.write_file("x", b"one").unwrap();
        dir.write_file("x", b"two").unwrap();
        assert_eq!(fs::read(dir.file_path("x")).unwrap(), b"two");
        assert_eq!(
            fs::metadata(dir.file_path("x"))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o644
        );
        assert_eq!(
            fs::read_dir(&path).unwrap().count(),
            1,
            "no other file may be left in the directory"
        );
        dir.remove();
        assert!(path.exists());
    }

    #[test]
    fn own_directory_is_created_and_removed() {
        let dir = StateDir::open(None).unwrap();
        let path = dir.file_path("");
        assert!(path.is_dir(), "{path:?}");
        dir.remove();
        assert!(!path.exists());
    }

    /// The process ID of a child that has been waited for, so no process has this ID.
    fn dead_pid() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn only_leftovers_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let directory = |name: String, has_lock_file: bool| {
            let path = place.path().join(name);
            fs::create_dir(&path).unwrap();
            has_lock_file.then(|| fs::write(path.join(LOCK), b"").unwrap());
            fs::write(path.join("servers.conf"), b"").unwrap();
            path
        };
        let dead = directory(format!("{PREFIX}{}", dead_pid()), true);
        let others = [
            directory(format!("{PREFIX}{}", std::process::id()), true),
            directory(format!("{PREFIX}{}", dead_pid()), false),
            directory(format!("{PREFIX}{}x", dead_pid()), true),
            directory(format!("{PREFIX}-1"), true),
            directory(format!("{PREFIX}0"), true),
            directory(format!("other-{}", dead_pid()), true),
        ];
        let far = directory("far".to_owned(), true);
        let link = place.path().join(format!("{PREFIX}{}", dead_pid()));
        std::os::unix::fs::symlink(&far, &link).unwrap();

        remove_leftovers(place.path());
        assert!(!dead.exists());
        assert!(far.join("servers.conf").exists() && link.is_symlink());
        for path in others {
            assert!(path.join("servers.conf").exists(), "{path:?}");
        }
    }

    #[test]
    fn locked_directory_is_no_leftover() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(format!("{PREFIX}{}", dead_pid()));
        let lock = create_locked(&path).unwrap();
        remove_leftovers(place.path());
        assert!(path.exists());
        assert!(
            create_locked(&path).is_err(),
            "another process must not claim the directory"
        );
        drop(lock);
        remove_leftovers(place.path());
        assert!(!path.exists());
    }

    #[test]
    fn error_names_directory_that_cannot_be_created() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        let error = StateDir::open(Some(&file.join("below")))
            .unwrap_err()
            .to_string();
        assert!(error.contains("file/below\": Not a directory"), "{error}");
        let error = StateDir::open(Some(Path::new("/proc/nowhere")))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/proc/nowhere"), "{error}");
    }
}
