//! The state of kubedns according to its metrics.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::EXTERNAL_NAMES;
use crate::exposition::{MetricSample, metric_samples};
use crate::sidecar::ProbeResult;

/// Maximum number of upstreams in a report.
const MAX_UPSTREAMS: usize = 32;

/// The state of kubedns. A value that the metrics of kubedns do not contain is left at its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubednsReport {
    /// The version of kubedns.
    pub version: Option<String>,
    /// The commit that kubedns was built from, or `unknown`.
    pub commit: Option<String>,
    /// The time of the start of kubedns, in seconds since 1970.
    pub started: Option<f64>,
    /// The cluster domain.
    pub domain: Option<String>,
    /// The first lists of the API server are complete.
    pub synced: Option<bool>,
    /// kubedns serves the records of its snapshot file, written before its last start.
    pub stale: Option<bool>,
    /// The first lists are missing after `--initial-sync-timeout`.
    pub overdue: Option<bool>,
    /// Whether the watch of each kind of objects is open.
    pub watches: BTreeMap<String, bool>,
    /// The kind of objects that the endpoints in the records come from: `endpoints` or
    /// `endpointslices`.
    pub endpoints_source: Option<String>,
    /// The time of the last event from the API server, in seconds since 1970.
    pub last_event: Option<f64>,
    /// The newest configuration that kubedns has read is in force.
    pub config_current: Option<bool>,
    /// Queries answered since kubedns started.
    pub requests: Option<f64>,
    /// Answered queries except those in `external_queries`. Most of them are for names in zones of
    /// kubedns.
    pub cluster_queries: Option<f64>,
    /// Answered queries that kubedns forwards, or answers from its cache.
    pub external_queries: Option<f64>,
    /// Seconds that kubedns took to answer the queries in `cluster_queries`.
    pub cluster_seconds: Option<f64>,
    /// Queries for external names that the cache of kubedns answered with a reply whose TTL had not
    /// expired.
    pub cache_hits: Option<f64>,
    /// Queries for external names that kubedns forwarded, because its cache had no reply, or only
    /// an expired reply.
    pub cache_misses: Option<f64>,
    /// Queries that kubedns has refused since its start, because their clients were over
    /// `--client-qps`.
    pub rate_limited: Option<f64>,
    /// The upstreams: first those that a route uses, then the others. Each of the two groups is
    /// sorted by [`KubednsUpstream::requests`], the highest number first.
    pub upstreams: Vec<KubednsUpstream>,
    /// The servers of each route.
    pub routes: Vec<RouteServer>,
    /// The routes without a usable server. A route is a stub domain or [`EXTERNAL_NAMES`].
    pub routes_without_server: Vec<String>,
    /// The number of ignored keys of the ConfigMap.
    pub unknown_keys: f64,
    /// The number of upstreams that forward queries back to kubedns.
    pub forward_loops: f64,
    /// The number of names of stub domain servers for which kubedns has no address.
    pub unresolved: f64,
    /// The node of this pod, in a cluster with a DNS pod on each node.
    pub node: Option<NodeReport>,
}

/// A node with a DNS pod of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReport {
    /// The name of the node.
    pub name: String,
    /// The pods that answer the clients of the node. `None` while no DNS pod is known to be ready,
    /// or if the report has an unknown value, for example a value of a newer version.
    #[serde(deserialize_with = "read_known_servers")]
    pub servers: Option<NodeServers>,
    /// Percentage of the queries of the last few minutes that did not come from pods of this node.
    pub elsewhere: Option<u8>,
}

/// The DNS pods that answer the clients of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeServers {
    /// The pods of the node.
    Own,
    /// The pods of other nodes, because the node has no ready DNS pod.
    Others,
    /// The pods of all nodes alike, because not every ready endpoint of the DNS Service has a hint
    /// for a node.
    Any,
}

impl NodeServers {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Own, Self::Others, Self::Any];

    /// The label in metrics and in JSON.
    pub fn label(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Others => "others",
            Self::Any => "any",
        }
    }

    fn with_label(label: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|servers| servers.label() == label)
    }
}

fn read_known_servers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<NodeServers>, D::Error> {
    let label: Option<String> = Option::deserialize(deserializer)?;
    Ok(label.as_deref().and_then(NodeServers::with_label))
}

impl fmt::Display for NodeReport {
    /// A sentence for people, without a full stop.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = match self.servers {
            Some(NodeServers::Own) => "the DNS pod of this node",
            Some(NodeServers::Others) => {
                "the DNS pods of other nodes, because no DNS pod of this node is ready"
            }
            Some(NodeServers::Any) => {
                "the DNS pods of all nodes, because not every ready endpoint of the DNS Service has \
                 a hint for a node"
            }
            None => "no known server, usually because no DNS pod is ready",
        };
        write!(f, "clients on {} are answered by {servers}", self.name)?;

        match self.elsewhere {
            Some(percent) => write!(
                f,
                "; {percent} % of the queries to this pod are not from pods of this node"
            ),
            None => Ok(()),
        }
    }
}

/// One upstream of kubedns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubednsUpstream {
    /// The address, with the scheme `tls://` or `tcp://` if kubedns always uses TLS or TCP.
    pub address: String,
    /// Queries to this upstream, and probes of its health. Retries do not count.
    pub requests: f64,
    /// Failed queries, replies with SERVFAIL or REFUSED, and replies that did not match the query.
    pub errors: f64,
    /// Responses of this upstream.
    pub answers: f64,
    /// Sum of the latencies of these [`answers`](Self::answers), in seconds.
    pub answer_seconds: f64,
    /// The TLS certificate of this upstream is trusted; `None` if this is unknown, for example
    /// without TLS, or before the first handshake.
    pub trusted: Option<bool>,
    /// The results of the last few minutes, oldest first. The sidecar derives them from the
    /// counters above, which it reads regularly. The metrics of kubedns have no history.
    pub history: Vec<ProbeResult>,
}

impl KubednsUpstream {
    /// Mean latency of the responses; `None` before the first.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.answers > 0.0).then(|| self.answer_seconds / self.answers * 1000.0)
    }
}

/// A server of a route. In JSON, it is an array of the three fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(String, String, bool)", into = "(String, String, bool)")]
pub struct RouteServer {
    /// The stub domain, or `.` for all other external names.
    pub route: String,
    /// The address of the server.
    pub address: String,
    /// The server is not down, according to the metric `kubedns_forward_upstream_up`.
    pub is_up: bool,
}

impl From<(String, String, bool)> for RouteServer {
    fn from((route, address, is_up): (String, String, bool)) -> Self {
        Self {
            route,
            address,
            is_up,
        }
    }
}

impl From<RouteServer> for (String, String, bool) {
    fn from(server: RouteServer) -> Self {
        (server.route, server.address, server.is_up)
    }
}

/// The kinds of objects that endpoints of Services are read from.
const ENDPOINTS_KINDS: [&str; 2] = ["endpoints", "endpointslices"];
/// The kinds of objects that kubedns can do without. It reads them only if the API server has the
/// kind, and the RBAC role permits it. Nodes are for federations, and the other two kinds for the
/// zone of a cluster set.
const DISPENSABLE_KINDS: [&str; 3] = ["imported_endpointslices", "nodes", "serviceimports"];

impl KubednsReport {
    /// Reads the metrics of kubedns in the text format of Prometheus.
    pub fn from_metrics(text: &str) -> Self {
        let mut report = Self::default();
        let mut upstreams: BTreeMap<String, KubednsUpstream> = BTreeMap::new();

        for sample in metric_samples(text) {
            report.add_sample(&sample);
            if let Some(upstream) = sample.label("upstream") {
                upstreams.entry(upstream).or_default().add_sample(&sample);
            }
        }

        // An upstream has several series, which are complete only now.
        report.upstreams = report.busiest_upstreams(upstreams);
        report
    }

    /// The routes of an upstream: its stub domains, and `.` if it serves all other external names.
    /// Empty if no route uses the upstream.
    pub fn routes_of(&self, address: &str) -> impl Iterator<Item = &RouteServer> {
        let servers = self.routes.iter();
        servers.filter(move |server| server.address == address)
    }

    /// The stub domains without a usable server.
    pub fn stub_domains_without_server(&self) -> impl Iterator<Item = &str> {
        let routes = self.routes_without_server.iter().map(String::as_str);
        routes.filter(|route| *route != EXTERNAL_NAMES)
    }

    /// Whether kubedns is known to have no server for external names, not even one in a forwarding
    /// loop.
    pub fn lacks_upstreams(&self) -> bool {
        let mut routes = self.routes_without_server.iter();
        self.forward_loops == 0.0 && routes.any(|route| route == EXTERNAL_NAMES)
    }

    fn busiest_upstreams(
        &self,
        upstreams: BTreeMap<String, KubednsUpstream>,
    ) -> Vec<KubednsUpstream> {
        let named = upstreams
            .into_iter()
            .map(|(address, upstream)| KubednsUpstream {
                address,
                ..upstream
            });
        let mut upstreams: Vec<KubednsUpstream> = named.collect();

        // An upstream that was busy before an edit of the configuration must not displace an
        // upstream that is in use now.
        upstreams.sort_by(|a, b| b.requests.total_cmp(&a.requests));
        upstreams.sort_by_key(|upstream| self.routes_of(&upstream.address).next().is_none());
        upstreams.truncate(MAX_UPSTREAMS);
        upstreams
    }

    /// The kinds of objects that kubedns needs and whose watch is not open. If the source of
    /// endpoints is unknown, the watch of Endpoints or of EndpointSlices is enough.
    ///
    /// Once the source of endpoints is known, the alert `KubeDNSAPIServerLost` fires for the same
    /// kinds.
    pub fn lost_watches(&self) -> Vec<&str> {
        let is_open = |kind: &str| self.watches.get(kind) == Some(&true);
        let needs = |kind: &str| match &self.endpoints_source {
            _ if DISPENSABLE_KINDS.contains(&kind) => false,
            _ if !ENDPOINTS_KINDS.contains(&kind) => true,
            Some(source) => source == kind,
            None => !ENDPOINTS_KINDS.into_iter().any(is_open),
        };

        let kinds = self.watches.keys().map(String::as_str);
        kinds.filter(|kind| needs(kind) && !is_open(kind)).collect()
    }

    fn add_sample(&mut self, sample: &MetricSample<'_>) {
        match sample.name {
            "kube_dns_build_info" => {
                self.version = sample.label("version");
                self.commit = sample.label("commit");
            }
            "process_start_time_seconds" => self.started = Some(sample.value),
            "kubedns_info" => self.domain = sample.label("domain"),

            "kubedns_synced" => self.synced = Some(sample.is_set()),
            "kubedns_stale" => self.stale = Some(sample.is_set()),
            "kubedns_initial_sync_overdue" => self.overdue = Some(sample.is_set()),
            "kubedns_watch_connected" => {
                if let Some(kind) = sample.label("kind") {
                    self.watches.insert(kind, sample.is_set());
                }
            }
            "kubedns_endpoints_source" if sample.is_set() => {
                self.endpoints_source = sample.label("kind");
            }
            "kubedns_last_event_timestamp_seconds" => {
                // Each kind of object has its own sample. The latest time is taken.
                let latest = self.last_event.unwrap_or_default().max(sample.value);
                self.last_event = Some(latest);
            }

            "kubedns_client_rate_limited_total" => self.rate_limited = Some(sample.value),
            "kubedns_forward_cache_hits_total" => self.cache_hits = Some(sample.value),
            "kubedns_forward_cache_misses_total" => self.cache_misses = Some(sample.value),
            "kubedns_config_current" => self.config_current = Some(sample.is_set()),
            "kubedns_config_unknown_keys" => self.unknown_keys = sample.value,

            "kubedns_forward_loops" => self.forward_loops = sample.value,
            "kubedns_stub_servers_unresolved" => self.unresolved = sample.value,
            "kubedns_forward_route_servers" if !sample.is_set() => {
                self.routes_without_server.extend(sample.label("route"));
            }
            "kubedns_node_answered_by" => self.add_node(sample),
            "kubedns_node_elsewhere_ratio" => {
                let node = self.node.get_or_insert_default();
                node.elsewhere = Some(percentage(sample.value));
            }
            "kubedns_forward_upstream_up" => self.routes.extend(RouteServer::of_sample(sample)),

            // Environment variables of kubedns set the prefix of this metric name.
            name if name.ends_with("_dns_request_count_total") => {
                add(&mut self.requests, sample.value);
                let of_kind = if is_of_external_names(sample) {
                    &mut self.external_queries
                } else {
                    &mut self.cluster_queries
                };
                add(of_kind, sample.value);
            }
            name if name.ends_with("_dns_request_duration_seconds_sum")
                && !is_of_external_names(sample) =>
            {
                add(&mut self.cluster_seconds, sample.value);
            }
            _ => {}
        }
    }

    fn add_node(&mut self, sample: &MetricSample<'_>) {
        let node = self.node.get_or_insert_default();
        node.name = sample.label("node").unwrap_or_default();

        let servers = sample.label("pods").filter(|_| sample.is_set());
        if let Some(servers) = servers {
            node.servers = NodeServers::with_label(&servers);
        }
    }
}

/// A share, from 0 to 1, in whole percent.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is between 0 and 100"
)]
pub fn percentage(share: f64) -> u8 {
    (100.0 * share).round().clamp(0.0, 100.0) as u8
}

/// Whether a sample counts queries that kubedns forwards or answers from its cache.
fn is_of_external_names(sample: &MetricSample<'_>) -> bool {
    let system = sample.label("system");
    matches!(system.as_deref(), Some("recursive" | "stub"))
}

fn add(sum: &mut Option<f64>, value: f64) {
    *sum = Some(sum.unwrap_or_default() + value);
}

impl RouteServer {
    fn of_sample(sample: &MetricSample<'_>) -> Option<Self> {
        Some(Self {
            route: sample.label("route")?,
            address: sample.label("upstream")?,
            is_up: sample.is_set(),
        })
    }
}

impl KubednsUpstream {
    fn add_sample(&mut self, sample: &MetricSample<'_>) {
        match sample.name {
            "kubedns_forward_requests_total" => self.requests += sample.value,
            "kubedns_forward_errors_total" => self.errors += sample.value,
            "kubedns_forward_tls_trusted" => self.trusted = Some(sample.is_set()),
            "kubedns_forward_request_duration_seconds_sum" => self.answer_seconds += sample.value,
            "kubedns_forward_request_duration_seconds_count" => self.answers += sample.value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
