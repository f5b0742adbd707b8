//! A directory with the entries of a `ConfigMap`, written as a kubelet writes the volume of a pod.
//!
//! Each entry is a symbolic link to a file below `..data`, which is a link to a directory. An
//! update writes all files to a new directory, and then replaces the link `..data` by a rename. So
//! at any time, `..data` leads either to all old files or to all new files:
//!
//! ```text
//! stubDomains -> ..data/stubDomains
//! ..data -> ..x7Gh2k
//! ..x7Gh2k/stubDomains
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

/// Replaces the files in `volume`. Creates the directory if it does not exist.
///
/// # Errors
///
/// Fails if a key is not valid, or if the files cannot be written.
pub fn replace<K: AsRef<str>, V: AsRef<[u8]>>(volume: &Path, files: &[(K, V)]) -> io::Result<()> {
    if let Some((bad, _)) = files.iter().find(|(key, _)| !is_key(key.as_ref())) {
        let bad = bad.as_ref();
        let what = format!("{bad:?} cannot be the name of a file in a ConfigMap volume");
        return Err(io::Error::other(what));
    }
    fs::create_dir_all(volume)?;

    let new = tempfile::Builder::new().prefix("..").tempdir_in(volume)?;
    let new = new.keep();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    for (key, value) in files {
        fs::write(new.join(key.as_ref()), value)?;
    }

    let (data, new_data) = (volume.join("..data"), volume.join("..data_tmp"));
    let old = fs::read_link(&data);
    symlink(new.file_name().unwrap_or_default(), &new_data)?;
    fs::rename(new_data, data)?;

    for (key, _) in files {
        let link = volume.join(key.as_ref());
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(key.as_ref()), link)?;
        }
    }
    // Removes links of keys that no longer exist.
    for entry in fs::read_dir(volume)? {
        let path = entry?.path();
        if path.is_symlink() && !path.exists() {
            fs::remove_file(path)?;
        }
    }
    old.map_or(Ok(()), |old| fs::remove_dir_all(volume.join(old)))
}

/// Returns whether the API server accepts the key. The length is not checked. A key must not begin
/// with `..`, because the kubelet uses such names for its own links and directories.
fn is_key(key: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !key.is_empty() && key != "." && !key.starts_with("..") && key.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sorted names in the directory.
    fn names(volume: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(volume)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn update_replaces_data_link_and_removes_old_files() {
        let volume = tempfile::tempdir().unwrap();
        let volume = volume.path();
        replace(volume, &[("a", "1"), ("b", "1")]).unwrap();
        let before = fs::read_link(volume.join("..data")).unwrap();
        replace(volume, &[("a", "2"), ("c", "2")]).unwrap();
        let after = fs::read_link(volume.join("..data")).unwrap();
        let after = after.to_str().unwrap();
        assert_ne!(before.to_str().unwrap(), after);
        let mut expected = [after, "..data", "a", "c"];
        expected.sort_unstable();
        assert_eq!(names(volume), expected);
        assert_eq!(fs::read(volume.join("a")).unwrap(), b"2");
    }

    #[test]
    fn invalid_key_is_rejected() {
        let volume = tempfile::tempdir().unwrap();
        for key in ["", ".", "..", "..data", "../escape", "a/b", "a b", "ä"] {
            let error = replace(volume.path(), &[(key, "x")]).unwrap_err();
            assert!(
                error
                    .to_string()
                    .ends_with("of a file in a ConfigMap volume"),
                "{error}"
            );
        }
        assert!(names(volume.path()).is_empty());
    }
}
