//! Probes of the upstreams of dnsmasq: their condition and latency.
//!
//! dnsmasq lists its upstreams with their numbers of queries (CHAOS TXT `servers.bind`). The list
//! has no usable number of failures: dnsmasq 2.90 does not count the failures of a server that is
//! silent or answers every query with an error. So the sidecar, which is in dnsmasq's network
//! namespace, probes the upstreams in each interval, at most `MAX_UPSTREAMS` of them. kubedns and
//! dnsmasq are not probed as upstreams, because they have probes of their own.
//!
//! The nanny reports which names an upstream serves. For an upstream that serves only stub
//! domains, the probe queries the SOA record of one of these domains. For any other upstream, the
//! probe has two queries: for the NS records of the root, and for the A records of
//! `--upstream-probe-name`. If the upstream answers one query with SERVFAIL or REFUSED, the probe
//! sends the other query. Any other answer is usable. The next probe begins with the query that got
//! a usable answer. A probe fails if no query gets a usable answer. After a first failure, the
//! probe is repeated at once.
//!
//! An upstream for external names that has answered every probe with an error may serve only
//! private names. `crate::verdict` does not count such an upstream as down.

mod listed;
mod metrics;
mod probe;
mod purpose;
mod trouble;
mod upstream;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::metrics::{MetricError, Metrics};
use hickory_proto::rr::Name;
use parking_lot::Mutex;
use reports::nanny::NannyStatus;
use reports::sidecar::DnsmasqUpstream;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at};
use tokio_util::sync::CancellationToken;
use wire::ServerAddr;

use self::listed::{ListedUpstream, list_upstreams};
use self::metrics::UpstreamMetrics;
use self::probe::{ProbeOutcome, UpstreamProbe};
use self::purpose::UpstreamPurpose;
use self::upstream::UpstreamState;
use crate::peers::ReportPeers;
use crate::time::{Now, repeat};

/// Maximum number of upstreams that are probed. dnsmasq may have more. The condition of an upstream
/// that is not probed is [`UpstreamCondition::Waiting`](reports::sidecar::UpstreamCondition).
const MAX_UPSTREAMS: usize = 64;
/// The minimum interval of the probes.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The delay before the first round: dnsmasq may still be starting.
const FIRST_DELAY: Duration = Duration::from_secs(2);

/// The flags of the probes.
#[derive(Clone, Debug)]
pub(crate) struct ProbeSettings {
    /// The interval of the probes; zero disables them.
    pub(crate) interval: Duration,
    /// The external name of the alternative query, for upstreams that answer SERVFAIL or REFUSED to
    /// the query for the root.
    pub(crate) probe_name: Name,
}

/// Probes of the upstreams of one dnsmasq.
#[derive(Debug)]
pub(crate) struct UpstreamProbes {
    dnsmasq: ServerAddr,
    /// Servers that are not upstreams: kubedns and dnsmasq.
    others: Vec<ServerAddr>,
    peers: Arc<ReportPeers>,
    settings: ProbeSettings,
    metrics: UpstreamMetrics,
    known: Mutex<BTreeMap<SocketAddr, UpstreamState>>,
    /// The last known report of the nanny; empty before the first.
    nanny: Mutex<NannyStatus>,
    /// The addresses of dnsmasq's last list, in its order.
    listed: Mutex<Vec<SocketAddr>>,
}

impl UpstreamProbes {
    /// Creates the probes, which have no results yet. The servers in `others` do not count as
    /// upstreams.
    pub(crate) fn new(
        dnsmasq: ServerAddr,
        others: Vec<ServerAddr>,
        peers: Arc<ReportPeers>,
        settings: ProbeSettings,
        namespace: &str,
        metrics: &Metrics,
    ) -> Result<Self, MetricError> {
        Ok(Self {
            dnsmasq,
            others,
            peers,
            settings,
            metrics: UpstreamMetrics::new(namespace, metrics)?,
            known: Mutex::default(),
            nanny: Mutex::default(),
            listed: Mutex::default(),
        })
    }

    /// The current state of each upstream, ordered by address.
    pub(crate) fn status(&self) -> Vec<DnsmasqUpstream> {
        let now = Now::read();
        let known = self.known.lock();
        known
            .values()
            .map(|upstream| upstream.status_at(now))
            .collect()
    }

    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let interval = self.settings.interval;
        if interval.is_zero() {
            return stop.cancelled().await;
        }

        let first = Instant::now() + FIRST_DELAY;
        let ticks = interval_at(first, interval.max(MIN_INTERVAL));
        repeat(ticks, stop, || Arc::clone(&self).probe_all()).await;
    }

    /// Reads dnsmasq's list and probes each upstream. After a first failure, the probe is repeated.
    async fn probe_all(self: Arc<Self>) {
        self.update_list().await;

        // A silent upstream must not delay the others.
        let mut probes = JoinSet::new();
        for (address, probe) in self.next_probes() {
            let this = Arc::clone(&self);
            probes.spawn(async move {
                let outcome = probe.clone().run(address).await;
                if this.record(address, outcome) {
                    this.record(address, probe.run(address).await);
                }
            });
        }
        probes.join_all().await;
    }

    /// Reads dnsmasq's list. If dnsmasq returns no list, the previous list is used.
    async fn update_list(&self) {
        // Only the nanny knows which names an upstream serves: dnsmasq lists only addresses.
        match list_upstreams(&self.dnsmasq).await {
            Ok(listed) => {
                // If the report is missing now, the upstreams most likely still serve the same
                // names. Without their names, the servers of stub domains would count as servers
                // for external names.
                if let Some(report) = self.peers.nanny.report().await.known {
                    *self.nanny.lock() = report;
                }
                self.apply_list(&listed, &self.nanny.lock());
            }
            Err(error) => {
                tracing::debug!(server = %self.dnsmasq, error, "dnsmasq does not list its servers");
            }
        }
    }

    fn next_probes(&self) -> Vec<(SocketAddr, UpstreamProbe)> {
        let known = self.known.lock();
        known
            .iter()
            .filter(|(_, upstream)| upstream.is_probed())
            .map(|(address, upstream)| (*address, upstream.next_probe()))
            .collect()
    }

    /// Applies the list: adds new upstreams, and removes old ones with their results.
    fn apply_list(&self, listed: &[ListedUpstream], nanny: &NannyStatus) {
        let wanted = self.wanted_upstreams(listed, nanny);

        // When dnsmasq reloads its servers, it gives the counters of the old servers to the new
        // servers, in the order of the list. So the counters are not used if the list has changed.
        let order: Vec<SocketAddr> = listed.iter().map(|server| server.address).collect();
        let mut last_order = self.listed.lock();
        let are_counters_own = *last_order == order;
        *last_order = order;
        drop(last_order);

        let mut known = self.known.lock();
        let probed_before = probed_addresses(&known);
        // Upstreams that have left the list are removed. Otherwise each upstream that ever existed
        // would keep its series. An upstream also starts anew if the sidecar starts or stops
        // probing it.
        known.retain(|address, upstream| {
            let new = wanted.get(address);
            let stays = new.is_some_and(|new| new.is_probed == upstream.is_probed());
            if !stays {
                self.metrics.remove_series(*address);
            }
            stays
        });

        // The purpose may change with an edit of the ConfigMap.
        for (address, new) in wanted {
            let upstream = known
                .entry(address)
                .or_insert_with(|| self.new_upstream(address, new.is_probed));
            upstream.count_queries(new.server.queries, are_counters_own);
            upstream.set_purpose(new.purpose);
        }

        // The list is read in each round, but is logged only after a change.
        let probed = probed_addresses(&known);
        if probed != probed_before {
            let upstreams: Vec<String> = probed.iter().map(ToString::to_string).collect();
            let upstreams = upstreams.join(" ");
            tracing::info!(upstreams, "probing the upstreams of dnsmasq");
        }
    }

    /// The upstreams in the list. At most [`MAX_UPSTREAMS`] of them are probed.
    fn wanted_upstreams(
        &self,
        listed: &[ListedUpstream],
        nanny: &NannyStatus,
    ) -> BTreeMap<SocketAddr, WantedUpstream> {
        let upstreams = listed
            .iter()
            .filter(|server| !self.is_excluded(server.address, nanny));
        let mut wanted: Vec<WantedUpstream> = upstreams
            .map(|server| WantedUpstream {
                server: *server,
                purpose: self.purpose_of(server.address, nanny),
                is_probed: false,
            })
            .collect();

        // dnsmasq may have any number of servers, but the number of probes and series must be
        // limited. External names are more important than the names of single stub domains.
        wanted.sort_by_key(|upstream| !upstream.purpose.may_be_external());
        for upstream in wanted.iter_mut().take(MAX_UPSTREAMS) {
            upstream.is_probed = true;
        }
        wanted
            .into_iter()
            .map(|upstream| (upstream.server.address, upstream))
            .collect()
    }

    fn purpose_of(&self, address: SocketAddr, nanny: &NannyStatus) -> UpstreamPurpose {
        UpstreamPurpose::in_routes(address, nanny, &self.settings.probe_name)
    }

    /// Returns whether the server is not an upstream: the nanny's own server, which answers every
    /// query with SERVFAIL, or one of `others`.
    fn is_excluded(&self, address: SocketAddr, nanny: &NannyStatus) -> bool {
        let servfail_server = nanny.routes.servfail_server.as_ref();
        servfail_server.is_some_and(|server| *server == address.to_string())
            || self.others.contains(&ServerAddr::from(address))
    }

    fn new_upstream(&self, address: SocketAddr, is_probed: bool) -> UpstreamState {
        let purpose = UpstreamPurpose::unknown(&self.settings.probe_name);
        let series = is_probed.then(|| self.metrics.series_of(address));
        UpstreamState::new(address, purpose, series)
    }

    /// Records the outcome of a probe. Returns whether to repeat the probe at once.
    fn record(&self, address: SocketAddr, outcome: ProbeOutcome) -> bool {
        // The upstream may have left the list meanwhile.
        let mut known = self.known.lock();
        known
            .get_mut(&address)
            .is_some_and(|upstream| upstream.record(outcome, Now::read()))
    }
}

/// An upstream in dnsmasq's last list.
#[derive(Debug)]
struct WantedUpstream {
    server: ListedUpstream,
    purpose: UpstreamPurpose,
    is_probed: bool,
}

fn probed_addresses(known: &BTreeMap<SocketAddr, UpstreamState>) -> Vec<SocketAddr> {
    let probed = known.iter().filter(|(_, upstream)| upstream.is_probed());
    probed.map(|(address, _)| *address).collect()
}

#[cfg(test)]
mod tests;
