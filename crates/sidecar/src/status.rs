//! Builds the [`SidecarStatus`]: the document behind `/status` and the page at `/`.
//!
//! The sidecar itself runs the probes and reads dnsmasq's counters. [`crate::peers`] fetches the
//! reports and the rankings of kubedns and the nanny.

use std::time::SystemTime;

use querylog::ranking::RankingDocument;
use reports::sidecar::{
    DnsmasqCounters, DnsmasqReport, PeerReport, PodVerdict, ProbeStatus, SidecarStatus,
};

use crate::options::HealthMode;
use crate::parts::{Dnsmasq, Parts};
use crate::peers::ReportPeer;
use crate::probe::Probe;
use crate::time::{Now, millis, milliseconds};
use crate::verdict;

/// Builds the document. Also updates the histories of containers, traffic and upstreams, the time
/// at which kubedns last refused queries because of `--client-qps`, and the metrics of the verdict
/// and the upstreams. The rankings are included only if `local`.
pub(crate) async fn build_status(parts: &Parts, local: bool) -> SidecarStatus {
    // The reports are fetched at the same time, because each may take until its timeout.
    let (mut kubedns, nanny, top, dnsmasq_top) = tokio::join!(
        parts.peers.kubedns.report(),
        parts.peers.nanny.report(),
        ranking_if(local, &parts.peers.top),
        ranking_if(local, &parts.peers.dnsmasq_top),
    );

    let health = match parts.options.health {
        HealthMode::SelfOnly => "self",
        HealthMode::Through => "through",
    };
    let containers = parts.containers.update(&kubedns, &nanny, Now::read());
    let clients_limited_at = parts
        .limited_clients
        .update(kubedns.known.as_ref(), Now::read());
    let dnsmasq = parts.dnsmasq.as_ref().map(dnsmasq_report);
    let traffic = parts
        .traffic
        .update(kubedns.known.as_ref(), dnsmasq.as_ref(), Now::read());
    if let Some(kubedns) = &mut kubedns.known {
        parts.upstream_histories.update(kubedns, Now::read());
    }
    let probes = parts.probes.iter().map(|probe| probe_status(probe));
    let mut status = SidecarStatus {
        verdict: PodVerdict::default(),
        pod: parts.pod.clone(),
        node: parts.node.clone(),
        version: daemon::version::VERSION.to_owned(),
        commit: daemon::version::COMMIT.to_owned(),
        time: millis(SystemTime::now()),
        uptime_seconds: parts.started.elapsed().as_secs(),
        explains: !parts.options.kubedns_explain.is_empty(),
        health: health.to_owned(),
        probes: probes.collect(),
        dnsmasq,
        containers,
        clients_limited_at,
        traffic,
        kubedns,
        nanny,
        top,
        dnsmasq_top,
    };

    // The verdict is computed from the other fields of the status.
    let faults = verdict::find_faults(&status);
    status.verdict = parts.verdicts.judge(faults, Now::read());
    parts.verdicts.export_upstreams(&status);
    status
}

/// The ranking for a `local` request (see [`daemon::http::local_only`]); `None` for other requests.
/// A foreign web page in a browser must not read the ranking through a port-forward (DNS
/// rebinding). The Host header of its requests has the name of its site, so they are not local.
async fn ranking_if(
    local: bool,
    peer: &ReportPeer<RankingDocument>,
) -> Option<Box<PeerReport<RankingDocument>>> {
    if local {
        Some(Box::new(peer.report().await))
    } else {
        None
    }
}

fn probe_status(probe: &Probe) -> ProbeStatus {
    let spec = probe.spec();
    let health = probe.health();
    ProbeStatus {
        label: spec.label.clone(),
        part: probe.part(),
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
        history: health.history.iter().copied().collect(),
    }
}

fn dnsmasq_report(dnsmasq: &Dnsmasq) -> DnsmasqReport {
    let known = dnsmasq.counters.known();
    let counters = known.reading.map(|(counters, _)| counters);
    DnsmasqReport {
        server: dnsmasq.counters.server().to_string(),
        counters,
        hit_ratio: counters.and_then(DnsmasqCounters::hit_ratio),
        read_at: known.reading.map(|(_, at)| millis(at)),
        error: known.error,
        upstreams: dnsmasq.upstreams.status(),
    }
}
