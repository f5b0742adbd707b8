//! Objects from YAML and JSON files in a directory, which is read periodically.
//!
//! An object is written when its manifest is new or has changed, so that edits through `kubectl`
//! stay until the manifest is edited. A rejected object is tried again at each read. When a
//! manifest is removed, the object that was written from the manifest is deleted. But a namespace
//! stays if another manifest has an object in the namespace. If a file is unreadable or invalid,
//! the objects of the file stay.

mod documents;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// The documents that were written or rejected, by [`Document::id`].
    applied: BTreeMap<String, AppliedDocument>,
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
    /// The text, or the error, of the last read.
    last_read: String,
    /// The documents of the last valid text.
    documents: Vec<Document>,
}

/// A document that was written or rejected.
#[derive(Debug)]
struct AppliedDocument {
    document: Document,
    /// Whether the object was rejected, and has to be tried again.
    is_rejected: bool,
    /// Whether the object was written from this document or from an earlier version of it. Only
    /// such an object is deleted when its manifest is removed.
    was_written: bool,
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

    /// Reads the directory and applies its manifests. Returns the number of accepted objects, or an
    /// error if the directory cannot be read. A problem with a file is logged once, in a line that
    /// names the file and, if known, the object.
    pub fn load(&mut self) -> Result<usize, ManifestError> {
        let found = list_manifests(&self.directory).map_err(|source| ManifestError {
            directory: self.directory.clone(),
            source,
        })?;

        self.files.retain(|path, _| found.contains(path));
        for path in found {
            self.files.entry(path.clone()).or_default().read(&path);
        }
        self.apply();

        let applied = self.applied.values();
        Ok(applied.filter(|applied| !applied.is_rejected).count())
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
                tracing::warn!(%error, cause, "cannot read the manifest directory, keeping all objects");
            }
        }
    }

    /// Deletes the written objects whose manifests are gone, except namespaces of objects that
    /// still have manifests. Writes the objects whose manifests are new, have changed or were
    /// rejected before.
    fn apply(&mut self) {
        // If an object has several manifests, the last manifest in the order of the paths wins.
        let mut wanted: BTreeMap<String, FileDocument<'_>> = BTreeMap::new();
        for (path, file) in &self.files {
            for document in &file.documents {
                wanted.insert(document.id(), FileDocument { path, document });
            }
        }

        let registry = &self.registry;
        self.applied.retain(|id, applied| {
            let is_kept = wanted.contains_key(id);
            if !is_kept && applied.was_written && !holds_any(&applied.document.at, &wanted) {
                // A failure is ignored: the object may have been deleted with its namespace.
                drop(registry.delete(&applied.document.at));
            }
            is_kept
        });

        let mut in_order: Vec<_> = wanted.into_iter().collect();
        in_order.sort_by_key(|(_, wanted)| write_order(wanted.document));
        for (id, FileDocument { path, document }) in in_order {
            let before = self.applied.get(&id);
            let is_changed = before.is_none_or(|before| before.document != *document);
            if !is_changed && before.is_some_and(|before| !before.is_rejected) {
                continue;
            }

            let outcome = self.registry.apply(&document.at, document.value.clone());
            // A rejection that repeats at each read is logged only once.
            if let Err(status) = &outcome
                && is_changed
            {
                tracing::error!(file = %path.display(), object = id, error = %status, "object in manifest rejected");
            }

            let applied = AppliedDocument {
                document: document.clone(),
                is_rejected: outcome.is_err(),
                was_written: outcome.is_ok() || before.is_some_and(|before| before.was_written),
            };
            self.applied.insert(id, applied);
        }
    }
}

/// A document, and the file that it was read from.
struct FileDocument<'a> {
    path: &'a Path,
    document: &'a Document,
}

/// Whether `at` is the namespace of a wanted object. Deleting the namespace would also delete the
/// object.
fn holds_any(at: &ObjectRef, wanted: &BTreeMap<String, FileDocument<'_>>) -> bool {
    let mut objects = wanted.values().map(|wanted| &wanted.document.at);
    at.resource == Resource::Namespaces && objects.any(|object| object.namespace == at.name)
}

impl File {
    /// Reads the file again. If the file is unreadable or invalid, the documents of the last valid
    /// text stay.
    fn read(&mut self, path: &Path) {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let read = text.clone().unwrap_or_else(|error| error);
        if self.last_read == read {
            return;
        }

        self.last_read = read;
        match text.and_then(|text| documents::parse(&text)) {
            Ok(documents) => self.documents = documents,
            Err(problem) => {
                tracing::error!(file = %path.display(), error = problem, "manifest file is unreadable or invalid, keeping its previous objects");
            }
        }
    }
}

/// The paths of the manifest files in a directory.
fn list_manifests(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let paths: Vec<PathBuf> = std::fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    Ok(paths.into_iter().filter(|path| is_manifest(path)).collect())
}

/// The order of writes: first Namespaces, then Services whose manifest has `spec.clusterIP`, then
/// all other objects. This order keeps other Services of the same read from taking these cluster
/// IPs.
fn write_order(document: &Document) -> u8 {
    let chooses_ip = document
        .value
        .get("spec")
        .and_then(|spec| spec.get("clusterIP"))
        .is_some();
    match document.at.resource {
        Resource::Namespaces => 0,
        Resource::Services if chooses_ip => 1,
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
mod tests;
