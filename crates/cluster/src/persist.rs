//! The snapshot file: the last objects on disk, served after a restart while the API server is
//! unreachable.
//!
//! The file consists of lines of JSON: a header, one line for each object, and a trailer with the
//! number of objects and a checksum of all preceding lines. A new file is written beside the old
//! file and then renamed, so that a crash leaves either the old or the new file intact. A damaged
//! or foreign file is rejected as a whole, with the reason.

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

pub use file::{load, store};

/// The name of the file in `--snapshot-dir`.
pub const FILE_NAME: &str = "kubedns.snapshot";
/// Bound of the file's size in bytes. Ten thousand Services with three endpoints each take about
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
    #[error("its {} bytes exceed the limit of {MAX_FILE}", .0)]
    TooLarge(u64),
    /// The header is not that of a snapshot file.
    #[error("it is not a snapshot file")]
    Foreign,
    /// The file has another format version.
    #[error("it has format version {0}, expected {VERSION}")]
    Version(u32),
    /// The file was written for another cluster domain, or with other options that select objects.
    #[error("it is for the domain {0}")]
    Domain(String),
    /// The file ends before its trailer, or the trailer states another number of objects.
    #[error("it is incomplete")]
    Incomplete,
    /// The content does not match the checksum.
    #[error("its checksum is {found}, expected {expected}")]
    Checksum {
        /// The checksum of the content.
        found: String,
        /// The checksum in the trailer.
        expected: String,
    },
    /// A line is not an object, although the checksum is right.
    #[error("line {line} is not an object: {reason}")]
    Object {
        /// The line number, from 1.
        line: usize,
        /// The mistake.
        reason: String,
    },
}

/// The first line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    /// Seconds since 1970.
    written: u64,
    /// The cluster domain, followed by the options that select objects, if any are set.
    domain: String,
    source: EndpointsSource,
}

/// The last line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Trailer {
    objects: usize,
    checksum: String,
}

/// A line between header and trailer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Object {
    Service(Service),
    Endpoints(Endpoints),
    EndpointSlice(EndpointSlice),
    /// A namespace that the selector matches.
    Namespace(SmolStr),
    /// An address and the namespaces of its pods.
    Pods(IpAddr, Vec<SmolStr>),
}

impl Object {
    fn replay(self, index: &mut Index) {
        index.apply(match self {
            Self::Service(service) => Event::Service(Change::Apply(service)),
            Self::Endpoints(endpoints) => Event::Endpoints(Change::Apply(endpoints)),
            Self::EndpointSlice(slice) => Event::EndpointSlice(Change::Apply(slice)),
            Self::Namespace(name) => Event::Namespace(Change::Apply(Namespace {
                key: ObjectKey::new("", name),
            })),
            Self::Pods(address, namespaces) => return index.show_pods(address, namespaces),
        });
    }
}

/// The content of a snapshot file.
#[derive(Debug)]
pub struct Saved {
    written: SystemTime,
    source: EndpointsSource,
    objects: Vec<Object>,
}

impl Saved {
    /// The age of the file. Zero if the file's time is in the future, because the clock was set
    /// back.
    pub fn age(&self) -> Duration {
        self.written.elapsed().unwrap_or_default()
    }

    /// The number of objects.
    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    /// The source of the stored endpoints.
    pub fn source(&self) -> EndpointsSource {
        self.source
    }

    /// Makes `index` serve the objects until the first lists are complete.
    pub fn replay(self, index: &mut Index) {
        for object in self.objects {
            object.replay(index);
        }
        index.serve_stale(self.source);
    }

    /// Decodes the content of a file.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`] unless [`encode`] wrote exactly this content for the same domain.
    pub fn decode(content: &[u8], domain: &str) -> Result<Self, SnapshotError> {
        let (head, rest) = split_line(content).ok_or(SnapshotError::Foreign)?;
        let header = Header::read(head, domain)?;
        let (body, trailer) = split_trailer(rest).ok_or(SnapshotError::Incomplete)?;
        let trailer: Trailer =
            serde_json::from_slice(trailer).map_err(|_| SnapshotError::Incomplete)?;
        let summed = content
            .get(..content.len() - rest.len() + body.len())
            .unwrap_or_default();
        let found = checksum(summed);
        if found != trailer.checksum {
            return Err(SnapshotError::Checksum {
                found,
                expected: trailer.checksum,
            });
        }
        let mut objects = Vec::new();
        let lines = body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        for (index, line) in lines.enumerate() {
            let wrong = |error: serde_json::Error| SnapshotError::Object {
                line: index + 2,
                reason: error.to_string(),
            };
            objects.push(serde_json::from_slice(line).map_err(wrong)?);
        }
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

impl Header {
    fn read(line: &[u8], domain: &str) -> Result<Self, SnapshotError> {
        #[derive(Deserialize)]
        struct Shape {
            format: String,
            version: u32,
        }
        let shape: Shape = serde_json::from_slice(line).map_err(|_| SnapshotError::Foreign)?;
        if shape.format != FORMAT {
            return Err(SnapshotError::Foreign);
        }
        if shape.version != VERSION {
            return Err(SnapshotError::Version(shape.version));
        }
        let header: Self = serde_json::from_slice(line).map_err(|_| SnapshotError::Foreign)?;
        if header.domain != domain {
            return Err(SnapshotError::Domain(header.domain));
        }
        Ok(header)
    }
}

/// Encodes `content`, with the endpoints from `source`, as a snapshot file. `None` if serialization
/// fails.
pub fn encode(content: &IndexContent, source: EndpointsSource, domain: &str) -> Option<Vec<u8>> {
    let written = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let header = Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        written,
        domain: domain.to_owned(),
        source,
    };
    let mut file = Vec::new();
    append(&mut file, &header)?;
    let mut count = 0;
    // The endpoints from the other source are not in use.
    let from = |other| source == other;
    let IndexContent {
        objects,
        namespaces,
        pods,
    } = content;
    let endpoints = objects
        .endpoints()
        .filter(|_| from(EndpointsSource::Endpoints));
    let slices = objects
        .slices()
        .filter(|_| from(EndpointsSource::EndpointSlices));
    let all = objects
        .services()
        .map(Object::Service)
        .chain(endpoints.map(Object::Endpoints))
        .chain(slices.map(Object::EndpointSlice))
        .chain(
            namespaces
                .iter()
                .map(|(name, ())| Object::Namespace(name.clone())),
        )
        .chain(addresses_of_pods(pods));
    for object in all {
        append(&mut file, &object)?;
        count += 1;
    }
    let trailer = Trailer {
        objects: count,
        checksum: checksum(&file),
    };
    append(&mut file, &trailer)?;
    Some(file)
}

fn addresses_of_pods(pods: &PodNames) -> impl Iterator<Item = Object> {
    let verified = match pods {
        PodNames::Verified(pods) => Some(pods),
        PodNames::Insecure | PodNames::Disabled => None,
    };
    let pods = verified.into_iter().flat_map(treecache::Map::iter);
    pods.map(|(address, namespaces)| Object::Pods(*address, namespaces.to_vec()))
}

/// Appends a line of JSON; `None` if serialization fails. All types in the file can be serialized.
fn append(content: &mut Vec<u8>, line: &impl Serialize) -> Option<()> {
    serde_json::to_writer(&mut *content, line).ok()?;
    content.push(b'\n');
    Some(())
}

fn split_line(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = content.iter().position(|byte| *byte == b'\n')?;
    Some((content.get(..end)?, content.get(end + 1..)?))
}

/// Splits off the last line. The lines before keep their line feeds.
fn split_trailer(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let lines = rest.strip_suffix(b"\n")?;
    let start = lines
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    Some((rest.get(..start)?, lines.get(start..)?))
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
