//! Everything an operator wants to see at a glance, as one JSON document: `/status`.
//!
//! The sidecar knows its probes and dnsmasq's counters. What kubedns and the nanny know is read from them when somebody
//! looks, at most once a second, bounded in size and time; what cannot be had is shown as unknown.

mod kubedns;
mod nanny;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::sync::Mutex;

use crate::app::Parts;
use crate::counters::Reading;
use crate::fetch::fetch;
use crate::health::State;
use crate::options::{Mode, Options};
use crate::probe::{Part, Probe};
use crate::upstreams::UpstreamStatus;

pub use self::kubedns::{Kubedns, Upstream};
pub use self::nanny::{Configuration, Nanny, Process, Refusal, Routes};

/// How long what others told is shown before they are asked again.
const FRESH: Duration = Duration::from_secs(1);

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
    pub kubedns: Told<Kubedns>,
    /// What the nanny tells about dnsmasq and the configuration.
    pub nanny: Told<Nanny>,
}

/// What another part tells, or why it does not.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Told<T> {
    /// Where it is read; empty when nowhere.
    pub source: String,
    /// What it says.
    pub known: Option<T>,
    /// Why that is not known.
    pub error: Option<String>,
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

/// Where the other parts tell about themselves, and what they told last.
#[derive(Debug)]
pub struct Sources {
    kubedns: String,
    nanny: String,
    last: Mutex<Option<Others>>,
}

/// What the others told, and when.
type Others = (Instant, Told<Kubedns>, Told<Nanny>);

impl Sources {
    /// The sources the flags name.
    pub fn new(options: &Options) -> Self {
        Self {
            kubedns: options.kubedns_metrics.clone(),
            nanny: options.nanny_status.clone(),
            last: Mutex::default(),
        }
    }

    /// What the others tell. Whoever comes while somebody is asking waits for that answer.
    async fn told(&self) -> (Told<Kubedns>, Told<Nanny>) {
        let mut last = self.last.lock().await;
        if let Some((at, kubedns, nanny)) = &*last
            && at.elapsed() < FRESH
        {
            return (kubedns.clone(), nanny.clone());
        }
        let (kubedns, nanny) =
            tokio::join!(told(&self.kubedns, |text| Ok(Kubedns::read(text))), told(&self.nanny, Nanny::read));
        *last = Some((Instant::now(), kubedns.clone(), nanny.clone()));
        (kubedns, nanny)
    }
}

/// Reads what another part tells.
pub(crate) async fn told<T>(source: &str, read: impl Fn(&str) -> Result<T, String>) -> Told<T> {
    let source = source.to_owned();
    if source.is_empty() {
        return Told { source, known: None, error: None };
    }
    let known = match fetch(&source).await {
        Ok(text) => read(&text),
        Err(error) => Err(error.to_string()),
    };
    match known {
        Ok(known) => Told { source, known: Some(known), error: None },
        Err(error) => Told { source, known: None, error: Some(error) },
    }
}

/// Puts the document together.
pub async fn status(parts: &Parts) -> Status {
    let (kubedns, nanny) = parts.sources.told().await;
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

/// Milliseconds since 1970.
pub(crate) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// For people and for JavaScript.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
