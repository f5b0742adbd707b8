//! The sidecar's `/status`: the verdict on the pod, and the data behind the verdict.

use std::time::Duration;

use querylog::ranking::RankingDocument;
use serde::{Deserialize, Serialize};

use crate::EXTERNAL_NAMES;
use crate::finding::{FindingLevel, PodFinding};
use crate::kubedns::{KubednsReport, RouteServer};
use crate::nanny::NannyStatus;

/// The document behind `/status` and the page.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SidecarStatus {
    /// The verdict on the pod.
    pub verdict: PodVerdict,
    /// The host name of the pod, usually the name of the pod.
    pub pod: String,
    /// The node of the pod, if the manifest sets `NODE_NAME`.
    pub node: Option<String>,
    /// The version of the sidecar.
    pub version: String,
    /// The commit that the sidecar was built from, or `unknown`.
    pub commit: String,
    /// The time of this document, in milliseconds since 1970.
    pub time: u64,
    /// The time since the sidecar started, in seconds.
    pub uptime_seconds: u64,
    /// True if kubedns can be asked to explain names. Only the page uses this field.
    #[serde(skip)]
    pub explains: bool,
    /// The rule for health checks, `self` or `through`. A server is healthy if it answers the query
    /// for the probed name. With `self`, kubedns is also healthy if it gives any other response,
    /// and dnsmasq if it answers a query that it need not forward.
    pub health: String,
    /// The probes, in the order of the command line.
    pub probes: Vec<ProbeStatus>,
    /// `None` in a pod without dnsmasq.
    pub dnsmasq: Option<DnsmasqReport>,
    /// The other containers of the pod, as the sidecar has seen them since its start.
    pub containers: Vec<ContainerHistory>,
    /// The time when the sidecar last saw a rise of `kubedns_client_rate_limited_total`, the count
    /// of queries refused because of `--client-qps`, in milliseconds since 1970. `None` if the
    /// sidecar has seen no rise.
    pub clients_limited_at: Option<u64>,
    /// The rates of queries over the last twenty minutes, oldest first.
    pub traffic: Vec<TrafficSample>,
    /// kubedns, according to its metrics.
    pub kubedns: PeerReport<KubednsReport>,
    /// The status of the nanny.
    pub nanny: PeerReport<NannyStatus>,
    /// Top clients and names of kubedns. The field is written only for local requests (see
    /// `daemon::http::local_only`), and ignored when the document is parsed.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub top: Option<Box<PeerReport<RankingDocument>>>,
    /// Top clients and names of dnsmasq, if dnsmasq logs its queries. As with `top`, the field is
    /// written only for local requests, and ignored when the document is parsed.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub dnsmasq_top: Option<Box<PeerReport<RankingDocument>>>,
}

/// The verdict on the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodVerdict {
    /// The level of the worst finding.
    pub level: FindingLevel,
    /// The findings, worst first; empty for a healthy pod.
    pub findings: Vec<PodFinding>,
}

/// A probe with its last results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeStatus {
    /// The label of `--probe`.
    pub label: String,
    /// The part of the pod that the probe checks.
    pub part: PodPart,
    /// The probed server.
    pub server: String,
    /// The probed name.
    pub name: String,
    /// The type of the query.
    pub kind: String,
    /// `udp` or `tcp`.
    pub transport: String,
    /// The interval of the probe, in seconds.
    pub interval_seconds: u64,
    /// The state of the server according to the last probe.
    pub state: ProbeState,
    /// The time of the last change of the state, in milliseconds since 1970.
    pub since: u64,
    /// The latency of the response that shows that the server is healthy; zero if the server is not
    /// healthy.
    pub latency_ms: f64,
    /// Probes in a row without an answer for the probed name.
    pub failures: u32,
    /// The reason why the probed name was not answered; empty if it was answered.
    pub error: String,
    /// The RCODE of the response that did not answer the probed name; empty if there was no such
    /// response.
    pub rcode: String,
    /// The last results, oldest first.
    pub history: Vec<ProbeResult>,
}

impl ProbeStatus {
    /// The latency; the longest `Duration` if the number is too large.
    pub fn latency(&self) -> Duration {
        let seconds = (self.latency_ms / 1000.0).max(0.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Whether the last probe failed because it got no response. False if it got a response that
    /// does not answer the probed name, such as SERVFAIL or a response without records.
    pub fn is_silent(&self) -> bool {
        self.state.is_failed() && self.rcode.is_empty()
    }
}

/// The part of the pod that a probe checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodPart {
    /// kubedns.
    Kubedns,
    /// dnsmasq.
    Dnsmasq,
    /// Any other server.
    #[default]
    #[serde(other)]
    Other,
}

impl PodPart {
    /// The word for the part in JSON and texts.
    pub fn label(self) -> &'static str {
        match self {
            Self::Kubedns => "kubedns",
            Self::Dnsmasq => "dnsmasq",
            Self::Other => "other",
        }
    }
}

/// The state of a server according to its probe, or one result in the history of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeState {
    /// The probed name was answered. In the history of an upstream of dnsmasq: the probe got a
    /// usable answer. In the history of an upstream of kubedns: there were more responses than
    /// errors.
    Ok,
    /// The server answers, but not for the probed name.
    #[serde(rename = "itself")]
    SelfOnly,
    /// The server fails its health check. In the history of an upstream of dnsmasq: the probe
    /// failed. In the history of an upstream of kubedns: there were errors, and at least as many
    /// errors as responses.
    Failed,
    /// The first probe has not ended. In the history of an upstream of kubedns: the counters show
    /// neither responses nor errors, or they began again at zero.
    #[default]
    #[serde(other)]
    Waiting,
}

impl ProbeState {
    /// Whether the server passes its health check.
    pub fn is_healthy(self) -> bool {
        matches!(self, Self::Ok | Self::SelfOnly)
    }

    /// Whether the last probe failed.
    pub fn is_failed(self) -> bool {
        self == Self::Failed
    }
}

/// One point in the history of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeResult {
    /// The time, in milliseconds since 1970.
    pub at: u64,
    /// The state of the server.
    pub state: ProbeState,
    /// The latency. For an upstream of kubedns: the mean latency of its responses since the
    /// previous point. Zero if the server is not healthy.
    pub latency_ms: f64,
}

/// The rates of queries in an interval of about ten seconds, calculated from counters. A value is
/// `None` if one of its counters is missing, was not read since the previous sample, or began again
/// at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficSample {
    /// The end of the interval, in milliseconds since 1970.
    pub at: u64,
    /// Queries a second to kubedns for names of its own zones.
    pub cluster: Option<f64>,
    /// Queries a second to kubedns for external names.
    pub external: Option<f64>,
    /// Mean latency of the answers to the queries in `cluster`; `None` without answers.
    pub latency_ms: Option<f64>,
    /// Queries per second that dnsmasq answered without forwarding them. In a pod without dnsmasq:
    /// queries per second that the cache of kubedns answered.
    pub hits: Option<f64>,
    /// Queries per second that dnsmasq forwarded. In a pod without dnsmasq: queries per second that
    /// the cache of kubedns did not answer.
    pub misses: Option<f64>,
}

/// dnsmasq, as the sidecar sees it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsmasqReport {
    /// The address of dnsmasq.
    pub server: String,
    /// The counters of the last successful reading.
    pub counters: Option<DnsmasqCounters>,
    /// Hits divided by the sum of hits and misses, between 0 and 1.
    pub hit_ratio: Option<f64>,
    /// The time of the last successful reading, in milliseconds since 1970.
    pub read_at: Option<u64>,
    /// The error of the last reading, if it failed.
    pub error: Option<String>,
    /// The servers that dnsmasq forwards to.
    pub upstreams: Vec<DnsmasqUpstream>,
}

/// Counters of dnsmasq at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsmasqCounters {
    /// Queries that dnsmasq answered without forwarding them.
    pub hits: u64,
    /// Queries that dnsmasq forwarded.
    pub misses: u64,
    /// Names evicted from the cache before they expired.
    pub evictions: u64,
    /// Names inserted into the cache.
    pub insertions: u64,
    /// Capacity of the cache, in names.
    pub cache_size: u64,
}

impl DnsmasqCounters {
    /// Hits divided by the sum of hits and misses; `None` before the first query.
    #[allow(clippy::cast_precision_loss, reason = "a ratio for people to read")]
    pub fn hit_ratio(self) -> Option<f64> {
        let queries = self.hits.saturating_add(self.misses);
        (queries > 0).then(|| self.hits as f64 / queries as f64)
    }
}

/// One upstream of dnsmasq, with its probes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsmasqUpstream {
    /// The address.
    pub address: String,
    /// The stub domains that the upstream serves; `.` for all other names. Empty if unknown.
    pub serves: Vec<String>,
    /// The condition according to the last probes.
    pub condition: UpstreamCondition,
    /// The time of the last change of the condition, in milliseconds since 1970.
    pub since: u64,
    /// The upstream has given a usable answer to a probe since the sidecar started.
    pub has_answered: bool,
    /// Latency of the last successful probe.
    pub latency_ms: Option<f64>,
    /// The error of the last probe; empty if it succeeded.
    pub error: String,
    /// The number of probes.
    pub probes: u64,
    /// Failed probes: no answer, SERVFAIL or REFUSED.
    pub failures: u64,
    /// The number of queries to this upstream that the sidecar has counted. The sidecar adds the
    /// increase of dnsmasq's counter between two readings, unless the list of upstreams changed
    /// between them. A restart of dnsmasq does not reset the number.
    pub queries: u64,
    /// The last results, oldest first.
    pub history: Vec<ProbeResult>,
}

/// The history of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerHistory {
    /// The name of the container in the manifests.
    pub name: String,
    /// The container has reported its state before, but no longer does.
    pub is_report_missing: bool,
    /// The last restarts, oldest first.
    pub restarts: Vec<ContainerRestart>,
}

/// A restart of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRestart {
    /// The time, in milliseconds since 1970.
    pub at: u64,
    /// The end of the container.
    pub end: ContainerEnd,
}

/// The end of a container, as far as another container of the pod can tell. Only the kubelet knows
/// the cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerEnd {
    /// The process kept its port open, but did not answer before it ended. Usually its liveness
    /// probe failed, and the kubelet restarted the container.
    Hang,
    /// The process ended without a hang: a crash, an error, or a kill, for example because of the
    /// memory limit.
    #[default]
    #[serde(other)]
    Death,
}

impl ContainerEnd {
    /// The end of the container, as text for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Hang => "a hang: requests to the container timed out before the restart",
            Self::Death => "a crash, an error, or a kill, for example because of the memory limit",
        }
    }
}

/// Condition of an upstream of dnsmasq.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamCondition {
    /// No probe has decided the condition yet.
    #[default]
    Waiting,
    /// The upstream answers.
    Answers,
    /// The upstream answers SERVFAIL or REFUSED.
    Fails,
    /// The upstream does not answer.
    #[serde(other)]
    Silent,
}

/// The report of another container, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeerReport<T> {
    /// The URL or file of the report; empty if the sidecar does not fetch the report.
    pub source: String,
    /// The report; `None` if it is unknown.
    pub known: Option<T>,
    /// The error of the request.
    pub error: Option<String>,
    /// The request timed out. Only the sidecar uses this field.
    #[serde(skip)]
    pub is_unanswered: bool,
}

impl<T> Default for PeerReport<T> {
    fn default() -> Self {
        Self::not_read()
    }
}

impl<T> PeerReport<T> {
    /// A report that the sidecar does not fetch.
    pub fn not_read() -> Self {
        Self {
            source: String::new(),
            known: None,
            error: None,
            is_unanswered: false,
        }
    }

    /// The result of a request to `source`.
    pub fn of_request(source: String, result: Result<T, String>) -> Self {
        let (known, error) = match result {
            Ok(known) => (Some(known), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            source,
            known,
            error,
            is_unanswered: false,
        }
    }
}

impl SidecarStatus {
    /// Whether kubedns forwards the queries for the names of `route`, which is a stub domain or
    /// [`EXTERNAL_NAMES`]. True in a pod without dnsmasq. Otherwise the nanny knows whether dnsmasq
    /// sends these queries to kubedns; false if the nanny's status is unknown.
    pub fn forwards_by_kubedns(&self, route: &str) -> bool {
        let nanny = self.nanny.known.as_ref();
        self.dnsmasq.is_none() || nanny.is_some_and(|nanny| nanny.routes.forwards_to_kubedns(route))
    }

    /// The servers that kubedns forwards to, for the routes for which [`Self::forwards_by_kubedns`]
    /// is true.
    pub fn servers_of_kubedns(&self) -> impl Iterator<Item = &RouteServer> {
        let kubedns = self.kubedns.known.as_ref();
        let servers = kubedns.map_or(&[][..], |kubedns| &kubedns.routes);
        servers
            .iter()
            .filter(|server| self.forwards_by_kubedns(&server.route))
    }

    /// The version of the configuration in force in the nanny.
    pub fn configuration_version(&self) -> Option<&str> {
        self.nanny.known.as_ref()?.configuration.version.as_deref()
    }

    /// The stub domains in force in the nanny or in kubedns, sorted.
    pub fn stub_domains(&self) -> Vec<String> {
        let mut domains = Vec::new();
        if let Some(nanny) = &self.nanny.known {
            domains.extend(nanny.routes.stub_domains.keys().map(String::as_str));
        }
        if let Some(kubedns) = &self.kubedns.known {
            domains.extend(kubedns.routes.iter().map(|server| server.route.as_str()));
        }

        // kubedns lists a stub domain once for each server of the domain.
        let mut domains: Vec<String> = domains
            .into_iter()
            .filter(|domain| *domain != EXTERNAL_NAMES)
            .map(|domain| domain.trim_end_matches('.').to_owned())
            .collect();
        domains.sort();
        domains.dedup();
        domains
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_fields_have_defaults() {
        let status: SidecarStatus = serde_json::from_value(json!({"new": 1})).unwrap();
        assert!(status.forwards_by_kubedns(EXTERNAL_NAMES));
        assert_eq!(status.configuration_version(), None);
        assert!(status.stub_domains().is_empty());
    }

    #[test]
    fn unknown_labels_are_read() {
        let status: SidecarStatus = serde_json::from_value(json!({
            "probes": [{"part": "new", "state": "new"}, {"part": "kubedns", "state": "itself"}],
            "dnsmasq": {"upstreams": [{"condition": "new"}, {"condition": "answers"}]},
        }))
        .unwrap();
        let probes = status.probes.iter().map(|probe| (probe.part, probe.state));
        assert_eq!(
            probes.collect::<Vec<_>>(),
            [
                (PodPart::Other, ProbeState::Waiting),
                (PodPart::Kubedns, ProbeState::SelfOnly)
            ]
        );
        let upstreams = status.dnsmasq.unwrap().upstreams;
        assert_eq!(upstreams[0].condition, UpstreamCondition::Silent);
        assert_eq!(upstreams[1].condition, UpstreamCondition::Answers);
    }

    #[test]
    fn parts_and_states_are_written_as_labels() {
        for part in [PodPart::Kubedns, PodPart::Dnsmasq, PodPart::Other] {
            assert_eq!(serde_json::to_value(part).unwrap(), part.label());
        }
        for (state, label) in [
            (ProbeState::Waiting, "waiting"),
            (ProbeState::Ok, "ok"),
            (ProbeState::SelfOnly, "itself"),
            (ProbeState::Failed, "failed"),
        ] {
            assert_eq!(serde_json::to_value(state).unwrap(), label);
        }
    }

    #[test]
    fn default_status_is_written_without_rankings() {
        let written = serde_json::to_string(&SidecarStatus::default()).unwrap();
        let peer = "{\"source\":\"\",\"known\":null,\"error\":null}";
        let whole = format!(
            "{{\"verdict\":{{\"level\":\"healthy\",\"findings\":[]}},\"pod\":\"\",\"node\":null,\
             \"version\":\"\",\"commit\":\"\",\"time\":0,\"uptimeSeconds\":0,\"health\":\"\",\
             \"probes\":[],\"dnsmasq\":null,\"containers\":[],\"clientsLimitedAt\":null,\"traffic\":[],\"kubedns\":{peer},\"nanny\":{peer}}}"
        );
        assert_eq!(written, whole);
    }
}
