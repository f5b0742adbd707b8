//! The `process_*` metrics of the Prometheus client for Go, and `process_threads` of the crate
//! prometheus. Their values are read from `/proc/self` at every scrape, except the start time.
//! Metrics that cannot be read are omitted.
//!
//! The collector of the crate prometheus is not used: it needs one more crate, procfs, and lacks
//! the limit of virtual memory and the two network counters.

use std::collections::HashMap;
use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Counter, Gauge, Opts};

/// Clock ticks per second in `/proc`: the kernel's `USER_HZ`, 100 on x86 and Arm.
const TICKS: f64 = 100.0;

/// A metric with its current value.
struct ProcessMetric {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    value: Option<f64>,
}

impl ProcessMetric {
    fn counter(name: &'static str, help: &'static str, value: Option<f64>) -> Self {
        Self {
            name,
            help,
            kind: MetricType::COUNTER,
            value,
        }
    }

    fn gauge(name: &'static str, help: &'static str, value: Option<f64>) -> Self {
        Self {
            name,
            help,
            kind: MetricType::GAUGE,
            value,
        }
    }

    fn descriptor(&self) -> prometheus::Result<Desc> {
        let name = self.name.to_owned();
        let help = self.help.to_owned();
        Desc::new(name, help, Vec::new(), HashMap::new())
    }

    fn into_families(self) -> Option<Vec<MetricFamily>> {
        let value = self.value.filter(|value| *value >= 0.0)?;
        let options = Opts::new(self.name, self.help);

        if self.kind == MetricType::COUNTER {
            let counter = Counter::with_opts(options).ok()?;
            counter.inc_by(value);
            return Some(counter.collect());
        }
        let gauge = Gauge::with_opts(options).ok()?;
        gauge.set(value);
        Some(gauge.collect())
    }
}

/// The text of a file in `/proc`; empty if it cannot be read.
fn read_proc(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The start of this process, in seconds since 1970.
fn read_start() -> Option<f64> {
    // The kernel reports the start as a time after boot.
    let stat = ProcessStat::parse(&read_proc("/proc/self/stat"))?;
    let boot = boot_time(&read_proc("/proc/stat"))?;
    Some(boot + stat.started)
}

fn read_metrics(started: Option<f64>) -> [ProcessMetric; 10] {
    let status = read_proc("/proc/self/status");
    let stat = ProcessStat::parse(&read_proc("/proc/self/stat"));
    let limits = read_proc("/proc/self/limits");
    let netstat = read_proc("/proc/self/net/netstat");

    let cpu = stat.map(|stat| stat.cpu);
    let files = parse_limit(&limits, "Max open files");
    let space = parse_limit(&limits, "Max address space");
    let received = parse_ip_extension(&netstat, "InOctets");
    let sent = parse_ip_extension(&netstat, "OutOctets");

    [
        ProcessMetric::counter(
            "process_cpu_seconds_total",
            "Total user and system CPU time spent in seconds.",
            cpu,
        ),
        ProcessMetric::gauge(
            "process_max_fds",
            "Maximum number of open file descriptors.",
            files,
        ),
        ProcessMetric::counter(
            "process_network_receive_bytes_total",
            "Number of bytes received by the process over the network.",
            received,
        ),
        ProcessMetric::counter(
            "process_network_transmit_bytes_total",
            "Number of bytes sent by the process over the network.",
            sent,
        ),
        ProcessMetric::gauge(
            "process_open_fds",
            "Number of open file descriptors.",
            count_open_files(),
        ),
        ProcessMetric::gauge(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            parse_kilobytes(&status, "VmRSS:"),
        ),
        ProcessMetric::gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            started,
        ),
        ProcessMetric::gauge(
            "process_threads",
            "Number of OS threads in the process.",
            parse_field(&status, "Threads:"),
        ),
        ProcessMetric::gauge(
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes.",
            parse_kilobytes(&status, "VmSize:"),
        ),
        ProcessMetric::gauge(
            "process_virtual_memory_max_bytes",
            "Maximum amount of virtual memory available in bytes.",
            space,
        ),
    ]
}

/// The collector of this process' metrics.
#[derive(Debug)]
pub(super) struct ProcessCollector {
    descs: Vec<Desc>,
    /// The start is read only once: the kernel's boot time shifts when the clock is set, and a
    /// changed start time looks like a restart.
    started: Option<f64>,
}

impl ProcessCollector {
    pub(super) fn new() -> prometheus::Result<Self> {
        let started = read_start();
        let metrics = read_metrics(started);
        let descs = metrics.iter().map(ProcessMetric::descriptor);
        Ok(Self {
            descs: descs.collect::<prometheus::Result<_>>()?,
            started,
        })
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        read_metrics(self.started)
            .into_iter()
            .filter_map(ProcessMetric::into_families)
            .flatten()
            .collect()
    }
}

/// Times from `/proc/self/stat`, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProcessStat {
    /// User and system time.
    pub(super) cpu: f64,
    /// Time from boot to the start of the process.
    pub(super) started: f64,
}

impl ProcessStat {
    /// Parses the fields after the command. The command may contain spaces and parentheses.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        // The first of these fields is field 3 in proc(5).
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let user = parse_ticks(fields.get(11)?)?;
        let system = parse_ticks(fields.get(12)?)?;
        Some(Self {
            cpu: user + system,
            started: parse_ticks(fields.get(19)?)?,
        })
    }
}

/// A number of clock ticks, in seconds.
fn parse_ticks(field: &str) -> Option<f64> {
    let ticks: f64 = field.parse().ok()?;
    Some(ticks / TICKS)
}

fn boot_time(stat: &str) -> Option<f64> {
    parse_field(stat, "btime ")
}

fn count_open_files() -> Option<f64> {
    // One of the open files is the directory itself.
    let count = fs::read_dir("/proc/self/fd")
        .ok()?
        .count()
        .saturating_sub(1);
    u32::try_from(count).ok().map(f64::from)
}

/// The number after a label at the beginning of a line.
fn parse_field(text: &str, label: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn parse_kilobytes(status: &str, label: &str) -> Option<f64> {
    parse_field(status, label).map(|kilobytes| kilobytes * 1024.0)
}

/// A soft limit; `unlimited` becomes the largest unsigned 64-bit number, as in the Go client.
pub(super) fn parse_limit(limits: &str, label: &str) -> Option<f64> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(label))?;
    match rest.split_whitespace().next()? {
        "unlimited" => Some(18_446_744_073_709_551_615.0),
        number => number.parse().ok(),
    }
}

/// The number in a column of the two `IpExt:` lines. The first line has the names of the columns,
/// and the second has the numbers.
pub(super) fn parse_ip_extension(netstat: &str, column: &str) -> Option<f64> {
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
