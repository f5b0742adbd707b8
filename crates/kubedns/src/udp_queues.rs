//! Metrics of the kernel's UDP receive queues: octets that wait, and datagrams that the kernel
//! dropped.
//!
//! The kernel drops datagrams when a receive buffer is full. The client then times out, usually
//! after five seconds, and retries. The counters of the DNS server do not include dropped
//! datagrams, so each scrape reads `/proc/net/udp` or `/proc/net/udp6`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, Opts};
use skydns::udp::UdpSocket;

const DROPS: MetricText = MetricText {
    name: "kubedns_udp_drops_total",
    help: "Datagrams to the DNS port that the kernel dropped, usually because a receive buffer was full.",
};
const QUEUED: MetricText = MetricText {
    name: "kubedns_udp_receive_queue_bytes",
    help: "Memory of the datagrams that wait in the receive buffers of the DNS port.",
};
const BUFFER: MetricText = MetricText {
    name: "kubedns_udp_receive_buffer_bytes",
    help: "Size of one receive buffer of the DNS port, including the kernel's overhead.",
};

/// Name and help of a metric.
struct MetricText {
    name: &'static str,
    help: &'static str,
}

impl MetricText {
    fn desc(&self) -> prometheus::Result<Desc> {
        let name = self.name.to_owned();
        let help = self.help.to_owned();
        Desc::new(name, help, Vec::new(), HashMap::new())
    }

    fn opts(&self) -> Opts {
        Opts::new(self.name, self.help)
    }
}

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
        // The server's sockets have the same options as this extra socket, and so the same buffer
        // size.
        let socket = UdpSocket::bind((address.ip(), 0).into(), Arc::default());
        Ok(Self {
            address,
            buffer: socket.ok().map(|socket| socket.receive_buffer()),
            descs: vec![DROPS.desc()?, QUEUED.desc()?, BUFFER.desc()?],
        })
    }
}

impl Collector for UdpQueues {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    /// Collects the metrics; omits metrics that the kernel does not provide.
    fn collect(&self) -> Vec<MetricFamily> {
        let queues = read_queues(self.address).ok();
        let drops = queues.map(|queues| queues.drops);
        let waiting = queues.map(|queues| queues.waiting);
        let buffer = self.buffer.and_then(|buffer| u64::try_from(buffer).ok());

        let mut families = Vec::new();
        families.extend(collect_counter(&DROPS, drops).unwrap_or_default());
        families.extend(collect_gauge(&QUEUED, waiting).unwrap_or_default());
        families.extend(collect_gauge(&BUFFER, buffer).unwrap_or_default());
        families
    }
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus counts in f64")]
fn collect_counter(text: &MetricText, value: Option<u64>) -> Option<Vec<MetricFamily>> {
    let counter = Counter::with_opts(text.opts()).ok()?;
    counter.inc_by(value? as f64);
    Some(counter.collect())
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus counts in f64")]
fn collect_gauge(text: &MetricText, value: Option<u64>) -> Option<Vec<MetricFamily>> {
    let gauge = Gauge::with_opts(text.opts()).ok()?;
    gauge.set(value? as f64);
    Some(gauge.collect())
}

/// The sum of the receive queues of all sockets with one local address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QueueSums {
    /// Octets that wait, including the kernel's overhead.
    waiting: u64,
    /// Datagrams that the kernel has dropped since the sockets were opened.
    drops: u64,
}

fn read_queues(address: SocketAddr) -> io::Result<QueueSums> {
    let path = if address.is_ipv4() {
        "/proc/net/udp"
    } else {
        "/proc/net/udp6"
    };
    sum_queues(BufReader::new(File::open(path)?), address)
}

/// Sums the lines of `/proc/net/udp` or `/proc/net/udp6` for `address`.
fn sum_queues(table: impl BufRead, address: SocketAddr) -> io::Result<QueueSums> {
    let mut sum = QueueSums::default();
    for line in table.lines() {
        // The server has one socket at the address for each thread that answers over UDP.
        if let Some((local, queue)) = parse_line(&line?)
            && local == address
        {
            sum.waiting = sum.waiting.saturating_add(queue.waiting);
            sum.drops = sum.drops.saturating_add(queue.drops);
        }
    }
    Ok(sum)
}

/// Parses a line. The second field is the local address, the fifth field holds the sizes of the
/// sending and receiving queues, and the last field is the number of drops.
fn parse_line(line: &str) -> Option<(SocketAddr, QueueSums)> {
    let mut fields = line.split_whitespace();
    let local = parse_address(fields.nth(1)?)?;
    let (_, waiting) = fields.nth(2)?.split_once(':')?;
    let waiting = u64::from_str_radix(waiting, 16).ok()?;
    let drops = fields.nth(7)?.parse().ok()?;
    Some((local, QueueSums { waiting, drops }))
}

/// Parses an address such as `0100007F:2743` in hexadecimal: 32-bit words in native byte order,
/// then the port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(parse_word(ip, 0)?)),
        32 => {
            let mut octets = [0; 16];
            for (at, four) in octets.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&parse_word(ip, at)?);
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// The octets of the word with this index.
fn parse_word(digits: &str, index: usize) -> Option<[u8; 4]> {
    let start = index * 8;
    let word = u32::from_str_radix(digits.get(start..start + 8)?, 16).ok()?;
    Some(word.to_ne_bytes())
}

#[cfg(test)]
mod tests;
