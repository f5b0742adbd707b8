//! Builds the [`Status`]: the document behind `/status` and the page.
//!
//! The results of the probes and dnsmasq's counters come from the sidecar itself. [`crate::peers`]
//! fetches the rest from kubedns and the nanny.

use std::time::SystemTime;

use crate::document::{DnsmasqStatus, ProbeStatus, Status, Verdict};
use crate::options::Mode;
use crate::parts::{Dnsmasq, Parts};
use crate::probe::{Part, Probe};
use crate::time::{Now, millis, milliseconds};
use crate::verdict;

/// Builds the document; `top` is included only if `local`.
pub(crate) async fn status(parts: &Parts, local: bool) -> Status {
    let top = async {
        if local {
            Some(Box::new(parts.peers.top.known().await))
        } else {
            None
        }
    };
    let (kubedns, nanny, top) =
        tokio::join!(parts.peers.kubedns.known(), parts.peers.nanny.known(), top);
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
        probes: parts
            .probes
            .iter()
            .map(|probe| ProbeStatus::of(probe))
            .collect(),
        dnsmasq: parts.dnsmasq.as_ref().map(DnsmasqStatus::of),
        kubedns,
        nanny,
        top,
    };
    status.verdict = parts
        .verdicts
        .judge(verdict::findings(&status), Now::read());
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
            since: Now::read().millis_of(health.since),
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
