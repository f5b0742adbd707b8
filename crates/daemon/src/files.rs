//! Replaces files that other processes may be reading.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Replaces the file at `path` by one rename: a reader sees either the old or the new content.
/// `write` fills the new file, whose name is `path` with `.new` appended.
///
/// # Errors
///
/// [`io::Error`] if the new file cannot be created, written or renamed; the old file is kept then.
pub fn replace_file(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");

    let written = File::create(&new)
        .and_then(|mut file| write(&mut file))
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // A partial file that cannot be removed is harmless.
        let _ = fs::remove_file(new);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn failed_write_keeps_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        replace_file(&path, |file| file.write_all(b"old")).unwrap();

        let failed = replace_file(&path, |file| {
            file.write_all(b"partial")?;
            Err(io::ErrorKind::StorageFull.into())
        });

        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let count = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(count, 1, "the partial file must be removed");
    }
}
