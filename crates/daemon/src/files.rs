//! Files that others read while they change.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Replaces the file at `path` by one rename: a reader sees either the old or the new content.
/// `write` fills the new file, whose name is `path` and `.new`.
///
/// # Errors
///
/// [`io::Error`] if writing fails; the old file is kept then.
pub fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let written = File::create(&new).and_then(|mut file| write(&mut file));
    let written = written.and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // A partial file only takes space.
        let _ = fs::remove_file(new);
    }
    written
}
