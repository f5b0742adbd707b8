//! Reading of a mounted `ConfigMap`: one file for each key. If the kubelet swaps the files during
//! the read, all files are read again, so that all values are from the same update of the mount. If
//! the kubelet swaps the files during each of five reads, the result of the fifth read is used.

use std::fs::File;
use std::hash::Hasher as _;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fnv::FnvHasher;

use crate::parse::{MAX_VALUE, RawData};
use daemon::blocking_read::{BlockingRead, READ_TIMEOUT};
use daemon::path_watch::DATA_LINK;

/// Maximum number of entries in the directory, including subdirectories and hidden files.
const MAX_ENTRIES: usize = 1024;
/// Maximum number of reads if the kubelet swaps the files during each read.
const MAX_TRIES: usize = 5;

/// A failure to read a configuration directory.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("configuration directory {path:?} cannot be read: {error}")]
    Directory { path: PathBuf, error: io::Error },
    #[error("configuration file {path:?} cannot be read: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("configuration file {path:?} has a name that is not UTF-8")]
    Name { path: PathBuf },
    #[error("configuration directory {path:?} has more than {MAX_ENTRIES} entries")]
    TooManyEntries { path: PathBuf },
}

/// Runs [`read_directory`] on a blocking thread of tokio. A read that hangs is an error.
pub(super) async fn read_off_thread(
    path: PathBuf,
    reading: &BlockingRead<Result<RawData, ReadError>>,
) -> Result<RawData, ReadError> {
    let read_path = path.clone();
    match reading.run(move || read_directory(&read_path)).await {
        Some(read) => read,
        // A mount that hangs is reported like a directory that cannot be read. The last
        // configuration stays in force.
        None => Err(ReadError::Directory {
            path,
            error: io::Error::other(ReadHangs),
        }),
    }
}

/// The read of a directory hangs.
#[derive(Debug, thiserror::Error)]
#[error("the read timed out after {READ_TIMEOUT:?}")]
struct ReadHangs;

/// Reads the files of the directory, except hidden files. A missing directory has no files.
pub(super) fn read_directory(path: &Path) -> Result<RawData, ReadError> {
    let link = path.join(DATA_LINK);
    let mut result = Ok(RawData::new());
    for _ in 0..MAX_TRIES {
        let before = std::fs::read_link(&link).ok();
        result = read_files(path);

        // If the link has not changed during the read, all values are from the same update.
        if before == std::fs::read_link(&link).ok() {
            break;
        }
    }
    result
}

fn read_files(path: &Path) -> Result<RawData, ReadError> {
    let directory_error = |error| ReadError::Directory {
        path: path.to_owned(),
        error,
    };
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(RawData::new()),
        entries => entries.map_err(directory_error)?,
    };

    let mut data = RawData::new();
    for (count, entry) in entries.enumerate() {
        if count == MAX_ENTRIES {
            return Err(ReadError::TooManyEntries {
                path: path.to_owned(),
            });
        }
        let name = entry.map_err(directory_error)?.file_name();
        // The kubelet's own links and directories begin with dots.
        if name.as_bytes().starts_with(b".") {
            continue;
        }

        let file = path.join(&name);
        let Ok(name) = name.into_string() else {
            return Err(ReadError::Name { path: file });
        };
        match read_file(&file) {
            Ok(Some(value)) => {
                data.insert(name, value);
            }
            // Subdirectories, and keys that the kubelet has removed meanwhile, have no value.
            Ok(None) => {}
            Err(error) => return Err(ReadError::File { path: file, error }),
        }
    }
    Ok(data)
}

/// The content, truncated to one octet more than [`MAX_VALUE`]; `None` if the file is missing or
/// not a regular file.
fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    // The check must come first, because opening a named pipe blocks until a writer opens the pipe.
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }

    // One octet more than accepted shows that the value is too large.
    let mut value = Vec::new();
    File::open(path)?
        .take(MAX_VALUE as u64 + 1)
        .read_to_end(&mut value)?;
    Ok(Some(value))
}

/// A hash of the data or of the error.
pub(super) fn hash_data(data: &Result<RawData, ReadError>) -> u64 {
    let mut hash = FnvHasher::default();
    match data {
        Ok(data) => {
            for (key, value) in data {
                hash.write(key.as_bytes());
                // The length shows where the value ends and the next key begins.
                hash.write(&value.len().to_le_bytes());
                hash.write(value);
            }
        }
        Err(error) => hash.write(error.to_string().as_bytes()),
    }
    hash.finish()
}
