//! The upstreams that dnsmasq lists in its answer for `servers.bind` (class CHAOS, type TXT).

use std::collections::HashSet;
use std::net::SocketAddr;

use dnsclient::{DnsAnswer, TIMEOUT, chaos, query_with_tcp_retry};
use wire::{Nameserver, ServerAddr};

/// An upstream in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListedUpstream {
    pub(super) address: SocketAddr,
    /// The number of queries to this upstream. After dnsmasq has reloaded its servers, the number
    /// may be that of another server.
    pub(super) queries: u64,
}

/// Queries dnsmasq for its upstreams, over TCP if the list does not fit into a datagram.
pub(super) async fn list_upstreams(dnsmasq: &ServerAddr) -> Result<Vec<ListedUpstream>, String> {
    let question = chaos::txt_query("servers.bind.");
    let answer = query_with_tcp_retry(dnsmasq, &question, TIMEOUT)
        .await
        .map_err(|error| error.to_string())?;

    parse_answer(&answer).ok_or_else(|| {
        format!(
            "dnsmasq answered {} without TXT records",
            answer.message.metadata.response_code
        )
    })
}

/// The upstreams in an answer, without duplicates. `None` if the answer has no TXT records.
/// Malformed texts are skipped.
fn parse_answer(answer: &DnsAnswer) -> Option<Vec<ListedUpstream>> {
    let mut texts = chaos::txt_strings(answer).peekable();
    texts.peek()?;

    let mut seen = HashSet::new();
    let servers = texts
        .filter_map(|text| parse_text(&text))
        .filter(|server| seen.insert(server.address))
        .collect();
    Some(servers)
}

/// Parses `192.0.2.1#53 12 0` or `fe80::1%eth0#53 12 0`: address, port, queries, failures.
pub(super) fn parse_text(text: &str) -> Option<ListedUpstream> {
    let mut words = text.split(' ');
    let (ip, port) = words.next()?.split_once('#')?;
    let address = Nameserver::with_interface(ip, port.parse().ok()?)?.socket_addr();
    let queries = words.next()?.parse().ok()?;
    Some(ListedUpstream { address, queries })
}
