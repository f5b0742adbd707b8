//! Whom dnsmasq says to ask: CHAOS TXT `servers.bind`.

use std::collections::HashSet;
use std::net::SocketAddr;

use dnsclient::{Answer, TIMEOUT, ask_with_retry, chaos};
use dnsconfig::{Nameserver, ServerAddr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) address: SocketAddr,
    /// Queries from dnsmasq since dnsmasq started.
    pub(super) queries: u64,
}

/// Asks dnsmasq for its servers, over TCP when there are too many for a datagram. The error says why they are unknown.
pub(super) async fn list(dnsmasq: &ServerAddr) -> Result<Vec<Listed>, String> {
    let question = chaos::question("servers.bind.");
    let answer = ask_with_retry(dnsmasq, &question, TIMEOUT).await.map_err(|error| error.to_string())?;
    listed(&answer).ok_or_else(|| format!("answered {}", answer.message.metadata.response_code))
}

/// The servers of an answer, each once; `None` when it is no list. A text that names no server is passed over.
fn listed(answer: &Answer) -> Option<Vec<Listed>> {
    let mut seen = HashSet::new();
    let mut texts = chaos::texts(answer).peekable();
    texts.peek()?;
    let servers = texts.filter_map(|text| parse(&text));
    Some(servers.filter(|server| seen.insert(server.address)).collect())
}

/// `192.0.2.1#53 12 0` or `fe80::1%eth0#53 12 0`: address, port, queries, failures.
pub(super) fn parse(text: &str) -> Option<Listed> {
    let mut words = text.split(' ');
    let (ip, port) = words.next()?.split_once('#')?;
    let address = Nameserver::with_interface(ip, port.parse().ok()?)?.socket_addr();
    Some(Listed { address, queries: words.next()?.parse().ok()? })
}
