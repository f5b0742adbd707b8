//! A `ConfigMap` as a directory, written the way a kubelet writes a `ConfigMap` volume.
//!
//! Each entry is a symbolic link through `..data`. The link `..data` leads to a directory whose
//! name contains the time of the update. An update fills a new directory and renames a new link to
//! `..data`, so that a reader sees the old state or the new one, never a mixture:
//!
//! ```text
//! stubDomains -> ..data/stubDomains
//! ..data -> ..2026_11_03_10_20_30.x7Gh2k
//! ..2026_11_03_10_20_30.x7Gh2k/stubDomains
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The contents of a `ConfigMap`: file name to bytes.
pub type Payload = BTreeMap<String, Vec<u8>>;

/// The link that every entry goes through.
const DATA_LINK: &str = "..data";
/// The name of a new link before the rename to `..data`.
const NEW_DATA_LINK: &str = "..data_tmp";

/// A directory that mirrors a `ConfigMap`.
pub struct ConfigVolume {
    root: PathBuf,
    written: Option<Payload>,
}

impl ConfigVolume {
    /// Creates an empty directory, as for an optional `ConfigMap` that does not exist.
    pub fn create(root: PathBuf) -> Result<Self> {
        at("create", &root, fs::create_dir_all(&root))?;
        let mut volume = Self {
            root,
            written: None,
        };
        volume.write(&Payload::new())?;
        Ok(volume)
    }

    /// The path, which the containers mount.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Replaces the contents, unless they equal `payload`. Returns whether anything changed.
    pub fn write(&mut self, payload: &Payload) -> Result<bool> {
        if self.written.as_ref() == Some(payload) {
            return Ok(false);
        }
        if let Some(bad) = payload.keys().find(|key| !is_file_name(key)) {
            bail!("{bad:?} cannot be the name of a file in a ConfigMap volume");
        }
        let old = fs::read_link(self.root.join(DATA_LINK)).ok();
        let new = self.fill_new_directory(payload)?;
        self.swap(&new)?;
        self.link_entries(payload)?;
        self.unlink_entries_not_in(payload)?;
        if let Some(old) = old {
            let old = self.root.join(old);
            at("remove", &old, fs::remove_dir_all(&old))?;
        }
        self.written = Some(payload.clone());
        Ok(true)
    }

    /// Writes the files into a new directory whose name contains the current time. Returns the name
    /// of this directory.
    fn fill_new_directory(&self, payload: &Payload) -> Result<PathBuf> {
        let stamp = chrono::Utc::now()
            .format("..%Y_%m_%d_%H_%M_%S.")
            .to_string();
        let made = tempfile::Builder::new()
            .prefix(&stamp)
            .tempdir_in(&self.root);
        let directory = at("create a directory in", &self.root, made)?.keep();
        let readable = fs::set_permissions(&directory, fs::Permissions::from_mode(0o755));
        at("set the mode of", &directory, readable)?;
        for (key, bytes) in payload {
            let file = directory.join(key);
            at("write", &file, fs::write(&file, bytes))?;
        }
        Ok(directory
            .file_name()
            .map_or_else(|| directory.clone(), PathBuf::from))
    }

    fn swap(&self, new: &Path) -> Result<()> {
        let new_link = self.root.join(NEW_DATA_LINK);
        at("link", &new_link, symlink(new, &new_link))?;
        at(
            "rename",
            &new_link,
            fs::rename(&new_link, self.root.join(DATA_LINK)),
        )
    }

    fn link_entries(&self, payload: &Payload) -> Result<()> {
        for key in payload.keys() {
            let entry = self.root.join(key);
            if fs::symlink_metadata(&entry).is_err() {
                at(
                    "link",
                    &entry,
                    symlink(Path::new(DATA_LINK).join(key), &entry),
                )?;
            }
        }
        Ok(())
    }

    fn unlink_entries_not_in(&self, payload: &Payload) -> Result<()> {
        let gone = self
            .written
            .iter()
            .flat_map(BTreeMap::keys)
            .filter(|key| !payload.contains_key(*key));
        for key in gone {
            let entry = self.root.join(key);
            at("remove", &entry, fs::remove_file(&entry))?;
        }
        Ok(())
    }
}

/// Returns whether the API server accepts the key. Names that begin with `..` belong to the volume
/// itself.
fn is_file_name(key: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !key.is_empty() && key != "." && !key.starts_with("..") && key.chars().all(allowed)
}

fn at<T>(action: &str, path: &Path, result: io::Result<T>) -> Result<T> {
    result.with_context(|| format!("cannot {action} {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(entries: &[(&str, &str)]) -> Payload {
        entries
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
            .collect()
    }

    fn new_volume() -> (tempfile::TempDir, ConfigVolume) {
        let outer = tempfile::tempdir().unwrap();
        let volume = ConfigVolume::create(outer.path().join("config")).unwrap();
        (outer, volume)
    }

    /// The names in the directory, except those that begin with `..`.
    fn visible(volume: &ConfigVolume) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(volume.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with(".."))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn update_swaps_link_and_cleans_up() {
        let (_outer, mut volume) = new_volume();
        volume.write(&payload(&[("a", "1"), ("b", "1")])).unwrap();
        let before = fs::read_link(volume.path().join(DATA_LINK)).unwrap();
        volume.write(&payload(&[("a", "2"), ("c", "2")])).unwrap();
        let after = fs::read_link(volume.path().join(DATA_LINK)).unwrap();
        assert_ne!(before, after);
        assert!(
            !volume.path().join(before).exists(),
            "the old directory is gone"
        );
        assert_eq!(visible(&volume), ["a", "c"]);
        assert_eq!(fs::read(volume.path().join("a")).unwrap(), b"2");
    }

    #[test]
    fn equal_payload_changes_nothing() {
        let (_outer, mut volume) = new_volume();
        volume.write(&payload(&[("a", "1")])).unwrap();
        let before = fs::read_link(volume.path().join(DATA_LINK)).unwrap();
        assert!(!volume.write(&payload(&[("a", "1")])).unwrap());
        let target = fs::read_link(volume.path().join(DATA_LINK)).unwrap();
        assert_eq!(target, before);
    }

    #[test]
    fn key_with_path_is_rejected() {
        let (_outer, mut volume) = new_volume();
        for key in ["", ".", "..", "..data", "../escape", "a/b", "a b", "ä"] {
            let error = volume.write(&payload(&[(key, "x")])).unwrap_err();
            assert!(
                error
                    .to_string()
                    .ends_with("cannot be the name of a file in a ConfigMap volume"),
                "{error}"
            );
        }
        assert_eq!(visible(&volume), Vec::<String>::new());
    }
}
