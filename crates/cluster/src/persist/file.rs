//! Reading and writing of snapshot files. The size of a read is bounded, and a file is replaced
//! atomically.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use super::{FILE_NAME, MAX_FILE, SavedSnapshot, SnapshotError};

/// Reads the snapshot in `directory`; `None` if there is none.
///
/// # Errors
///
/// [`SnapshotError`] if the snapshot is unreadable or rejected.
pub fn load_snapshot(
    directory: &Path,
    domain: &str,
) -> Result<Option<SavedSnapshot>, SnapshotError> {
    let path = directory.join(FILE_NAME);
    let unreadable = |source| SnapshotError::Read {
        path: path.clone(),
        source,
    };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };

    let size = file.metadata().map_err(unreadable)?.len();
    if size > MAX_FILE {
        return Err(SnapshotError::TooLarge(size));
    }

    let mut content = Vec::new();
    // The read is bounded as well, because the file may have grown since its size was checked.
    file.take(MAX_FILE)
        .read_to_end(&mut content)
        .map_err(unreadable)?;
    SavedSnapshot::decode(&content, domain).map(Some)
}

/// Replaces the snapshot in `directory`: writes a new file, flushes it to disk and renames it.
///
/// # Errors
///
/// [`io::Error`] if the directory cannot be created or flushed, or if the new file cannot be
/// written or renamed. If writing or renaming fails, the old file is kept.
pub fn store_snapshot(directory: &Path, content: &[u8]) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    daemon::files::replace_file(&directory.join(FILE_NAME), |file| {
        file.write_all(content)?;
        file.sync_all()
    })?;
    // The directory is flushed, too. Otherwise a crash of the machine could undo the renaming.
    File::open(directory)?.sync_all()
}
