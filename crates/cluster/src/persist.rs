//! The snapshot file keeps a copy of the objects on disk. After a restart, kubedns serves the
//! objects in this file until the first lists from the API server are complete.
//!
//! The file consists of lines of JSON: a header, one line for each object, and a trailer with the
//! number of objects and a checksum of all preceding lines. A new file gets a temporary name, and
//! is renamed once it is complete, so that a crash leaves either the old or the new file intact. If
//! any check of a file fails, the whole file is rejected with a [`SnapshotError`].

mod file;

use std::hash::Hasher as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use fnv::FnvHasher;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use thiserror::Error;

use crate::index::{Index, IndexContent};
use crate::objects::{
    Change, EndpointSlice, Endpoints, EndpointsSource, Event, Namespace, ObjectKey, Service,
};
use crate::snapshot::PodNames;

pub use file::{load_snapshot, store_snapshot};

/// The name of the file in `--snapshot-dir`.
pub const FILE_NAME: &str = "kubedns.snapshot";
/// Maximum size of the file in bytes. Ten thousand Services with three endpoints each take about
/// five megabytes.
pub const MAX_FILE: u64 = 512 << 20;

const FORMAT: &str = "kubedns snapshot";
const VERSION: u32 = 1;

/// The reason why a snapshot file is rejected.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The file cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The file is larger than [`MAX_FILE`].
    #[error("the {} bytes of the file exceed the limit of {MAX_FILE}", .0)]
    TooLarge(u64),
    /// The header is not that of a snapshot file.
    #[error("the file is not a snapshot file")]
    Foreign,
    /// The file has another format version.
    #[error("the file has format version {0}, expected {VERSION}")]
    Version(u32),
    /// The file was written for another cluster domain, or with other values of the flags that
    /// change the content.
    #[error(
        "the file was written for another domain or with other flags: {found:?}, expected {expected:?}"
    )]
    Domain {
        /// The domain and the flags in the file.
        found: String,
        /// The domain and the flags of this process.
        expected: String,
    },
    /// The file does not end with a trailer and a line feed, or the number of objects in the
    /// trailer is wrong.
    #[error("the last line of the file is missing or damaged")]
    Incomplete,
    /// The content does not match the checksum.
    #[error("the checksum of the file is {found}, expected {expected}")]
    Checksum {
        /// The checksum of the content.
        found: String,
        /// The checksum in the trailer.
        expected: String,
    },
    /// A line has no valid object, although the checksum is right.
    #[error("line {line} has no valid object: {reason}")]
    Object {
        /// The line number, from 1.
        line: usize,
        /// The error of reading the line as JSON.
        reason: String,
    },
}

/// The first line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileHeader {
    format: String,
    version: u32,
    /// Seconds since 1970.
    written: u64,
    /// The cluster domain, followed by the flags that change the content, if any are set.
    domain: String,
    source: EndpointsSource,
}

/// The last line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct FileTrailer {
    objects: usize,
    checksum: String,
}

/// A line between header and trailer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum SavedObject {
    Service(Service),
    Endpoints(Endpoints),
    EndpointSlice(EndpointSlice),
    /// A namespace that `--namespace-selector` matches.
    Namespace(SmolStr),
    /// An address and the namespaces of its pods.
    Pods(IpAddr, Vec<SmolStr>),
}

impl SavedObject {
    fn apply_to(self, index: &mut Index) {
        index.apply(match self {
            Self::Service(service) => Event::Service(Change::Apply(service)),
            Self::Endpoints(endpoints) => Event::Endpoints(Change::Apply(endpoints)),
            Self::EndpointSlice(slice) => Event::EndpointSlice(Change::Apply(slice)),
            Self::Namespace(name) => Event::Namespace(Change::Apply(Namespace {
                key: ObjectKey::new("", name),
            })),
            Self::Pods(address, namespaces) => return index.serve_stale_pods(address, namespaces),
        });
    }
}

/// The content of a snapshot file.
#[derive(Debug)]
pub struct SavedSnapshot {
    written: SystemTime,
    source: EndpointsSource,
    objects: Vec<SavedObject>,
}

impl SavedSnapshot {
    /// The age of the file; zero if the file's time is in the future, for example because the clock
    /// was set back.
    pub fn age(&self) -> Duration {
        self.written.elapsed().unwrap_or_default()
    }

    /// The number of objects.
    pub fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// The source of the stored endpoints.
    pub fn source(&self) -> EndpointsSource {
        self.source
    }

    /// Makes `index` serve the objects until the first lists are complete.
    pub fn serve_from(self, index: &mut Index) {
        for object in self.objects {
            object.apply_to(index);
        }
        index.serve_stale(self.source);
    }

    /// Decodes the content of a file.
    ///
    /// # Errors
    ///
    /// Any [`SnapshotError`] except `Read` and `TooLarge`; each variant describes its case.
    pub fn decode(content: &[u8], domain: &str) -> Result<Self, SnapshotError> {
        let first = split_first_line(content).ok_or(SnapshotError::Foreign)?;
        let header = FileHeader::parse(first.line, domain)?;
        let last = split_last_line(first.rest).ok_or(SnapshotError::Incomplete)?;
        let trailer: FileTrailer =
            serde_json::from_slice(last.line).map_err(|_| SnapshotError::Incomplete)?;

        // The checksum covers everything before the trailer.
        let summed_length = content.len() - first.rest.len() + last.rest.len();
        let found = checksum(content.get(..summed_length).unwrap_or_default());
        if found != trailer.checksum {
            return Err(SnapshotError::Checksum {
                found,
                expected: trailer.checksum,
            });
        }

        let objects = decode_objects(last.rest)?;
        if objects.len() != trailer.objects {
            return Err(SnapshotError::Incomplete);
        }

        let written = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(header.written));
        Ok(Self {
            written: written.unwrap_or(SystemTime::UNIX_EPOCH),
            source: header.source,
            objects,
        })
    }
}

/// Decodes the lines between header and trailer.
fn decode_objects(body: &[u8]) -> Result<Vec<SavedObject>, SnapshotError> {
    let lines = body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());

    let mut objects = Vec::new();
    for (index, line) in lines.enumerate() {
        let object = serde_json::from_slice(line).map_err(|error| SnapshotError::Object {
            // Line 1 is the header.
            line: index + 2,
            reason: error.to_string(),
        })?;
        objects.push(object);
    }
    Ok(objects)
}

impl FileHeader {
    fn parse(line: &[u8], domain: &str) -> Result<Self, SnapshotError> {
        /// The fields that the header has in every version.
        #[derive(Deserialize)]
        struct FormatVersion {
            format: String,
            version: u32,
        }

        let shape: FormatVersion =
            serde_json::from_slice(line).map_err(|_| SnapshotError::Foreign)?;
        if shape.format != FORMAT {
            return Err(SnapshotError::Foreign);
        }
        if shape.version != VERSION {
            return Err(SnapshotError::Version(shape.version));
        }

        // The other fields are parsed after the check of the version, because they may differ in
        // another version.
        let header: Self = serde_json::from_slice(line).map_err(|_| SnapshotError::Foreign)?;
        if header.domain != domain {
            return Err(SnapshotError::Domain {
                found: header.domain,
                expected: domain.to_owned(),
            });
        }
        Ok(header)
    }
}

/// Encodes `content`, with the endpoints from `source`, as a snapshot file. `None` if serialization
/// fails.
pub fn encode(content: &IndexContent, source: EndpointsSource, domain: &str) -> Option<Vec<u8>> {
    let written = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let header = FileHeader {
        format: FORMAT.to_owned(),
        version: VERSION,
        written: written.unwrap_or_default().as_secs(),
        domain: domain.to_owned(),
        source,
    };
    let mut file = Vec::new();
    append_line(&mut file, &header)?;

    let mut count = 0;
    for object in saved_objects(content, source) {
        append_line(&mut file, &object)?;
        count += 1;
    }

    let trailer = FileTrailer {
        objects: count,
        checksum: checksum(&file),
    };
    append_line(&mut file, &trailer)?;
    Some(file)
}

/// The objects that are written to a file. `source` says whether they include Endpoints or
/// `EndpointSlices`.
fn saved_objects(
    content: &IndexContent,
    source: EndpointsSource,
) -> impl Iterator<Item = SavedObject> {
    let objects = &content.objects;
    let services = objects.services().map(SavedObject::Service);
    let endpoints = (source == EndpointsSource::Endpoints).then(|| objects.endpoints());
    let endpoints = endpoints.into_iter().flatten();
    let slices = (source == EndpointsSource::EndpointSlices).then(|| objects.slices());
    let slices = slices.into_iter().flatten();
    let namespaces = content.namespaces.iter();

    services
        .chain(endpoints.map(SavedObject::Endpoints))
        .chain(slices.map(SavedObject::EndpointSlice))
        .chain(namespaces.map(|(name, ())| SavedObject::Namespace(name.clone())))
        .chain(saved_pods(&content.pods))
}

fn saved_pods(pods: &PodNames) -> impl Iterator<Item = SavedObject> {
    let pods = pods.namespaces().into_iter().flat_map(treecache::Map::iter);
    pods.map(|(address, namespaces)| SavedObject::Pods(*address, namespaces.to_vec()))
}

/// Appends a line of JSON; `None` if serialization fails, which does not happen with the types in
/// the file.
fn append_line(content: &mut Vec<u8>, line: &impl Serialize) -> Option<()> {
    serde_json::to_writer(&mut *content, line).ok()?;
    content.push(b'\n');
    Some(())
}

/// A line that was split off, and the other lines with their line feeds.
struct SplitLine<'c> {
    line: &'c [u8],
    rest: &'c [u8],
}

fn split_first_line(content: &[u8]) -> Option<SplitLine<'_>> {
    let end = content.iter().position(|byte| *byte == b'\n')?;

    Some(SplitLine {
        line: content.get(..end)?,
        rest: content.get(end + 1..)?,
    })
}

fn split_last_line(content: &[u8]) -> Option<SplitLine<'_>> {
    let lines = content.strip_suffix(b"\n")?;
    let before = lines.iter().rposition(|byte| *byte == b'\n');
    let start = before.map_or(0, |at| at + 1);

    Some(SplitLine {
        line: lines.get(start..)?,
        rest: content.get(..start)?,
    })
}

/// The 64-bit FNV-1a hash, which detects damaged and truncated files. The algorithm is the same in
/// every release.
fn checksum(bytes: &[u8]) -> String {
    let mut hash = FnvHasher::default();
    hash.write(bytes);
    format!("{:016x}", hash.finish())
}

#[cfg(test)]
mod tests;
