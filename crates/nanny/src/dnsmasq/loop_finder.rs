//! Detects upstream servers that forward back to dnsmasq, even if the loop begins while dnsmasq
//! runs.
//!
//! The nanny gives dnsmasq an argument, `--address=/DOMAIN/ADDRESS` with a random domain and a
//! random address, and periodically asks each upstream for a random name of that domain. Only a
//! server that forwards to this dnsmasq can answer with this address. While a loop lasts, the
//! [routes](crate::config::routes) leave out the server.
//!
//! The server of a stub domain may forward names outside the stub domain to the cluster DNS, but
//! must not forward names of the stub domain back to dnsmasq. So the nanny asks such a server for
//! [names of its stub domain](super::stub_probes).
//!
//! If the arguments for dnsmasq contain `--dns-loop-detect`, the nanny leaves it out. With this
//! option, dnsmasq would stop using kubedns after a loop through one of kubedns' upstreams, and
//! would then refuse the queries by which kubedns detects this loop.

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
use wire::{Nameserver, ServerAddr, Transport};

use crate::config::routes::{RoutedServer, Routes};
use crate::dnsmasq::stub_probes::StubProbes;

/// Maximum number of concurrent probes.
const MAX_PROBES: usize = 64;
/// Pause before the first probes, at the start and after a change of the probed servers. The pause
/// is short because dnsmasq itself does not look for loops.
const MIN_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between probes. The pause doubles each time until it reaches this length, so a
/// loop that begins later is found within a few seconds. For example, a loop through a Service that
/// selects this pod begins only when the pod is ready.
const MAX_PAUSE: Duration = Duration::from_secs(4);
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

/// The task that detects loops.
#[derive(Debug)]
pub(crate) struct LoopFinder {
    mark: LoopMark,
    stub_probes: StubProbes,
    routes: watch::Receiver<Routes>,
    loops: watch::Sender<BTreeSet<RoutedServer>>,
}

impl LoopFinder {
    /// Creates a finder that probes the servers in `routes`, and sends those in a loop to `loops`.
    pub(crate) fn new(
        mark: LoopMark,
        stub_probes: StubProbes,
        routes: watch::Receiver<Routes>,
        loops: watch::Sender<BTreeSet<RoutedServer>>,
    ) -> Self {
        Self {
            mark,
            stub_probes,
            routes,
            loops,
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
            let probed = self.routes.borrow().probed.clone();
            let changed = self.routes.wait_for(|routes| routes.probed != probed);
            match timeout(pause, changed).await {
                Ok(Ok(_)) => {
                    pause = MIN_PAUSE;
                    continue;
                }
                Ok(Err(_)) => return,
                Err(_) => pause = (pause * 2).min(MAX_PAUSE),
            }
            self.probe_servers(&probed).await;
        }
    }

    /// Probes each server once.
    async fn probe_servers(&self, servers: &BTreeSet<RoutedServer>) {
        let probes = stream::iter(servers.iter().cloned().map(|server| self.probe(server)));
        let results: Vec<_> = probes.buffered(MAX_PROBES).collect().await;

        // A server without a result keeps its previous result.
        let before = self.loops.borrow().clone();
        let in_loop = servers
            .iter()
            .zip(results)
            .filter(|(server, leads_back)| leads_back.unwrap_or_else(|| before.contains(server)))
            .map(|(server, _)| server.clone());
        let found: BTreeSet<RoutedServer> = in_loop.collect();

        self.loops.send_if_modified(|known| {
            let has_changed = *known != found;
            *known = found;
            has_changed
        });
    }

    /// Returns whether the probe of the server comes back to this dnsmasq. `None` if the probe
    /// proves nothing.
    async fn probe(&self, RoutedServer { domain, server }: RoutedServer) -> Option<bool> {
        match domain {
            Some(domain) => self.probe_stub(&domain, server).await,
            None => self.probe_upstream(server).await,
        }
    }

    async fn probe_upstream(&self, server: Nameserver) -> Option<bool> {
        let query = self.mark.new_query();
        let answer = query_server(&ServerAddr::from(server), Transport::Udp, &query, TIMEOUT).await;
        self.mark.leads_back(&answer.ok()?)
    }

    async fn probe_stub(&self, domain: &str, server: Nameserver) -> Option<bool> {
        let probe = self.stub_probes.start(domain)?;
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
}

#[cfg(test)]
mod tests;
