//! Metrics of queries and answers, with SkyDNS's names.
//!
//! Every thread that answers has its own [`Shard`]. Counting then needs only plain stores, in
//! memory that no other thread writes. A scrape adds up the shards.

#![allow(clippy::cast_precision_loss, reason = "Prometheus counts in f64")]

mod kinds;
mod zones;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Counter, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use wire::{Transport, rcode};

use self::kinds::Kinds;
use self::zones::ZoneCounters;
pub use self::zones::ZoneMetrics;
use crate::engine::{Reply, System};

/// Upper bounds of the duration histogram, in seconds.
const DURATIONS: [f64; 13] = [
    0.001, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// Upper bounds of the size histogram, in octets.
const SIZES: [f64; 21] = [
    0.0, 512.0, 1024.0, 1500.0, 2048.0, 4096.0, 8192.0, 12288.0, 16384.0, 20480.0, 24576.0,
    28672.0, 32768.0, 36864.0, 40960.0, 45056.0, 49152.0, 53248.0, 57344.0, 61440.0, 65536.0,
];

/// Duration of an answer, from the arrival of the query.
#[derive(Debug, Clone, Copy)]
pub enum Took {
    /// The engine answered at once.
    AtOnce(Duration),
    /// The query waited for an upstream, or in the queue of expensive queries.
    Waited(Duration),
}

/// Values of the label `cause`: the reasons why an answer counts as an error.
const CAUSES: [&str; 6] = [
    "nxdomain",
    "refused",
    "servfail",
    "truncated",
    "formerr",
    "notimp",
];
/// Index of `refused` in [`CAUSES`].
const REFUSED: usize = 1;

fn cause(reply: Reply) -> Option<usize> {
    if reply.truncated {
        return Some(3);
    }
    match reply.rcode {
        rcode::NXDOMAIN => Some(0),
        rcode::REFUSED => Some(REFUSED),
        rcode::SERVFAIL => Some(2),
        rcode::FORMERR | rcode::BADVERS => Some(4),
        rcode::NOTIMP => Some(5),
        _ => None,
    }
}

/// The counters of one thread, or of all async tasks together.
#[derive(Debug, Default)]
pub struct Shard {
    systems: [Counters; 4],
    kinds: Kinds,
    zones: ZoneCounters,
    expensive: Expensive,
    /// Number of completed names by [`Completion`]. `search_steps` is the number of lookups for
    /// these names.
    completions: [AtomicU64; Completion::ALL.len()],
    search_steps: AtomicU64,
    /// Whether several threads write to the shard.
    many_writers: bool,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    errors: [AtomicU64; CAUSES.len()],
    at_once: Durations,
    waited: Durations,
    sizes: [AtomicU64; SIZES.len() + 1],
    size_sum: AtomicU64,
}

#[derive(Debug, Default)]
struct Durations {
    buckets: [AtomicU64; DURATIONS.len() + 1],
    sum_ns: AtomicU64,
}

/// Counters of expensive queries, see `crate::expensive_queue`.
#[derive(Debug, Default)]
struct Expensive {
    answered: AtomicU64,
    refused: AtomicU64,
}

/// Result of a walk through a search list, see `crate::search`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// A name of the cluster exists.
    Cluster,
    /// An external name exists.
    External,
    /// A name exists, but no name has records of the type.
    NoData,
    /// None of the names exists.
    Missing,
    /// The lookup of a name failed.
    Failed,
}

impl Completion {
    const ALL: [Self; 5] = [
        Self::Cluster,
        Self::External,
        Self::NoData,
        Self::Missing,
        Self::Failed,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::External => "external",
            Self::NoData => "nodata",
            Self::Missing => "nxdomain",
            Self::Failed => "servfail",
        }
    }
}

impl Shard {
    /// Counts a completed name; `steps` is the number of lookups.
    pub(crate) fn completed(&self, completion: Completion, steps: u64) {
        if let Some(counter) = self.completions.get(completion as usize) {
            self.add(counter, 1);
        }
        self.add(&self.search_steps, steps);
    }

    /// Counts an expensive query. `answered` is false for a query that was rejected, timed out or
    /// took too much work.
    pub(crate) fn expensive(&self, answered: bool) {
        self.add(
            if answered {
                &self.expensive.answered
            } else {
                &self.expensive.refused
            },
            1,
        );
    }

    /// Adds to a counter. A single writer needs no atomic addition. Release order: a thread that
    /// sees the new value also sees everything that the writer counted before.
    fn add(&self, counter: &AtomicU64, value: u64) {
        if self.many_writers {
            counter.fetch_add(value, Release);
        } else {
            counter.store(counter.load(Relaxed).wrapping_add(value), Release);
        }
    }

    /// Counts one answered query. The request is counted before the error, see [`Sums::of`].
    pub fn record(&self, reply: Reply, transport: Transport, took: Took, size: usize) {
        let Some(counters) = self.systems.get(reply.system as usize) else {
            return;
        };
        self.add(&counters.requests, 1);
        self.add(self.kinds.counter(reply, transport), 1);
        if let Some(number) = reply.zone {
            self.add(self.zones.counter(number, reply.rcode), 1);
        }
        if let Some(error) = cause(reply).and_then(|cause| counters.errors.get(cause)) {
            self.add(error, 1);
        }
        let (durations, elapsed) = match took {
            Took::AtOnce(elapsed) => (&counters.at_once, elapsed),
            Took::Waited(elapsed) => (&counters.waited, elapsed),
        };
        let seconds = elapsed.as_secs_f64();
        let bucket = DURATIONS
            .iter()
            .position(|bound| seconds <= *bound)
            .unwrap_or(DURATIONS.len());
        self.add(&durations.buckets[bucket], 1);
        self.add(
            &durations.sum_ns,
            u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        );
        let octets = size as f64;
        let bucket = SIZES
            .iter()
            .position(|bound| octets <= *bound)
            .unwrap_or(SIZES.len());
        self.add(&counters.sizes[bucket], 1);
        self.add(&counters.size_sum, size as u64);
    }
}

/// All shards, and a collector for a registry.
#[derive(Debug, Clone)]
pub struct Metrics {
    shards: Arc<Mutex<Vec<Arc<Shard>>>>,
    unsent: Arc<AtomicU64>,
    prefix: String,
    descs: Vec<Desc>,
}

impl Metrics {
    /// Creates metrics named `<namespace>_<subsystem>_dns_...`; empty parts are omitted.
    pub fn new(namespace: &str, subsystem: &str) -> Self {
        let prefix = [namespace, subsystem, "dns"]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("_");
        let describe_as = |name: String, help: &str, labels: &[&str]| {
            let labels = labels.iter().map(|&label| label.to_owned()).collect();
            Desc::new(
                name,
                help.to_owned(),
                labels,
                std::collections::HashMap::new(),
            )
        };
        let describe = |name: &str, help: &str, labels: &[&str]| {
            describe_as(format!("{prefix}_{name}"), help, labels)
        };
        let descs = [
            describe("cachemiss_count_total", HELP_MISSES, &["cache"]),
            describe("error_count_total", HELP_ERRORS, &["system", "cause"]),
            describe("request_count_total", HELP_REQUESTS, &["system"]),
            describe("request_duration_seconds", HELP_DURATIONS, &["system"]),
            describe("response_size_bytes", HELP_SIZES, &["system"]),
            describe_as(UNSENT.to_owned(), HELP_UNSENT, &[]),
            describe_as(EXPENSIVE.to_owned(), HELP_EXPENSIVE, &["result"]),
            describe_as(ENGINE.to_owned(), HELP_ENGINE, &[]),
            describe_as(
                QUERIES.to_owned(),
                HELP_QUERIES,
                &["type", "protocol", "rcode"],
            ),
            describe_as(COMPLETIONS.to_owned(), HELP_COMPLETIONS, &["result"]),
            describe_as(STEPS.to_owned(), HELP_STEPS, &[]),
        ];
        // Prometheus may reject the name of a metric. The server then starts without the
        // description of that metric.
        let descs = descs.into_iter().flatten().collect();
        Self {
            shards: Arc::default(),
            unsent: Arc::default(),
            prefix,
            descs,
        }
    }

    /// Adds a shard for one thread. No other thread may write to the shard.
    pub fn shard(&self) -> Arc<Shard> {
        self.add_shard(false)
    }

    /// Adds a shard that any thread may write to.
    pub fn shared_shard(&self) -> Arc<Shard> {
        self.add_shard(true)
    }

    /// Number of UDP answers that could not be sent. Any socket may add to the counter.
    pub(crate) fn unsent(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.unsent)
    }

    fn add_shard(&self, many_writers: bool) -> Arc<Shard> {
        let shard = Arc::new(Shard {
            many_writers,
            ..Shard::default()
        });
        self.shards.lock().push(Arc::clone(&shard));
        shard
    }

    fn shards(&self) -> Vec<Arc<Shard>> {
        self.shards.lock().clone()
    }

    fn family(
        &self,
        name: &str,
        help: &str,
        kind: MetricType,
        metrics: Vec<Metric>,
    ) -> MetricFamily {
        family(format!("{}_{name}", self.prefix), help, kind, metrics)
    }
}

fn family(name: String, help: &str, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name);
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

/// SkyDNS has no such metric, so the name has no namespace and subsystem.
const UNSENT: &str = "kubedns_udp_unsent_total";
/// SkyDNS has no such metric.
const EXPENSIVE: &str = "kubedns_expensive_queries_total";
/// SkyDNS has no such metric.
const COMPLETIONS: &str = "kubedns_search_queries_total";
const STEPS: &str = "kubedns_search_steps_total";

/// Durations of answers without waiting.
const ENGINE: &str = "kubedns_engine_duration_seconds";
const QUERIES: &str = "kubedns_queries_total";

const HELP_MISSES: &str = "Counter of DNS requests that result in a cache miss.";
const HELP_ERRORS: &str = "Counter of DNS requests resulting in an error.";
const HELP_REQUESTS: &str = "Counter of DNS requests made.";
const HELP_DURATIONS: &str = "Histogram of the time (in seconds) each request took to resolve.";
const HELP_SIZES: &str = "Size of the returns response in bytes.";
const HELP_UNSENT: &str =
    "Answers over UDP that could not be sent, usually because the send buffer was full.";
const HELP_EXPENSIVE: &str = "Expensive queries, such as wildcards over many names, by result.";
const HELP_COMPLETIONS: &str = "Queries completed with the search list, by result.";
const HELP_STEPS: &str = "Lookups of names while completing queries with the search list.";

const HELP_ENGINE: &str =
    "Time to the answer of queries that waited for no upstream and no other expensive query.";
const HELP_QUERIES: &str = "Queries answered, by type, protocol and RCODE.";

fn labels(pairs: &[(&str, &str)]) -> Vec<LabelPair> {
    pairs
        .iter()
        .map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        })
        .collect()
}

fn counter(pairs: &[(&str, &str)], value: u64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value as f64);
    let mut metric = Metric::default();
    metric.set_label(labels(pairs));
    metric.set_counter(counter);
    metric
}

/// Builds a histogram from the counts of its buckets. The last count is for values above all
/// bounds.
fn histogram(pairs: &[(&str, &str)], bounds: &[f64], counts: &[u64], sum: f64) -> Metric {
    let mut total = 0;
    let mut buckets = Vec::with_capacity(bounds.len());
    for (bound, count) in bounds.iter().zip(counts) {
        total += count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(total);
        buckets.push(bucket);
    }
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets);
    histogram.set_sample_count(counts.iter().sum());
    histogram.set_sample_sum(sum);
    let mut metric = Metric::default();
    metric.set_label(labels(pairs));
    metric.set_histogram(histogram);
    metric
}

impl Collector for Metrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let shards = self.shards();
        let sums = System::ALL.map(|system| Sums::of(&shards, system));
        let seen = || sums.iter().filter(|sums| sums.requests > 0);
        let misses = counter(
            &[("cache", "response")],
            sums.iter().map(Sums::misses).sum(),
        );
        let errors = seen().flat_map(Sums::errors).collect();
        let requests = seen()
            .map(|sums| counter(&[("system", sums.system.label())], sums.requests))
            .collect();
        let durations = seen().map(Sums::durations).collect();
        let sizes = seen().map(Sums::sizes).collect();
        let unsent = counter(&[], self.unsent.load(Relaxed));
        let expensive = |result, count: &dyn Fn(&Expensive) -> &AtomicU64| {
            let sum = shards
                .iter()
                .map(|shard| count(&shard.expensive).load(Relaxed))
                .sum();
            counter(&[("result", result)], sum)
        };
        let expensive = vec![
            expensive("answered", &|counts| &counts.answered),
            expensive("refused", &|counts| &counts.refused),
        ];
        let sum = |count: &dyn Fn(&Shard) -> &AtomicU64| -> u64 {
            shards.iter().map(|shard| count(shard).load(Relaxed)).sum()
        };
        let completions = Completion::ALL.into_iter().map(|completion| {
            let count = sum(&|shard| &shard.completions[completion as usize]);
            counter(&[("result", completion.label())], count)
        });
        let (completions, steps) = (
            completions.collect(),
            counter(&[], sum(&|shard| &shard.search_steps)),
        );
        [
            self.family(
                "cachemiss_count_total",
                HELP_MISSES,
                MetricType::COUNTER,
                vec![misses],
            ),
            self.family(
                "error_count_total",
                HELP_ERRORS,
                MetricType::COUNTER,
                errors,
            ),
            self.family(
                "request_count_total",
                HELP_REQUESTS,
                MetricType::COUNTER,
                requests,
            ),
            self.family(
                "request_duration_seconds",
                HELP_DURATIONS,
                MetricType::HISTOGRAM,
                durations,
            ),
            self.family(
                "response_size_bytes",
                HELP_SIZES,
                MetricType::HISTOGRAM,
                sizes,
            ),
            family(
                UNSENT.to_owned(),
                HELP_UNSENT,
                MetricType::COUNTER,
                vec![unsent],
            ),
            family(
                EXPENSIVE.to_owned(),
                HELP_EXPENSIVE,
                MetricType::COUNTER,
                expensive,
            ),
            family(
                ENGINE.to_owned(),
                HELP_ENGINE,
                MetricType::HISTOGRAM,
                vec![engine(&sums)],
            ),
            family(
                QUERIES.to_owned(),
                HELP_QUERIES,
                MetricType::COUNTER,
                kinds::metrics(&shards),
            ),
            family(
                COMPLETIONS.to_owned(),
                HELP_COMPLETIONS,
                MetricType::COUNTER,
                completions,
            ),
            family(
                STEPS.to_owned(),
                HELP_STEPS,
                MetricType::COUNTER,
                vec![steps],
            ),
        ]
        .into_iter()
        .filter(|family| !family.get_metric().is_empty())
        .collect()
    }
}

/// Durations by bucket, and their sum.
#[derive(Clone, Copy, Default)]
struct Times {
    buckets: [u64; DURATIONS.len() + 1],
    sum: Duration,
}

impl std::ops::Add for Times {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.buckets
            .iter_mut()
            .zip(other.buckets)
            .for_each(|(bucket, more)| *bucket += more);
        Self {
            sum: self.sum.saturating_add(other.sum),
            ..self
        }
    }
}

impl Times {
    fn histogram(&self, pairs: &[(&str, &str)]) -> Metric {
        histogram(pairs, &DURATIONS, &self.buckets, self.sum.as_secs_f64())
    }
}

/// Durations of the answers without waiting, for all systems together.
fn engine(sums: &[Sums]) -> Metric {
    sums.iter()
        .map(|sums| sums.at_once)
        .fold(Times::default(), std::ops::Add::add)
        .histogram(&[])
}

/// Sums over all threads for one system.
struct Sums {
    system: System,
    requests: u64,
    errors: [u64; CAUSES.len()],
    at_once: Times,
    waited: Times,
    sizes: [u64; SIZES.len() + 1],
    size_sum: u64,
}

impl Sums {
    /// Adds up the shards while other threads continue to count.
    fn of(shards: &[Arc<Shard>], system: System) -> Self {
        let sum = |counter: &dyn Fn(&Counters) -> &AtomicU64| -> u64 {
            let counters = shards
                .iter()
                .filter_map(|shard| shard.systems.get(system as usize));
            counters
                .map(|counters| counter(counters).load(Acquire))
                .sum()
        };
        // Errors are read before requests, because threads count in the opposite order. For every
        // error seen here, the request is seen, too.
        let errors = std::array::from_fn(|cause| sum(&|c| &c.errors[cause]));
        let times = |of: &dyn Fn(&Counters) -> &Durations| Times {
            buckets: std::array::from_fn(|bucket| sum(&|c| &of(c).buckets[bucket])),
            sum: Duration::from_nanos(sum(&|c| &of(c).sum_ns)),
        };
        Self {
            system,
            errors,
            requests: sum(&|c| &c.requests),
            at_once: times(&|counters| &counters.at_once),
            waited: times(&|counters| &counters.waited),
            sizes: std::array::from_fn(|bucket| sum(&|c| &c.sizes[bucket])),
            size_sum: sum(&|c| &c.size_sum),
        }
    }

    /// Cache misses as SkyDNS counts them: every query that is not refused. The response cache of
    /// kube-dns is empty.
    fn misses(&self) -> u64 {
        if self.system == System::Auth {
            self.requests.saturating_sub(self.errors[REFUSED])
        } else {
            0
        }
    }

    fn errors(&self) -> impl Iterator<Item = Metric> {
        let system = self.system.label();
        let counts = CAUSES
            .into_iter()
            .zip(self.errors)
            .filter(|(_, count)| *count > 0);
        counts.map(move |(cause, count)| counter(&[("system", system), ("cause", cause)], count))
    }

    fn durations(&self) -> Metric {
        (self.at_once + self.waited).histogram(&[("system", self.system.label())])
    }

    fn sizes(&self) -> Metric {
        histogram(
            &[("system", self.system.label())],
            &SIZES,
            &self.sizes,
            self.size_sum as f64,
        )
    }
}

#[cfg(test)]
mod tests;
