//! The directory where the servers file and the status file live.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Where a directory of our own is made unless one is given. `/dev/shm` is there (and writable) in every container,
/// also in one with a read-only root.
const PLACES: [&str; 3] = ["/run", "/tmp", "/dev/shm"];

/// A directory we can write to.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    /// We made it up, so we take it away.
    ours: bool,
}

/// No such directory is to be had.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// The one that was asked for cannot be used.
    #[error("cannot use the state directory {path:?}: {reason}")]
    Given {
        /// The directory.
        path: PathBuf,
        /// Why not.
        reason: io::Error,
    },
    /// None of the usual places is writable.
    #[error("none of {} is writable; give a writable directory with -stateDir", PLACES.join(", "))]
    Nowhere,
}

impl StateDir {
    /// Uses `given`, or makes a directory in the first usual place that is writable.
    pub fn open(given: Option<&Path>) -> Result<Self, StateDirError> {
        if let Some(path) = given {
            return usable(path)
                .map(|()| Self { path: path.to_owned(), ours: false })
                .map_err(|reason| StateDirError::Given { path: path.to_owned(), reason });
        }
        let name = format!("dnsmasq-nanny-{}", std::process::id());
        let mut paths = PLACES.iter().map(|place| Path::new(place).join(&name));
        let path = paths.find(|path| usable(path).and_then(|()| owned(path)).is_ok());
        let path = path.ok_or(StateDirError::Nowhere)?;
        Ok(Self { path, ours: true })
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file so that readers see either the old or the new content. dnsmasq may read it as another user.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        write(&self.path, name, content)
    }

    /// Removes what we made.
    pub fn remove(self) {
        if self.ours {
            // What is left there does no harm.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn usable(path: &Path) -> io::Result<()> {
    if let Err(error) = DirBuilder::new().recursive(true).mode(0o755).create(path) {
        // mkdir says so of everything that is there already.
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
    }
    write(path, ".probe", b"")?;
    fs::remove_file(path.join(".probe"))
}

/// Whether nobody else could have put it there, in a place where everybody may write.
fn owned(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() && metadata.uid() == nix::unistd::geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "somebody else's"))
}

fn write(directory: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let new = directory.join(format!(".{name}.new"));
    let mut file = fs::File::create(&new)?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.write_all(content)?;
    drop(file);
    fs::rename(new, directory.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_directory_is_made_and_kept() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let dir = StateDir::open(Some(&path)).unwrap();
        dir.write("x", b"one").unwrap();
        dir.write("x", b"two").unwrap();
        assert_eq!(fs::read(dir.file("x")).unwrap(), b"two");
        assert_eq!(fs::metadata(dir.file("x")).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "nothing else is left in it");
        dir.remove();
        assert!(path.exists());
    }

    #[test]
    fn one_of_our_own_is_made_and_removed() {
        let dir = StateDir::open(None).unwrap();
        let path = dir.file("");
        assert!(path.is_dir(), "{path:?}");
        dir.remove();
        assert!(!path.exists());
    }

    #[test]
    fn what_cannot_be_written_to_is_refused_with_the_reason() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        let error = StateDir::open(Some(&file.join("below"))).unwrap_err().to_string();
        assert!(error.contains("file/below\": Not a directory"), "{error}");
        let error = StateDir::open(Some(Path::new("/proc/nowhere"))).unwrap_err().to_string();
        assert!(error.contains("/proc/nowhere"), "{error}");
    }
}
