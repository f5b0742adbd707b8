//! The `process_*` metrics of the Go client, read from `/proc/self` at every scrape. Metrics that
//! cannot be read are omitted.
//!
//! The collector of the crate prometheus is not used: it needs one more crate, procfs, and lacks
//! the limit of virtual memory and the two network counters.

use std::collections::HashMap;
use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Counter, Gauge, Opts};

/// Clock ticks per second in `/proc`: the kernel's `USER_HZ`, 100 on every platform.
const TICKS: f64 = 100.0;

/// A metric: its name, help text, kind and current value.
type Row = (&'static str, &'static str, MetricType, Option<f64>);

fn rows() -> [Row; 10] {
    use MetricType::{COUNTER, GAUGE};
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let status = read("/proc/self/status");
    let stat = Stat::parse(&read("/proc/self/stat"));
    let limits = read("/proc/self/limits");
    let netstat = read("/proc/self/net/netstat");
    let started = stat
        .zip(boot_time(&read("/proc/stat")))
        .map(|(stat, boot)| boot + stat.started);
    let received = ip_extension(&netstat, "InOctets");
    let sent = ip_extension(&netstat, "OutOctets");
    let files = limit(&limits, "Max open files");
    let space = limit(&limits, "Max address space");
    let cpu = stat.map(|stat| stat.cpu);
    #[rustfmt::skip]
    let rows = [
        ("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", COUNTER, cpu),
        ("process_max_fds", "Maximum number of open file descriptors.", GAUGE, files),
        ("process_network_receive_bytes_total", "Number of bytes received by the process over the network.", COUNTER, received),
        ("process_network_transmit_bytes_total", "Number of bytes sent by the process over the network.", COUNTER, sent),
        ("process_open_fds", "Number of open file descriptors.", GAUGE, open_fds()),
        ("process_resident_memory_bytes", "Resident memory size in bytes.", GAUGE, kilobytes(&status, "VmRSS:")),
        ("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", GAUGE, started),
        ("process_threads", "Number of OS threads in the process.", GAUGE, field(&status, "Threads:")),
        ("process_virtual_memory_bytes", "Virtual memory size in bytes.", GAUGE, kilobytes(&status, "VmSize:")),
        ("process_virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes.", GAUGE, space),
    ];
    rows
}

/// The collector of this process' metrics.
#[derive(Debug)]
pub(super) struct Process {
    descs: Vec<Desc>,
}

impl Process {
    pub(super) fn new() -> prometheus::Result<Self> {
        let desc =
            |(name, help, ..): Row| Desc::new(name.into(), help.into(), Vec::new(), HashMap::new());
        Ok(Self {
            descs: rows()
                .into_iter()
                .map(desc)
                .collect::<prometheus::Result<_>>()?,
        })
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        rows().into_iter().filter_map(family).flatten().collect()
    }
}

fn family((name, help, kind, value): Row) -> Option<Vec<MetricFamily>> {
    let (options, value) = (Opts::new(name, help), value.filter(|value| *value >= 0.0)?);
    if kind == MetricType::COUNTER {
        let counter = Counter::with_opts(options).ok()?;
        counter.inc_by(value);
        return Some(counter.collect());
    }
    let gauge = Gauge::with_opts(options).ok()?;
    gauge.set(value);
    Some(gauge.collect())
}

/// Times from `/proc/self/stat`, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stat {
    /// User and system time.
    pub(super) cpu: f64,
    /// Start time after boot.
    pub(super) started: f64,
}

impl Stat {
    /// Parses the fields after the command. The command may contain spaces and parentheses.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |index: usize| {
            fields
                .get(index)?
                .parse::<f64>()
                .ok()
                .map(|ticks| ticks / TICKS)
        };
        Some(Self {
            cpu: ticks(11)? + ticks(12)?,
            started: ticks(19)?,
        })
    }
}

fn boot_time(stat: &str) -> Option<f64> {
    field(stat, "btime ")
}

fn open_fds() -> Option<f64> {
    // One of the open files is the directory itself.
    let count = fs::read_dir("/proc/self/fd")
        .ok()?
        .count()
        .saturating_sub(1);
    u32::try_from(count).ok().map(f64::from)
}

/// The number after a label at the beginning of a line.
fn field(text: &str, label: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn kilobytes(status: &str, label: &str) -> Option<f64> {
    field(status, label).map(|kilobytes| kilobytes * 1024.0)
}

/// A soft limit; unlimited is the largest number, as in the Go client.
pub(super) fn limit(limits: &str, label: &str) -> Option<f64> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(label))?;
    match rest.split_whitespace().next()? {
        "unlimited" => Some(18_446_744_073_709_551_615.0),
        number => number.parse().ok(),
    }
}

/// A column of the two `IpExt:` lines: names, then numbers.
pub(super) fn ip_extension(netstat: &str, column: &str) -> Option<f64> {
    let mut lines = netstat
        .lines()
        .filter_map(|line| line.strip_prefix("IpExt:"));
    let at = lines
        .next()?
        .split_whitespace()
        .position(|name| name == column)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests;
