//! Everything an operator wants to see at a glance, as one JSON document: `/status`.
//!
//! The sidecar knows its probes and dnsmasq's counters; what kubedns and the nanny know, it asks them ([`crate::peers`]).

use std::time::SystemTime;

use serde::Serialize;

use crate::counters::Reading;
use crate::health::State;
use crate::options::Mode;
use crate::parts::Parts;
use crate::peers::{Fetched, Kubedns, Nanny};
use crate::probe::{Part, Probe};
use crate::time::{millis, milliseconds};
use crate::upstreams::UpstreamStatus;

/// The document behind `/status` and the page.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The sidecar's version.
    pub version: &'static str,
    /// When this was put together, in milliseconds since 1970.
    pub time: u64,
    /// For how long the sidecar has been running, in seconds.
    pub uptime_seconds: u64,
    /// How health is judged: `self` or `through`.
    pub health: &'static str,
    /// The probes.
    pub probes: Vec<ProbeStatus>,
    /// dnsmasq's counters.
    pub dnsmasq: DnsmasqStatus,
    /// What kubedns tells about itself.
    pub kubedns: Fetched<Kubedns>,
    /// What the nanny tells about dnsmasq and the configuration.
    pub nanny: Fetched<Nanny>,
}

/// One probe.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeStatus {
    /// Its label.
    pub label: String,
    /// `kubedns`, `dnsmasq` or `other`.
    pub part: &'static str,
    /// Who is asked.
    pub server: String,
    /// For what.
    pub name: String,
    /// For which type.
    pub kind: String,
    /// Over what.
    pub transport: String,
    /// How often, in seconds.
    pub interval_seconds: u64,
    /// What the last one found.
    pub state: State,
    /// Since when it has been so, in milliseconds since 1970.
    pub since: u64,
    /// How long the last answer took.
    pub latency_ms: f64,
    /// Why the probed name was not answered.
    pub error: String,
    /// With which response code; empty if nothing came.
    pub rcode: String,
    /// The last results, oldest first.
    pub history: Vec<Point>,
}

/// One result.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// What.
    pub state: State,
    /// How long the answer took.
    pub latency_ms: f64,
}

/// dnsmasq's counters.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DnsmasqStatus {
    /// Which dnsmasq is asked.
    pub server: String,
    /// What it counted since it started.
    pub counters: Option<Reading>,
    /// Hits of hits and misses, between 0 and 1.
    pub hit_ratio: Option<f64>,
    /// When the counters were read, in milliseconds since 1970.
    pub read_at: Option<u64>,
    /// Why they could not be read the last time.
    pub error: Option<String>,
    /// The servers it asks, by address.
    pub upstreams: Vec<UpstreamStatus>,
}

/// Puts the document together.
pub async fn status(parts: &Parts) -> Status {
    let (kubedns, nanny) = tokio::join!(parts.peers.kubedns(), parts.peers.nanny());
    Status {
        version: daemon::version::VERSION,
        time: millis(SystemTime::now()),
        uptime_seconds: parts.started.elapsed().as_secs(),
        health: match parts.options.health {
            Mode::Itself => "self",
            Mode::Through => "through",
        },
        probes: parts.probes.iter().map(|probe| ProbeStatus::of(probe)).collect(),
        dnsmasq: DnsmasqStatus::of(parts),
        kubedns,
        nanny,
    }
}

impl ProbeStatus {
    fn of(probe: &Probe) -> Self {
        let (spec, health) = (probe.spec(), probe.health());
        Self {
            label: spec.label.clone(),
            part: match probe.part() {
                Part::Dnsmasq => "dnsmasq",
                Part::Kubedns => "kubedns",
                Part::Other => "other",
            },
            server: spec.server.to_string(),
            name: spec.question.name().to_ascii(),
            kind: spec.question.query_type().to_string(),
            transport: spec.transport.to_string(),
            interval_seconds: spec.interval.as_secs(),
            state: health.last.state,
            since: millis(health.since),
            latency_ms: milliseconds(health.last.latency),
            error: health.last.error.clone(),
            rcode: health.last.rcode.clone(),
            history: health
                .history
                .iter()
                .map(|sample| Point {
                    at: millis(sample.at),
                    state: sample.state,
                    latency_ms: milliseconds(sample.latency),
                })
                .collect(),
        }
    }
}

impl DnsmasqStatus {
    fn of(parts: &Parts) -> Self {
        let known = parts.counters.known();
        let counters = known.reading.map(|(reading, _)| reading);
        Self {
            server: parts.counters.server().to_string(),
            counters,
            hit_ratio: counters.and_then(|counters| ratio(counters.hits, counters.misses)),
            read_at: known.reading.map(|(_, at)| millis(at)),
            error: known.error,
            upstreams: parts.upstreams.status(),
        }
    }
}

/// Hits of hits and misses; unknown before the first question.
#[allow(clippy::cast_precision_loss, reason = "a ratio for people to read")]
fn ratio(hits: u64, misses: u64) -> Option<f64> {
    let all = hits.saturating_add(misses);
    (all > 0).then(|| hits as f64 / all as f64)
}
