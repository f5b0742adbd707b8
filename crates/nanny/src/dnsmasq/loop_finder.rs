//! Detects upstream servers that forward back to dnsmasq, even if the loop begins while dnsmasq
//! runs.
//!
//! dnsmasq looks for loops (`--dns-loop-detect`), but only at its start and when it reads its
//! servers again. So the nanny gives dnsmasq an argument, `--address=/DOMAIN/ADDRESS` with a random
//! domain and a random address, and periodically asks each upstream for a random name of that
//! domain. Only a server that forwards to this dnsmasq can answer with this address. When a loop
//! begins or ends, the nanny makes dnsmasq read its servers again. dnsmasq then leaves out the
//! server, or uses the server again.
//!
//! dnsmasq does not probe the servers of stub domains. Such a server may forward names outside its
//! stub domain to the cluster DNS, but must not forward names of this domain back to dnsmasq. So
//! the nanny asks these servers for [names of their domains](super::stub_probes), and leaves out a
//! server if such a query comes back to dnsmasq.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::Ipv6Addr;
use std::time::Duration;

use dnsclient::{DnsAnswer, TIMEOUT, query_server};
use futures::stream::{self, StreamExt as _};
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wire::{Nameserver, ServerAddr, Transport};

use crate::config::routes::{Routes, StubServer, UpstreamOrigin};
use crate::dnsmasq::stub_probes::StubProbes;
use crate::report::Report;

/// Maximum number of concurrent probes of servers that serve all names. The same maximum applies to
/// the servers of stub domains.
const MAX_PROBES: usize = 64;
/// Pause before the first probes, at the start and after a change of the routes. A loop through a
/// Service that selects this pod begins only when the pod is ready, so earlier probes would not
/// find the loop.
const MIN_PAUSE: Duration = Duration::from_secs(4);
/// The longest pause between probes. The pause doubles each time until it reaches this length, so a
/// new loop is found within half a minute.
const MAX_PAUSE: Duration = Duration::from_secs(20);
/// The prefix of the random address. Packets to this prefix are discarded (RFC 6666), so no server
/// has such an address. An address of a private range would be filtered by servers that protect
/// against rebinding.
const DISCARD_PREFIX: u128 = 0x0100 << 112;

/// The domain and the address by which this dnsmasq is recognized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoopMark {
    domain: String,
    address: Ipv6Addr,
}

impl LoopMark {
    /// A mark that no other dnsmasq has.
    pub(crate) fn random() -> Self {
        let number = fastrand::u64(..);
        Self {
            // `test` is reserved (RFC 6761, section 6.2), so no real name is hidden.
            domain: format!("forward-loop.{number:016x}.test"),
            address: Ipv6Addr::from_bits(DISCARD_PREFIX | u128::from(number)),
        }
    }

    /// The argument of dnsmasq.
    pub(crate) fn argument(&self) -> OsString {
        format!("--address=/{}/{}", self.domain, self.address).into()
    }

    /// A query whose answer is in no server's cache.
    fn new_query(&self) -> Query {
        let text = format!("{:016x}.{}.", fastrand::u64(..), self.domain);
        let name = Name::from_ascii(text).unwrap_or_default();
        Query::query(name, RecordType::AAAA)
    }

    /// Whether the answer shows that the server forwards to this dnsmasq. `None` after SERVFAIL,
    /// which proves nothing: a resolver between the server and this dnsmasq may have failed.
    fn leads_back(&self, answer: &DnsAnswer) -> Option<bool> {
        let mut answers = answer.message.answers.iter();
        if answers.any(|record| matches!(&record.data, RData::AAAA(ip) if ip.0 == self.address)) {
            return Some(true);
        }
        match answer.message.metadata.response_code {
            ResponseCode::ServFail => None,
            _ => Some(false),
        }
    }
}

/// The requests of the loop detection to the [`Router`](crate::router::Router).
#[derive(Debug, Default)]
pub(crate) struct LoopRequests {
    /// The number of reloads requested so far. At a reload, dnsmasq reads its servers again, and
    /// looks for loops.
    pub(crate) reloads: watch::Sender<u64>,
    /// The servers of stub domains to leave out.
    pub(crate) stub_loops: watch::Sender<BTreeSet<StubServer>>,
}

/// The servers to probe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ProbedServers {
    for_all_names: BTreeSet<Nameserver>,
    of_stub_domains: BTreeSet<StubServer>,
}

/// The task that detects loops.
#[derive(Debug)]
pub(crate) struct LoopFinder {
    mark: LoopMark,
    /// The servers in dnsmasq's arguments that serve all names.
    in_arguments: Vec<Nameserver>,
    routes: watch::Receiver<Routes>,
    stub_probes: StubProbes,
    requests: LoopRequests,
    found: BTreeSet<Nameserver>,
    /// The servers for which dnsmasq disagrees with the probes.
    disputed: BTreeSet<String>,
    report: Report,
}

impl LoopFinder {
    /// Creates a finder that probes the upstreams of `routes`, and the upstreams `in_arguments`.
    pub(crate) fn new(
        mark: LoopMark,
        in_arguments: Vec<Nameserver>,
        routes: watch::Receiver<Routes>,
        stub_probes: StubProbes,
        requests: LoopRequests,
        report: Report,
    ) -> Self {
        Self {
            mark,
            in_arguments,
            routes,
            stub_probes,
            requests,
            found: BTreeSet::new(),
            disputed: BTreeSet::new(),
            report,
        }
    }

    /// Detects loops until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.probe_repeatedly()).await;
    }

    /// Detects loops until the sender of the routes is dropped.
    async fn probe_repeatedly(&mut self) {
        let mut pause = MIN_PAUSE;
        loop {
            let probed = self.servers();
            match timeout(pause, self.servers_changed(&probed)).await {
                Ok(Ok(())) => {
                    pause = MIN_PAUSE;
                    continue;
                }
                Ok(Err(_)) => return,
                Err(_) => pause = (pause * 2).min(MAX_PAUSE),
            }
            self.probe_servers().await;
        }
    }

    async fn servers_changed(
        &mut self,
        probed: &ProbedServers,
    ) -> Result<(), watch::error::RecvError> {
        let in_arguments = self.in_arguments.clone();
        self.routes
            .wait_for(|routes| probed_servers(routes, &in_arguments) != *probed)
            .await
            .map(drop)
    }

    fn servers(&self) -> ProbedServers {
        probed_servers(&self.routes.borrow(), &self.in_arguments)
    }

    /// Probes each server once.
    async fn probe_servers(&mut self) {
        let ProbedServers {
            for_all_names,
            of_stub_domains,
        } = self.servers();
        let probes = for_all_names.iter().copied();
        let probes = stream::iter(probes.map(|server| self.probe(server)));
        let stub_probes = of_stub_domains.iter().cloned();
        let stub_probes = stream::iter(stub_probes.map(|server| self.probe_stub(server)));
        let (results, stub_results): (Vec<_>, Vec<_>) = tokio::join!(
            probes.buffered(MAX_PROBES).collect(),
            stub_probes.buffered(MAX_PROBES).collect(),
        );

        let mut found = BTreeSet::new();
        for (server, leads_back) in for_all_names.into_iter().zip(results) {
            // A server without a result keeps its previous result, which may come from dnsmasq's
            // own loop detection.
            if leads_back.unwrap_or_else(|| self.report.is_loop(server)) {
                found.insert(server);
            }
        }
        self.record_loops(found);

        let before = self.requests.stub_loops.borrow().clone();
        let mut stub_loops = BTreeSet::new();
        for (server, leads_back) in of_stub_domains.into_iter().zip(stub_results) {
            if leads_back.unwrap_or_else(|| before.contains(&server)) {
                stub_loops.insert(server);
            }
        }
        self.record_stub_loops(&before, stub_loops);
    }

    /// Returns whether the server of a stub domain forwards the names of this domain to this
    /// dnsmasq. `None` if the probe proves nothing.
    async fn probe_stub(&self, StubServer { domain, server }: StubServer) -> Option<bool> {
        let probe = self.stub_probes.start(&domain)?;
        let server = ServerAddr::from(server);
        let answer = query_server(&server, Transport::Udp, &probe.query(), TIMEOUT).await;

        // In a loop, the server answers SERVFAIL or not at all, but so does a server that fails for
        // another reason. Only the return of the probe proves a loop.
        if probe.came_back() {
            return Some(true);
        }
        match answer.ok()?.message.metadata.response_code {
            ResponseCode::ServFail => None,
            _ => Some(false),
        }
    }

    fn record_stub_loops(&self, before: &BTreeSet<StubServer>, found: BTreeSet<StubServer>) {
        for StubServer { domain, server } in found.difference(before) {
            warn!(
                %server,
                domain,
                "server of stub domain forwards to dnsmasq, and gets no queries for names in the domain while the loop lasts"
            );
        }
        for StubServer { domain, server } in before.difference(&found) {
            info!(
                %server,
                domain,
                "forwarding loop through the server of the stub domain has ended"
            );
        }

        self.requests.stub_loops.send_if_modified(|known| {
            let has_changed = *known != found;
            *known = found;
            has_changed
        });
    }

    async fn probe(&self, server: Nameserver) -> Option<bool> {
        let query = self.mark.new_query();
        let answer = query_server(&ServerAddr::from(server), Transport::Udp, &query, TIMEOUT).await;
        self.mark.leads_back(&answer.ok()?)
    }

    fn record_loops(&mut self, found: BTreeSet<Nameserver>) {
        for server in found.difference(&self.found) {
            warn!(%server, "upstream server forwards to dnsmasq, and gets no queries for names outside the stub domains while the loop lasts");
        }
        for server in self.found.difference(&found) {
            info!(%server, "forwarding loop through the upstream server has ended");
        }

        // A reload empties the cache of dnsmasq. So if dnsmasq still disagrees with the probes
        // after a reload, the same finding causes no further reload.
        let disputed = self.report.set_probed_loops(&found);
        let is_new = found != self.found || disputed != self.disputed;
        if !disputed.is_empty() && is_new {
            self.requests.reloads.send_modify(|count| *count += 1);
        }
        self.disputed = disputed;
        self.found = found;
    }
}

/// The servers to which dnsmasq itself forwards external names and the names of stub domains.
fn probed_servers(routes: &Routes, in_arguments: &[Nameserver]) -> ProbedServers {
    let of_routes: &[Nameserver] = match routes.upstreams_from {
        // kubedns looks for the loops of its own upstreams.
        UpstreamOrigin::Kubedns => &[],
        UpstreamOrigin::ResolvConf | UpstreamOrigin::Configuration => &routes.upstreams,
    };
    let all = of_routes.iter().chain(in_arguments).copied();
    ProbedServers {
        for_all_names: all.collect(),
        of_stub_domains: routes.probed.iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests;
