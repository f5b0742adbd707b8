//! The whole state as one JSON document for an operator: `/status`.

pub(crate) mod kind;

use querylog::ranking::RankingDocument;
use serde::Serialize;

use crate::counters::Reading;
use crate::health::{Point, State};
use crate::peers::{Fetched, Kubedns, Nanny};
use crate::upstreams::UpstreamStatus;

pub(crate) use self::kind::{Kind, Level};

/// The document behind `/status` and the page.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    pub(crate) verdict: Verdict,
    /// The name of the pod: its host name.
    pub(crate) pod: String,
    /// The node of the pod, if the manifest sets `NODE_NAME`.
    pub(crate) node: Option<String>,
    pub(crate) version: &'static str,
    /// The commit that the sidecar was built from, or `unknown`.
    pub(crate) commit: &'static str,
    /// The time of this document, in milliseconds since 1970.
    pub(crate) time: u64,
    /// The time since the sidecar started, in seconds.
    pub(crate) uptime_seconds: u64,
    /// True if `--kubedns-explain` is set, so that kubedns can explain names.
    #[serde(skip)]
    pub(crate) explains: bool,
    /// The rule for health checks: `self` or `through`, see [`Mode`](crate::options::Mode).
    pub(crate) health: &'static str,
    pub(crate) probes: Vec<ProbeStatus>,
    /// `None` in a pod without dnsmasq.
    pub(crate) dnsmasq: Option<DnsmasqStatus>,
    pub(crate) kubedns: Fetched<Kubedns>,
    pub(crate) nanny: Fetched<Nanny>,
    /// Top clients and names; only for requests from within the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) top: Option<Box<Fetched<RankingDocument>>>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProbeStatus {
    pub(crate) label: String,
    /// `kubedns`, `dnsmasq` or `other`.
    pub(crate) part: &'static str,
    pub(crate) server: String,
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) transport: String,
    pub(crate) interval_seconds: u64,
    pub(crate) state: State,
    /// The time of the last change of the state, in milliseconds since 1970.
    pub(crate) since: u64,
    pub(crate) latency_ms: f64,
    /// Probes in a row without an answer for the probed name.
    pub(crate) failures: u32,
    /// The reason why the probed name was not answered.
    pub(crate) error: String,
    pub(crate) rcode: String,
    /// The last results, oldest first.
    pub(crate) history: Vec<Point>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DnsmasqStatus {
    pub(crate) server: String,
    pub(crate) counters: Option<Reading>,
    /// Hits divided by hits and misses, between 0 and 1.
    pub(crate) hit_ratio: Option<f64>,
    /// The time of the last reading, in milliseconds since 1970.
    pub(crate) read_at: Option<u64>,
    pub(crate) error: Option<String>,
    pub(crate) upstreams: Vec<UpstreamStatus>,
}

/// The verdict in `/status`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verdict {
    pub(crate) level: Level,
    /// The findings, worst first; empty for a healthy pod.
    pub(crate) findings: Vec<Lasting>,
}

/// A finding with its remedy.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lasting {
    pub(crate) kind: Kind,
    pub(crate) level: Level,
    pub(crate) text: String,
    pub(crate) detail: String,
    /// The start of the finding, in milliseconds since 1970.
    pub(crate) since: u64,
    pub(crate) action: &'static str,
    pub(crate) runbook: String,
}

#[cfg(test)]
pub(crate) mod example;
