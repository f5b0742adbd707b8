//! The status of a healthy pod, for tests to change.

use reports::kubedns::KubednsReport;
use reports::nanny::NannyStatus;
use reports::sidecar::{
    DnsmasqCounters, DnsmasqReport, DnsmasqUpstream, PeerReport, PodPart, PodVerdict, ProbeResult,
    ProbeState, ProbeStatus, SidecarStatus, TrafficSample, UpstreamCondition,
};

/// The time of the example, in milliseconds since 1970.
const TIME: u64 = 1_795_208_055_000;

pub(crate) fn probe(part: PodPart, state: ProbeState, error: &str) -> ProbeStatus {
    ProbeStatus {
        label: part.label().to_owned(),
        part,
        server: "127.0.0.1:53".to_owned(),
        name: "kubernetes.default.svc.cluster.local.".to_owned(),
        kind: "SRV".to_owned(),
        transport: "udp".to_owned(),
        interval_seconds: 5,
        state,
        since: 1_795_208_000_000,
        latency_ms: 0.7,
        failures: if state == ProbeState::Ok { 0 } else { 3 },
        error: error.to_owned(),
        rcode: String::new(),
        history: vec![ProbeResult {
            at: 1_795_208_050_000,
            state,
            latency_ms: 0.7,
        }],
    }
}

pub(crate) fn upstream(address: &str, serves: &[&str], error: &str) -> DnsmasqUpstream {
    DnsmasqUpstream {
        address: address.to_owned(),
        serves: serves.iter().map(|domain| (*domain).to_owned()).collect(),
        condition: if error.is_empty() {
            UpstreamCondition::Answers
        } else {
            UpstreamCondition::Silent
        },
        since: 1_795_208_000_000,
        has_answered: true,
        latency_ms: error.is_empty().then_some(4.25),
        error: error.to_owned(),
        probes: 9,
        failures: if error.is_empty() { 0 } else { 2 },
        queries: 17,
        history: Vec::new(),
    }
}

pub(crate) fn good() -> SidecarStatus {
    let kubedns = "kubedns_synced 1\nkubedns_stale 0\nkubedns_forward_upstream_up{route=\".\",upstream=\"192.0.2.9:53\"} 1\n\
                   kubedns_watch_connected{kind=\"services\"} 1\n\
                   kubedns_last_event_timestamp_seconds{kind=\"services\"} 1795208050\n\
                   kubedns_forward_requests_total{upstream=\"192.0.2.9:53\"} 5\n\
                   kubedns_forward_errors_total{upstream=\"192.0.2.9:53\"} 1\n\
                   kubedns_forward_request_duration_seconds_sum{upstream=\"192.0.2.9:53\"} 0.0123\n\
                   kubedns_forward_request_duration_seconds_count{upstream=\"192.0.2.9:53\"} 1\n";
    let nanny = r#"{"dnsmasq":{"version":"2.90","restarts":{"died":2},"lastEnd":"signal 9"},
                    "configuration":{"version":"00ff","loadedAt":"2026-11-21T01:00:00Z","stubDomains":{"acme.local":["192.0.2.1"]}},
                    "routes":{"stubDomains":{"acme.local":["192.0.2.1#53"]},"upstreams":["192.0.2.9#53"],"upstreamsFrom":"resolv.conf"}}"#;
    SidecarStatus {
        verdict: PodVerdict::default(),
        pod: "kube-dns-abc".to_owned(),
        node: Some("node-1".to_owned()),
        explains: true,
        version: "1.2.3".to_owned(),
        commit: "abc1234".to_owned(),
        time: TIME,
        uptime_seconds: 3725,
        traffic: vec![traffic_sample(20_000, 12.0), traffic_sample(10_000, 8.0)],
        health: "self".to_owned(),
        probes: vec![
            probe(PodPart::Kubedns, ProbeState::Ok, ""),
            probe(PodPart::Dnsmasq, ProbeState::Ok, ""),
        ],
        dnsmasq: Some(DnsmasqReport {
            server: "127.0.0.1:53".to_owned(),
            counters: Some(DnsmasqCounters {
                hits: 30,
                misses: 10,
                evictions: 1,
                insertions: 9,
                cache_size: 1000,
            }),
            hit_ratio: Some(0.75),
            read_at: Some(1_795_208_054_000),
            error: None,
            upstreams: vec![upstream("192.0.2.9:53", &["."], "")],
        }),
        containers: Vec::new(),
        clients_limited_at: None,
        kubedns: told(KubednsReport::from_metrics(kubedns)),
        nanny: told(NannyStatus::parse(nanny).unwrap()),
        top: None,
        dnsmasq_top: None,
    }
}

pub(crate) fn told<T>(known: T) -> PeerReport<T> {
    PeerReport::of_request("http://127.0.0.1/".to_owned(), Ok(known))
}

/// The rates at `before` milliseconds before the time of the example.
fn traffic_sample(before: u64, cluster: f64) -> TrafficSample {
    TrafficSample {
        at: TIME - before,
        cluster: Some(cluster),
        external: Some(cluster / 4.0),
        latency_ms: Some(0.02),
        hits: Some(cluster * 3.0),
        misses: Some(cluster),
    }
}
