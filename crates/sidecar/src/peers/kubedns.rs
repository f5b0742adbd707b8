//! The metrics of kubedns.

use std::collections::BTreeMap;

use serde::Serialize;

use super::exposition::{Series, series};

/// Limit of upstreams on the page.
const SHOWN: usize = 10;

/// The state of kubedns according to its metrics. Values that this version of kubedns does not
/// export are unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kubedns {
    pub(crate) version: Option<String>,
    pub(crate) commit: Option<String>,
    /// The cluster domain.
    pub(crate) domain: Option<String>,
    /// The first lists of the API server are complete.
    pub(crate) synced: Option<bool>,
    /// kubedns serves the records of its snapshot file, written before its last start.
    pub(crate) stale: Option<bool>,
    /// The first lists are missing after `--initial-sync-timeout`.
    pub(crate) overdue: Option<bool>,
    /// Kind of object -> whether its watch is open.
    pub(crate) watches: BTreeMap<String, bool>,
    /// The time of the last event from the API server, in seconds since 1970.
    pub(crate) last_event: Option<f64>,
    /// The newest configuration is in force.
    pub(crate) config_current: Option<bool>,
    /// Queries answered since kubedns started.
    pub(crate) requests: Option<f64>,
    /// The upstreams with the most queries, the busiest first.
    pub(crate) upstreams: Vec<Upstream>,
    /// Each entry: a stub domain (or `.` for all other names), a server, and whether that server
    /// answers.
    pub(crate) routes: Vec<(String, String, bool)>,
    /// The number of ignored keys of the ConfigMap.
    pub(crate) unknown_keys: f64,
    /// The number of upstreams left out because they forward to kubedns.
    pub(crate) forward_loops: f64,
    /// The number of unresolved names of stub servers.
    pub(crate) unresolved: f64,
}

/// One upstream of kubedns.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Upstream {
    pub(crate) address: String,
    /// Queries that kubedns sent to this upstream.
    pub(crate) requests: f64,
    /// Failed queries.
    pub(crate) errors: f64,
    /// Mean latency of the responses of this upstream.
    pub(crate) mean_ms: Option<f64>,
    /// The TLS certificate of this upstream is trusted; `None` without TLS.
    pub(crate) trusted: Option<bool>,
}

#[derive(Default)]
struct Sums {
    requests: f64,
    errors: f64,
    seconds: f64,
    answers: f64,
    trusted: Option<bool>,
}

impl Kubedns {
    /// Parses an exposition.
    pub(crate) fn read(text: &str) -> Self {
        let mut kubedns = Self::default();
        let mut upstreams: BTreeMap<String, Sums> = BTreeMap::new();
        for line in series(text) {
            kubedns.take(&line);
            if let Some(upstream) = line.label("upstream") {
                upstreams.entry(upstream).or_default().take(&line);
            }
        }
        kubedns.upstreams = top(upstreams);
        kubedns
    }

    /// Returns whether watches of Services and of Endpoints or EndpointSlices are open. A kind
    /// without a metric counts as watched.
    pub(crate) fn is_watching(&self) -> bool {
        let is_open = |kinds: &[&str]| {
            let watches = || {
                self.watches
                    .iter()
                    .filter(|(kind, _)| kinds.contains(&kind.as_str()))
            };
            watches().count() == 0 || watches().any(|(_, open)| *open)
        };
        is_open(&["services"]) && is_open(&["endpoints", "endpointslices"])
    }

    fn take(&mut self, line: &Series<'_>) {
        match line.name {
            "kube_dns_build_info" => {
                (self.version, self.commit) = (line.label("version"), line.label("commit"));
            }
            "kubedns_info" => self.domain = line.label("domain"),
            "kubedns_initial_sync_overdue" => self.overdue = Some(line.value > 0.0),
            "kubedns_config_unknown_keys" => self.unknown_keys = line.value,
            "kubedns_forward_loops" => self.forward_loops = line.value,
            "kubedns_stub_servers_unresolved" => self.unresolved = line.value,
            "kubedns_forward_upstream_up" => {
                let labels = line.label("route").zip(line.label("upstream"));
                self.routes
                    .extend(labels.map(|(route, upstream)| (route, upstream, line.value > 0.0)));
            }
            "kubedns_synced" => self.synced = Some(line.value > 0.0),
            "kubedns_stale" => self.stale = Some(line.value > 0.0),
            "kubedns_config_current" => self.config_current = Some(line.value > 0.0),
            "kubedns_watch_connected" => {
                if let Some(kind) = line.label("kind") {
                    self.watches.insert(kind, line.value > 0.0);
                }
            }
            "kubedns_last_event_timestamp_seconds" => {
                self.last_event = Some(self.last_event.unwrap_or_default().max(line.value));
            }
            name if name.ends_with("_dns_request_count_total") => {
                self.requests = Some(self.requests.unwrap_or_default() + line.value);
            }
            _ => {}
        }
    }
}

impl Sums {
    fn take(&mut self, line: &Series<'_>) {
        match line.name {
            "kubedns_forward_requests_total" => self.requests += line.value,
            "kubedns_forward_errors_total" => self.errors += line.value,
            "kubedns_forward_tls_trusted" => self.trusted = Some(line.value > 0.0),
            "kubedns_forward_request_duration_seconds_sum" => self.seconds += line.value,
            "kubedns_forward_request_duration_seconds_count" => self.answers += line.value,
            _ => {}
        }
    }
}

fn top(all: BTreeMap<String, Sums>) -> Vec<Upstream> {
    let mut upstreams: Vec<Upstream> = all
        .into_iter()
        .map(|(address, sums)| Upstream {
            address,
            requests: sums.requests,
            errors: sums.errors,
            mean_ms: (sums.answers > 0.0).then(|| sums.seconds / sums.answers * 1000.0),
            trusted: sums.trusted,
        })
        .collect();
    upstreams.sort_by(|a, b| b.requests.total_cmp(&a.requests));
    upstreams.truncate(SHOWN);
    upstreams
}

#[cfg(test)]
mod tests;
