//! Objects from YAML and JSON files in a directory, which is read periodically.
//!
//! An object is written when its manifest changes, so that edits through `kubectl` stay until the
//! file is edited. An object is deleted when its manifest is removed. If a file cannot be read, the
//! objects of the file stay.

mod documents;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::documents::Document;
use crate::kinds::Resource;
use crate::registry::{ObjectRef, Registry};

/// The manifests in a directory.
#[derive(Debug)]
pub struct Manifests {
    registry: Registry,
    directory: PathBuf,
    files: BTreeMap<PathBuf, File>,
    applied: BTreeMap<String, Applied>,
}

/// A failure to read a directory of manifests.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the manifests in {directory}")]
pub struct ManifestError {
    directory: PathBuf,
    #[source]
    source: std::io::Error,
}

#[derive(Debug, Default)]
struct File {
    /// The text or the error of the last read.
    read: String,
    /// The documents of the last valid text.
    documents: Vec<Document>,
}

/// A document that was written or rejected.
#[derive(Debug)]
struct Applied {
    at: ObjectRef,
    value: Value,
    refused: bool,
}

impl Manifests {
    pub(crate) fn new(registry: Registry, directory: PathBuf) -> Self {
        Self {
            registry,
            directory,
            files: BTreeMap::new(),
            applied: BTreeMap::new(),
        }
    }

    /// Reads the directory and applies its manifests. Returns the number of accepted objects. Each
    /// mistake is logged in one line that names the file, and the object if known.
    pub fn load(&mut self) -> Result<usize, ManifestError> {
        let found = manifests(&self.directory).map_err(|source| ManifestError {
            directory: self.directory.clone(),
            source,
        })?;
        self.files.retain(|path, _| found.contains(path));
        for path in found {
            self.files.entry(path.clone()).or_default().read(&path);
        }
        self.apply();
        Ok(self
            .applied
            .values()
            .filter(|applied| !applied.refused)
            .count())
    }

    /// Reads the directory again every `period` until `stop` is cancelled.
    pub async fn run(mut self, period: Duration, stop: CancellationToken) {
        while stop
            .run_until_cancelled(tokio::time::sleep(period))
            .await
            .is_some()
        {
            if let Err(error) = self.load() {
                let cause = error.source.to_string();
                tracing::warn!(%error, cause, "cannot read manifests, keeping the previous ones");
            }
        }
    }

    fn apply(&mut self) {
        let files = self.files.iter();
        let documents = files
            .flat_map(|(path, file)| file.documents.iter().map(move |document| (path, document)));
        // If an object has several manifests, the last wins.
        let wanted: BTreeMap<String, (&PathBuf, &Document)> = documents
            .map(|(path, document)| (document.id(), (path, document)))
            .collect();
        let registry = &self.registry;
        self.applied.retain(|id, applied| {
            let kept = wanted.contains_key(id);
            if !kept && !applied.refused {
                // A failure is ignored: the object may have been deleted with its namespace.
                drop(registry.delete(&applied.at));
            }
            kept
        });
        let mut order: Vec<_> = wanted.into_iter().collect();
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
                tracing::error!(file = %path.display(), object = id, error = %status, "object in manifest rejected");
            }
            let (at, value) = (document.at.clone(), document.value.clone());
            self.applied.insert(
                id,
                Applied {
                    at,
                    value,
                    refused: outcome.is_err(),
                },
            );
        }
    }
}

impl File {
    /// Reads the file again. If the file is invalid, the documents of the last valid text stay.
    fn read(&mut self, path: &Path) {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let read = text.clone().unwrap_or_else(|error| error);
        if self.read == read {
            return;
        }
        self.read = read;
        match text.and_then(|text| documents::parse(&text)) {
            Ok(documents) => self.documents = documents,
            Err(problem) => {
                tracing::error!(file = %path.display(), error = problem, "invalid manifest, keeping its last good state");
            }
        }
    }
}

/// The paths of the manifests in a directory.
fn manifests(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let paths: Vec<PathBuf> = std::fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    Ok(paths.into_iter().filter(|path| is_manifest(path)).collect())
}

/// The order of writes: first Namespaces, then Services with a chosen cluster IP. Other Services
/// follow, so that none of them gets a chosen address.
fn rank(document: &Document) -> u8 {
    let chosen = document
        .value
        .get("spec")
        .and_then(|spec| spec.get("clusterIP"))
        .is_some();
    match document.at.resource {
        Resource::Namespaces => 0,
        Resource::Services if chosen => 1,
        _ => 2,
    }
}

fn is_manifest(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .and_then(|name| name.to_str())
        .is_none_or(|name| name.starts_with('.'));
    let extension = path.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json")) && path.is_file()
}

#[cfg(test)]
pub(crate) use self::documents::parse;

#[cfg(test)]
mod tests;
