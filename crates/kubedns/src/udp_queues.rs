//! Metrics of the kernel's UDP receive queues: octets that wait, and datagrams that the kernel
//! dropped.
//!
//! The kernel drops datagrams when a receive buffer is full. The client then times out, usually
//! after five seconds, and retries. The counters of the DNS server do not include dropped
//! datagrams, so each scrape reads `/proc/net/udp`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, Opts};
use skydns::udp::UdpSocket;

const DROPS: (&str, &str) = (
    "kubedns_udp_drops_total",
    "Datagrams to the DNS port that the kernel dropped, usually because a receive buffer was full.",
);
const QUEUED: (&str, &str) = (
    "kubedns_udp_receive_queue_bytes",
    "Memory of the datagrams that wait in the receive buffers of the DNS port.",
);
const BUFFER: (&str, &str) = (
    "kubedns_udp_receive_buffer_bytes",
    "Size of one receive buffer of the DNS port, as the kernel counts it.",
);

/// Exports the receive queues of the UDP sockets bound to one address.
#[derive(Debug)]
pub struct UdpQueues {
    address: SocketAddr,
    buffer: Option<usize>,
    descs: Vec<Desc>,
}

impl UdpQueues {
    /// Creates a collector for the sockets of the DNS server that are bound to `address`.
    ///
    /// # Errors
    ///
    /// When the description of a metric is not valid, which is a bug in this module.
    pub fn new(address: SocketAddr) -> prometheus::Result<Self> {
        let descs = [DROPS, QUEUED, BUFFER]
            .into_iter()
            .map(|(name, help)| {
                Desc::new(name.to_owned(), help.to_owned(), Vec::new(), HashMap::new())
            })
            .collect::<prometheus::Result<_>>()?;
        // The server's sockets have the same options as this extra socket, and so the same buffer
        // size.
        let buffer = UdpSocket::bind((address.ip(), 0).into(), Arc::default())
            .ok()
            .map(|socket| socket.receive_buffer());
        Ok(Self {
            address,
            buffer,
            descs,
        })
    }
}

impl Collector for UdpQueues {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    /// Collects the metrics; omits metrics that the kernel does not provide.
    fn collect(&self) -> Vec<MetricFamily> {
        let path = if self.address.is_ipv4() {
            "/proc/net/udp"
        } else {
            "/proc/net/udp6"
        };
        let queues = File::open(path)
            .and_then(|file| queues(BufReader::new(file), self.address))
            .ok();
        [
            counter(DROPS, queues.map(|queues| queues.drops)),
            gauge(QUEUED, queues.map(|queues| queues.waiting)),
            gauge(
                BUFFER,
                self.buffer.and_then(|buffer| u64::try_from(buffer).ok()),
            ),
        ]
        .into_iter()
        .flatten()
        .flatten()
        .collect()
    }
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus counts in f64")]
fn counter((name, help): (&str, &str), value: Option<u64>) -> Option<Vec<MetricFamily>> {
    let counter = Counter::with_opts(Opts::new(name, help)).ok()?;
    counter.inc_by(value? as f64);
    Some(counter.collect())
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus counts in f64")]
fn gauge((name, help): (&str, &str), value: Option<u64>) -> Option<Vec<MetricFamily>> {
    let gauge = Gauge::with_opts(Opts::new(name, help)).ok()?;
    gauge.set(value? as f64);
    Some(gauge.collect())
}

/// The sum of the receive queues of all sockets with one local address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Queues {
    /// Octets that wait, including the kernel's overhead.
    waiting: u64,
    /// Datagrams that the kernel has dropped since the sockets were opened.
    drops: u64,
}

/// Sums the lines of `/proc/net/udp` or `/proc/net/udp6` for `address`.
fn queues(table: impl BufRead, address: SocketAddr) -> io::Result<Queues> {
    let mut sum = Queues::default();
    for line in table.lines() {
        if let Some((local, queue)) = parse(&line?)
            && local == address
        {
            sum.waiting = sum.waiting.saturating_add(queue.waiting);
            sum.drops = sum.drops.saturating_add(queue.drops);
        }
    }
    Ok(sum)
}

/// Parses a line. The second field is the local address, the fifth holds the sending and receiving
/// queues, and the last the drops.
fn parse(line: &str) -> Option<(SocketAddr, Queues)> {
    let mut fields = line.split_whitespace();
    let local = local_address(fields.nth(1)?)?;
    let (_, waiting) = fields.nth(2)?.split_once(':')?;
    let waiting = u64::from_str_radix(waiting, 16).ok()?;
    let drops = fields.nth(7)?.parse().ok()?;
    Some((local, Queues { waiting, drops }))
}

/// Parses an address such as `0100007F:2743` in hexadecimal: 32-bit words in native byte order,
/// then the port.
fn local_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| {
        let digits = ip.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut octets = [0; 16];
            for (at, four) in octets.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests;
