//! The results, kept as JSON, shown as Markdown.

mod document;
mod goals;
mod markdown;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;
use crate::questions::Kind;

pub use document::write;

/// Everything that was found. What was not measured is missing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// First answer and memory.
    pub start: Option<Start>,
    /// CPU time per query.
    pub cost: Option<Cost>,
    /// From a change to the answer.
    pub change: Option<Change>,
    /// Many changes.
    pub churn: Option<Vec<Churn>>,
    /// Hanging questions.
    pub outside: Option<Outside>,
    /// First answer and memory of the large cluster.
    pub large: Option<Start>,
    /// On a real API server.
    #[serde(default)]
    pub real: Option<Real>,
}

/// The machine and the moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The day.
    pub date: String,
    /// Name of the processor.
    pub processor: String,
    /// Cores.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The load average of the last minute before the run: how much else was going on.
    pub load: f64,
}

/// First answer and memory (in KiB).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Services of the cluster.
    pub services: usize,
    /// Addresses of their endpoints.
    pub addresses: usize,
    /// Seconds from the start of the process to the first right answer, median of five starts.
    pub first_answer: f64,
    /// Resident after the first lists.
    pub resident: u32,
    /// The most there was until then.
    pub peak_first_lists: u32,
    /// Resident after everything was listed again three times.
    pub resident_after_relists: u32,
    /// The most there was meanwhile.
    pub peak_relists: u32,
    /// The most there was while queries came in as fast as they were answered.
    pub peak_load: u32,
}

/// CPU time per query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The servers, in the order they were asked.
    pub servers: Vec<String>,
    /// Cost of each of them.
    pub prices: Vec<Price>,
}

/// Cost of a kind of question for a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// The server.
    pub server: String,
    /// The kind.
    pub kind: Kind,
    /// CPU time per query in microseconds, median of the rounds.
    pub microseconds: f64,
    /// The same as a multiple of the echo's in the same round, median of the rounds.
    pub ratio: f64,
}

/// From a change to the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Its duration.
    pub latency: Distribution,
    /// CPU time of the server as a part of one core.
    pub cpu_share: f64,
}

/// Many changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Churn {
    /// The change.
    pub title: String,
    /// CPU time of the server as a part of one core.
    pub cpu_share: f64,
    /// Latency of cluster names meanwhile.
    pub latency: Distribution,
    /// Queries not answered.
    pub lost: usize,
    /// Resident at the end, in KiB.
    pub resident: u32,
}

/// Hanging questions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outside {
    /// Latency of cluster names.
    pub without: Distribution,
    /// Their latency while other questions hang.
    pub with: Distribution,
    /// Queries for cluster names that were not answered.
    pub lost: usize,
    /// Questions about names outside.
    pub asked: u64,
    /// Those of them without any answer.
    pub unanswered: u64,
    /// Seconds from the last of them to the last answer.
    pub longest: f64,
    /// The most memory there was, in KiB.
    pub peak: u32,
}

/// On a real API server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Real {
    /// Its version in its own words.
    pub version: String,
    /// Services of the cluster.
    pub services: usize,
    /// Addresses of their endpoints.
    pub addresses: usize,
    /// For each source of endpoints.
    pub rows: Vec<RealRow>,
}

/// With one source of endpoints. What is said of a start is the median of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RealRow {
    /// `--endpoints-source`.
    pub source: String,
    /// Seconds from the start of the process to the first right answer.
    pub first_answer: f64,
    /// Seconds of CPU time of kubedns, two seconds later.
    pub own_cpu: f64,
    /// Seconds of CPU time of the API server, two seconds later.
    pub api_cpu: f64,
    /// Octets that it received by then, with TLS.
    pub octets: f64,
    /// Octets for each change of a slice and its Endpoints.
    pub octets_each: f64,
    /// Microseconds of CPU time of kubedns for each.
    pub cpu_each: f64,
    /// Resident after the first lists, in KiB.
    pub resident: u32,
    /// Seconds until fifty instances that start at once have all answered.
    pub storm: f64,
}

impl Report {
    /// Nothing was found yet.
    pub fn new(machine: Machine) -> Self {
        Self {
            machine,
            start: None,
            cost: None,
            change: None,
            churn: None,
            outside: None,
            large: None,
            real: None,
        }
    }

    /// The same, with what an earlier run found about what was not measured this time.
    #[must_use]
    pub fn or(self, earlier: Self) -> Self {
        Self {
            machine: self.machine,
            start: self.start.or(earlier.start),
            cost: self.cost.or(earlier.cost),
            change: self.change.or(earlier.change),
            churn: self.churn.or(earlier.churn),
            outside: self.outside.or(earlier.outside),
            large: self.large.or(earlier.large),
            real: self.real.or(earlier.real),
        }
    }
}

impl Machine {
    /// This machine, now.
    pub fn here() -> Self {
        let processor = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| {
                line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned())
            })
            .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        let load =
            read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default();
        Self {
            date: chrono::Utc::now().format("%Y-%m-%d").to_string(),
            processor,
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load,
        }
    }
}

/// An unreadable value is left out.
fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(path)).unwrap_or_default()
}
