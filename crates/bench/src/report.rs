//! The results, stored as JSON and shown as Markdown.

mod document;
mod goals;
mod markdown;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;
use crate::questions::Kind;

pub use document::{check_page, merge_into};

/// All results. Fields of scenarios that were not measured are `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Time to the first answer, and memory.
    pub start: Option<Start>,
    /// CPU time per query.
    pub cost: Option<Cost>,
    /// Time from a change to the first answer that shows the change.
    pub change: Option<Change>,
    /// Cost and latency during many changes.
    pub churn: Option<Vec<Churn>>,
    /// Latency of cluster names during queries for external names that the upstream never answers.
    pub outside: Option<Outside>,
    /// CPU time per query for an external name.
    pub forwarded: Option<Forwarded>,
    /// Latency of changes and forwarded queries, and memory, while clients read HTTP pages.
    pub pages: Option<Pages>,
    /// Time to the first answer, and memory, with the large cluster.
    pub large: Option<Start>,
    /// Results with a real API server.
    pub real: Option<Real>,
    /// Results of many kubedns instances with a real API server.
    pub fleet: Option<Fleet>,
}

/// The machine and the date.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The day of the run, such as `2026-01-31`.
    pub date: String,
    /// Name of the processor.
    pub processor: String,
    /// Number of cores.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The load average of the minute before the run.
    pub load: f64,
}

/// Time to the first answer, and memory in KiB.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Number of Services.
    pub services: usize,
    /// Number of endpoint addresses.
    pub addresses: usize,
    /// Seconds from the start of the process to the first correct answer, median of five starts.
    pub first_answer: f64,
    /// Resident memory after the first lists.
    pub resident: u32,
    /// Peak memory up to the reading of `resident`.
    pub peak_first_lists: u32,
    /// Resident memory after three relists of everything.
    pub resident_after_relists: u32,
    /// Peak memory during the relists.
    pub peak_relists: u32,
    /// Peak memory under the load of dnsperf.
    pub peak_load: u32,
}

/// CPU time per query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The servers, in the order of the first round.
    pub servers: Vec<String>,
    /// Cost per server and kind of query.
    pub prices: Vec<Price>,
}

/// Cost of queries of one kind to one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// The server.
    pub server: String,
    /// The kind.
    pub kind: Kind,
    /// CPU time per query in microseconds, median of the rounds.
    pub microseconds: f64,
    /// CPU time per query as a multiple of the CPU time per query of a UDP echo server in the same
    /// round, median of the rounds.
    pub ratio: f64,
}

/// Time from a change to the first answer that shows the change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The time from a change to the first answer that shows the change.
    pub latency: Distribution,
    /// CPU time of the server as a fraction of one core.
    pub cpu_share: f64,
}

/// Cost and latency during one kind of change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Churn {
    /// The kind of change; `quiet` if nothing changes.
    pub title: String,
    /// CPU time of the server as a fraction of one core.
    pub cpu_share: f64,
    /// Latency of cluster names during the changes.
    pub latency: Distribution,
    /// Queries without an answer.
    pub lost: usize,
    /// Resident memory at the end, in KiB.
    pub resident: u32,
}

/// Latency of cluster names, without and with queries for external names. The upstream of these
/// queries never answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outside {
    /// Latency of cluster names without queries for external names.
    pub without: Distribution,
    /// Latency of cluster names during queries for external names.
    pub with: Distribution,
    /// Queries for cluster names without an answer.
    pub lost: usize,
    /// Queries for external names.
    pub asked: u64,
    /// Queries for external names without an answer.
    pub unanswered: u64,
    /// Seconds from the end of the queries for external names to the last answer; 0 if no answer
    /// came after the end.
    pub longest: f64,
    /// Peak memory, in KiB.
    pub peak: u32,
}

/// CPU time per query for an external name, and the latency and memory of each forwarder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forwarded {
    /// The forwarders, in the order of the first round.
    pub rows: Vec<Forwarder>,
}

/// The results of one forwarder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forwarder {
    /// The server.
    pub server: String,
    /// CPU time per query in microseconds, median of the rounds, for each load of
    /// [`ForwardedLoad::ALL`].
    pub microseconds: Vec<f64>,
    /// Number of queries without an answer, in all rounds.
    pub lost: u32,
    /// Latency of names that are not cached, with at most a thousand queries a second.
    pub uncached: Distribution,
    /// Memory that the cache takes after queries for ten thousand names, in KiB.
    pub cache_memory: u32,
}

/// A load of queries for external names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForwardedLoad {
    /// Names that are not cached, 3,000 queries a second.
    Uncached,
    /// Names that are not cached, as many queries as the server answers.
    UncachedFullSpeed,
    /// Cached names, 3,000 queries a second.
    Cached,
    /// Cached names, 40,000 queries a second.
    CachedFast,
}

impl ForwardedLoad {
    /// All loads.
    pub const ALL: [Self; 4] = [
        Self::Uncached,
        Self::UncachedFullSpeed,
        Self::Cached,
        Self::CachedFast,
    ];

    /// The heading in tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Uncached => "uncached, 3,000 q/s",
            Self::UncachedFullSpeed => "uncached, full speed",
            Self::Cached => "cached, 3,000 q/s",
            Self::CachedFast => "cached, 40,000 q/s",
        }
    }

    /// Queries a second; `None` for as many as possible.
    pub fn rate(self) -> Option<u32> {
        match self {
            Self::Uncached | Self::Cached => Some(3000),
            Self::UncachedFullSpeed => None,
            Self::CachedFast => Some(40_000),
        }
    }

    /// Whether the names are cached.
    pub fn is_cached(self) -> bool {
        matches!(self, Self::Cached | Self::CachedFast)
    }

    /// The server whose CPU time per query is the limit for kubedns.
    pub fn measure(self) -> &'static str {
        if self.is_cached() {
            "Unbound"
        } else {
            "dnsmasq"
        }
    }
}

/// Latency of changes and forwarded queries, and memory, while clients read HTTP pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pages {
    /// Results without readers, and with readers of each page.
    pub rows: Vec<PagesRow>,
    /// Resident memory without readers, in KiB.
    pub resident: u32,
    /// Peak memory while two clients read `/cache` slowly, in KiB.
    pub peak_slow: u32,
}

/// Results with readers of one page, or without readers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PagesRow {
    /// The readers, such as `16 readers of /cache`, or `no readers`.
    pub title: String,
    /// Number of pages read.
    pub read: u64,
    /// Time from a change at the API server to the first answer that shows the change.
    pub change: Distribution,
    /// Latency of queries that are forwarded to an upstream.
    pub forwarded: Distribution,
    /// Forwarded queries without an answer.
    pub lost: usize,
}

/// Results with a real API server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Real {
    /// The version as the API server reports it.
    pub version: String,
    /// Number of Services.
    pub services: usize,
    /// Number of endpoint addresses.
    pub addresses: usize,
    /// One row per source of endpoints.
    pub rows: Vec<RealRow>,
}

/// Results for one source of endpoints. `first_answer`, `own_cpu`, `api_cpu` and `octets` are
/// medians of five starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RealRow {
    /// `--endpoints-source`.
    pub source: String,
    /// Seconds from the start of the process to the first correct answer.
    pub first_answer: f64,
    /// Seconds of CPU time of kubedns from its start until two seconds after the first answer.
    pub own_cpu: f64,
    /// Seconds of CPU time that the start costs the API server in the same period.
    pub api_cpu: f64,
    /// Octets that kubedns received in the same period, including TLS.
    pub octets: f64,
    /// Octets received for each change. A change alters the slice and the Endpoints of one Service.
    pub octets_each: f64,
    /// Microseconds of CPU time of kubedns for each change.
    pub cpu_each: f64,
    /// Resident memory after the first lists, in KiB.
    pub resident: u32,
    /// Seconds until fifty instances that start at once have all answered.
    pub storm: f64,
}

/// Results of many kubedns instances with a real API server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    /// The version as the API server reports it.
    pub version: String,
    /// Number of Services.
    pub services: usize,
    /// Number of endpoint addresses.
    pub addresses: usize,
    /// One row for each number of kubedns instances, after a row without kubedns.
    pub rows: Vec<FleetRow>,
}

/// Results with a given number of kubedns instances. The API server also does work that kubedns
/// does not cause: `idle_cpu_share` and `busy_cpu_share` include that work, `start_cpu` does not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetRow {
    /// Number of kubedns instances.
    pub instances: u32,
    /// Seconds until all instances have answered. All instances start at the same time.
    pub last_answer: f64,
    /// Seconds of CPU time that the start of all instances costs the API server.
    pub start_cpu: f64,
    /// Octets that all instances together receive at the start, including TLS.
    pub start_octets: f64,
    /// CPU time of the API server as a fraction of one core, while nothing changes.
    pub idle_cpu_share: f64,
    /// Octets that all instances together receive in a second while nothing changes.
    pub idle_octets: f64,
    /// CPU time of the API server as a fraction of one core, while ten slices change a second.
    pub busy_cpu_share: f64,
    /// Octets that all instances together receive for each change.
    pub octets_each: f64,
    /// The time that the API server takes to accept a change.
    pub accepted: Distribution,
    /// For each queried instance, the time from the acceptance of a change to the first answer that
    /// shows the change; `None` without kubedns.
    pub answered: Option<Distribution>,
    /// The load average of the last minute, read after the last change.
    pub load: f64,
}

impl Machine {
    /// Reads the properties and the load of this machine.
    pub fn here() -> Self {
        let processor = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| {
                line.strip_prefix("model name")?
                    .split_once(':')
                    .map(|(_, name)| name.trim().to_owned())
            })
            .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        Self {
            date: chrono::Utc::now().format("%Y-%m-%d").to_string(),
            processor,
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: load_average(),
        }
    }
}

/// The load average of the last minute.
pub(crate) fn load_average() -> f64 {
    let averages = read("/proc/loadavg");
    let minute = averages.split(' ').next();
    minute
        .and_then(|load| load.parse().ok())
        .unwrap_or_default()
}

/// Reads a file. An unreadable file gives an empty text.
fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(path)).unwrap_or_default()
}
