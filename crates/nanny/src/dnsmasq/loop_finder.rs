//! Detects upstream servers that forward back to dnsmasq, also if a loop begins later.
//!
//! dnsmasq looks for loops (`--dns-loop-detect`), but only at its start and when it reads its
//! servers again. So the nanny gives dnsmasq an argument, `--address=/DOMAIN/ADDRESS` with a random
//! domain and a random address, and periodically asks each upstream for a random name of that
//! domain. Only a server that forwards to this dnsmasq has the address. When a loop begins or ends,
//! dnsmasq has to read its servers again: then it leaves the server out, or uses it again.
//!
//! Stub domains are not probed, as dnsmasq does not probe them either: their servers may rightly
//! forward all other names to the cluster.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::Ipv6Addr;
use std::time::Duration;

use dnsclient::{DnsAnswer, TIMEOUT, query_server};
use futures::future::join_all;
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wire::{Nameserver, ServerAddr, Transport};

use crate::config::routes::{Routes, UpstreamOrigin};
use crate::report::Report;

/// Limit of the servers to probe.
const MAX_PROBED: usize = 64;
/// Pause before the first probes, and after a change of the routes. A Service may select the pod
/// only once the pod is ready, and then a loop begins.
const MIN_PAUSE: Duration = Duration::from_secs(4);
/// The longest pause between probes: the pause doubles after each probe. With the pause of dnsmasq's
/// own probes, a loop that begins is found within half a minute.
const MAX_PAUSE: Duration = Duration::from_secs(20);
/// The prefix of the address: packets to it are discarded (RFC 6666), so no server has it. The
/// private ranges would be filtered by servers with protection against rebinding.
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

    /// A query that no server has an answer for in its cache.
    fn new_query(&self) -> Query {
        let text = format!("{:016x}.{}.", fastrand::u64(..), self.domain);
        let name = Name::from_ascii(text).unwrap_or_default();
        Query::query(name, RecordType::AAAA)
    }

    /// Whether the answer shows that the server forwards to this dnsmasq. `None` if the answer does
    /// not tell: another dnsmasq in the loop may have given up.
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

/// The task that detects loops.
#[derive(Debug)]
pub(crate) struct LoopFinder {
    mark: LoopMark,
    /// The servers for all names in the arguments of dnsmasq.
    in_arguments: Vec<Nameserver>,
    routes: watch::Receiver<Routes>,
    /// Counts the requests that dnsmasq reads its servers, and so looks for loops, again.
    reloads: watch::Sender<u64>,
    found: BTreeSet<Nameserver>,
    /// The servers about which dnsmasq found something else.
    disputed: BTreeSet<String>,
    report: Report,
}

impl LoopFinder {
    /// Creates a finder that probes the upstreams of `routes`, and those `in_arguments`.
    pub(crate) fn new(
        mark: LoopMark,
        in_arguments: Vec<Nameserver>,
        routes: watch::Receiver<Routes>,
        reloads: watch::Sender<u64>,
        report: Report,
    ) -> Self {
        Self {
            mark,
            in_arguments,
            routes,
            reloads,
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
        probed: &BTreeSet<Nameserver>,
    ) -> Result<(), watch::error::RecvError> {
        let in_arguments = self.in_arguments.clone();
        self.routes
            .wait_for(|routes| probed_servers(routes, &in_arguments) != *probed)
            .await
            .map(drop)
    }

    fn servers(&self) -> BTreeSet<Nameserver> {
        probed_servers(&self.routes.borrow(), &self.in_arguments)
    }

    /// Probes each server once.
    async fn probe_servers(&mut self) {
        let servers = self.servers();
        let results = join_all(servers.iter().map(|server| self.probe(*server))).await;

        let mut found = BTreeSet::new();
        for (server, leads_back) in servers.into_iter().zip(results) {
            // A server without a result keeps its previous result, which may be that of dnsmasq.
            if leads_back.unwrap_or_else(|| self.report.is_loop(server)) {
                found.insert(server);
            }
        }
        self.record_loops(found);
    }

    async fn probe(&self, server: Nameserver) -> Option<bool> {
        let query = self.mark.new_query();
        let answer = query_server(&ServerAddr::from(server), Transport::Udp, &query, TIMEOUT).await;
        self.mark.leads_back(&answer.ok()?)
    }

    fn record_loops(&mut self, found: BTreeSet<Nameserver>) {
        for server in found.difference(&self.found) {
            warn!(%server, "upstream server forwards to dnsmasq, left out while it does");
        }
        for server in self.found.difference(&found) {
            info!(%server, "forwarding loop has ended, upstream server in use again");
        }

        // A reload empties the cache of dnsmasq. So if dnsmasq does not agree after a reload, there
        // is no other reload for the same finding.
        let disputed = self.report.set_probed_loops(&found);
        let is_new = found != self.found || disputed != self.disputed;
        if !disputed.is_empty() && is_new {
            self.reloads.send_modify(|count| *count += 1);
        }
        self.disputed = disputed;
        self.found = found;
    }
}

/// The servers to which dnsmasq forwards external names itself.
fn probed_servers(routes: &Routes, in_arguments: &[Nameserver]) -> BTreeSet<Nameserver> {
    let of_routes: &[Nameserver] = match routes.upstreams_from {
        // kubedns looks for the loops of its own upstreams.
        UpstreamOrigin::Kubedns => &[],
        UpstreamOrigin::ResolvConf | UpstreamOrigin::Configuration => &routes.upstreams,
    };
    let all = of_routes.iter().chain(in_arguments).copied();
    all.take(MAX_PROBED).collect()
}

#[cfg(test)]
mod tests;
