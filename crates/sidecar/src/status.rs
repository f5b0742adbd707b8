//! The whole state as one JSON document for an operator: `/status`.
//!
//! The results of the probes and dnsmasq's counters come from the sidecar itself. [`crate::peers`] fetches the rest
//! from kubedns and the nanny.

use std::time::SystemTime;

use querylog::ranking::Ranking;
use serde::Serialize;

use crate::counters::Reading;
use crate::health::{Point, State};
use crate::options::Mode;
use crate::parts::{Dnsmasq, Parts};
use crate::peers::{Fetched, Kubedns, Nanny};
use crate::probe::{Part, Probe};
use crate::time::{millis, milliseconds};
use crate::upstreams::UpstreamStatus;
use crate::verdict::{self, Verdict};

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
    /// The rule for health checks: `self` or `through`.
    pub(crate) health: &'static str,
    pub(crate) probes: Vec<ProbeStatus>,
    /// `None` in a pod without dnsmasq.
    pub(crate) dnsmasq: Option<DnsmasqStatus>,
    pub(crate) kubedns: Fetched<Kubedns>,
    pub(crate) nanny: Fetched<Nanny>,
    /// Top clients and names; only for requests from within the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) top: Option<Box<Fetched<Ranking>>>,
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

/// Builds the document; `top` is included only if `local`.
pub(crate) async fn status(parts: &Parts, local: bool) -> Status {
    let top = async { if local { Some(Box::new(parts.peers.top.known().await)) } else { None } };
    let (kubedns, nanny, top) = tokio::join!(parts.peers.kubedns.known(), parts.peers.nanny.known(), top);
    let mut status = Status {
        verdict: Verdict::default(),
        pod: parts.pod.clone(),
        node: parts.node.clone(),
        version: daemon::version::VERSION,
        commit: daemon::version::COMMIT,
        time: millis(SystemTime::now()),
        uptime_seconds: parts.started.elapsed().as_secs(),
        explains: !parts.options.kubedns_explain.is_empty(),
        health: match parts.options.health {
            Mode::Itself => "self",
            Mode::Through => "through",
        },
        probes: parts.probes.iter().map(|probe| ProbeStatus::of(probe)).collect(),
        dnsmasq: parts.dnsmasq.as_ref().map(DnsmasqStatus::of),
        kubedns,
        nanny,
        top,
    };
    status.verdict = parts.verdicts.judge(verdict::findings(&status), SystemTime::now());
    status
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
            failures: health.failures,
            error: health.last.failure.error,
            rcode: health.last.failure.rcode,
            history: health.history.into(),
        }
    }
}

impl DnsmasqStatus {
    fn of(dnsmasq: &Dnsmasq) -> Self {
        let known = dnsmasq.counters.known();
        let counters = known.reading.map(|(reading, _)| reading);
        Self {
            server: dnsmasq.counters.server().to_string(),
            counters,
            hit_ratio: counters.and_then(|counters| ratio(counters.hits, counters.misses)),
            read_at: known.reading.map(|(_, at)| millis(at)),
            error: known.error,
            upstreams: dnsmasq.upstreams.status(),
        }
    }
}

/// Hits divided by hits and misses; `None` before the first query.
#[allow(clippy::cast_precision_loss, reason = "a ratio for people to read")]
fn ratio(hits: u64, misses: u64) -> Option<f64> {
    let all = hits.saturating_add(misses);
    (all > 0).then(|| hits as f64 / all as f64)
}

#[cfg(test)]
pub(crate) mod example;
