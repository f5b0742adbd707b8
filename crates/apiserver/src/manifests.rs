//! Objects from YAML files in a directory, followed as the files change.
//!
//! An object is written when what a file says about it changes, not when somebody else changed it in the meantime:
//! edits through `kubectl` stay until the file is edited. An object that no file mentions any more is deleted. A file that
//! cannot be read keeps the objects it had.

mod documents;
mod follow;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use self::documents::Document;
use crate::kinds::Resource;
use crate::registry::{ObjectRef, Registry};

/// Largest file read, in octets.
const MAX_FILE: u64 = 32 * 1024 * 1024;

/// The manifests in a directory.
#[derive(Debug)]
pub struct Manifests {
    registry: Registry,
    directory: PathBuf,
    files: BTreeMap<PathBuf, File>,
    applied: BTreeMap<String, Applied>,
}

/// Why a directory of manifests cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the manifests in {directory}")]
pub struct ManifestError {
    directory: PathBuf,
    #[source]
    source: std::io::Error,
}

#[derive(Debug, Default)]
struct File {
    text: String,
    problem: String,
    documents: Vec<Document>,
}

/// What became of a document.
#[derive(Debug)]
struct Applied {
    at: ObjectRef,
    value: Value,
    refused: bool,
}

impl Manifests {
    pub(crate) fn new(registry: Registry, directory: PathBuf) -> Self {
        Self { registry, directory, files: BTreeMap::new(), applied: BTreeMap::new() }
    }

    /// Reads the directory once and makes the objects follow it. Returns how many there are. What is wrong with a file
    /// or an object is logged in a line that names both.
    pub fn load(&mut self) -> Result<usize, ManifestError> {
        self.read_files().map_err(|source| ManifestError { directory: self.directory.clone(), source })?;
        self.apply();
        Ok(self.applied.values().filter(|applied| !applied.refused).count())
    }

    fn read_files(&mut self) -> std::io::Result<()> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if is_manifest(&path) {
                found.push(path);
            }
        }
        self.files.retain(|path, _| found.contains(path));
        for path in found {
            let file = self.files.entry(path.clone()).or_default();
            if let Err(problem) = file.read(&path)
                && file.problem != problem
            {
                tracing::error!(file = %path.display(), error = problem, "manifest not understood, keeping its last good state");
                file.problem = problem;
            }
        }
        Ok(())
    }

    fn apply(&mut self) {
        let mut wanted: BTreeMap<String, (&Path, &Document)> = BTreeMap::new();
        for (path, file) in &self.files {
            for document in &file.documents {
                let id = document.id();
                if let Some((other, _)) = wanted.insert(id.clone(), (path.as_path(), document)) {
                    tracing::debug!(object = id, file = %path.display(), other = %other.display(), "object given twice, the last counts");
                }
            }
        }
        let registry = &self.registry;
        self.applied.retain(|id, applied| {
            let kept = wanted.contains_key(id);
            if !kept && !applied.refused {
                // Gone already when its namespace went.
                drop(registry.delete(&applied.at));
            }
            kept
        });
        let mut order: Vec<(String, (&Path, &Document))> = wanted.into_iter().collect();
        order.sort_by_key(|(_, (_, document))| rank(document));
        for (id, (path, document)) in order {
            let before = self.applied.get(&id);
            if before.is_some_and(|before| before.value == document.value && !before.refused) {
                continue;
            }
            let outcome = registry.apply(&document.at, document.value.clone());
            if let Err(status) = &outcome
                && before.is_none_or(|before| before.value != document.value)
            {
                tracing::error!(file = %path.display(), object = id, error = %status, "object in a manifest was refused");
            }
            let (at, value) = (document.at.clone(), document.value.clone());
            self.applied.insert(id, Applied { at, value, refused: outcome.is_err() });
        }
    }
}

impl File {
    /// Reads the file again; keeps its documents if it cannot be understood.
    fn read(&mut self, path: &Path) -> Result<(), String> {
        let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
        if size > MAX_FILE {
            return Err(format!("the file has {size} octets, more than {MAX_FILE}"));
        }
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        if text == self.text && self.problem.is_empty() {
            return Ok(());
        }
        self.documents = documents::parse(&text)?;
        self.text = text;
        self.problem.clear();
        Ok(())
    }
}

/// Namespaces first, then Services that choose their address, so that nobody else gets it.
fn rank(document: &Document) -> u8 {
    let chosen = document.value.get("spec").and_then(|spec| spec.get("clusterIP")).is_some();
    match document.at.resource {
        Resource::Namespaces => 0,
        Resource::Services if chosen => 1,
        _ => 2,
    }
}

fn is_manifest(path: &Path) -> bool {
    let hidden = path.file_name().and_then(|name| name.to_str()).is_none_or(|name| name.starts_with('.'));
    let extension = path.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json")) && path.is_file()
}

/// Whether a text is understood; for tests with texts of all sorts.
#[cfg(test)]
pub(crate) fn understand(text: &str) -> Result<usize, String> {
    documents::parse(text).map(|documents| documents.len())
}

#[cfg(test)]
mod tests;
